//! The inspection of uploaded plugins.

use std::fmt::Debug;

use saggar_plugin::limits::COMPILE_TIME_MAX;
use saggar_plugin::{CompilePurpose, PluginDeclarations, PluginEngine, PluginError};
use saggar_reference_plugins::{ReferencePlugin, reference_plugins};
use saggar_rest::plugins::PluginDocument;
use saggar_store::digest::Digest;
use serde::{Deserialize, Serialize};

/// The facts known of a plugin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PluginFacts {
    /// The component's digest.
    pub digest: Digest,
    /// Whether it supports training.
    pub trains: bool,
    /// Whether it supports prediction.
    pub predicts: bool,
    /// Whether it is a step.
    #[serde(default)]
    pub is_step: bool,
    /// Its size in bytes.
    pub bytes: u64,
    /// The parameters and data that it declares.
    #[serde(default, skip_serializing_if = "PluginDeclarations::is_empty")]
    pub declares: PluginDeclarations,
}

impl PluginFacts {
    /// Returns the facts of a reference plugin, without compiling it.
    pub fn of_reference(plugin: &'static ReferencePlugin) -> PluginFacts {
        let component = plugin.component();
        PluginFacts::from_exports(component, *plugin.digest(), plugin.declarations())
    }

    /// Returns the facts of a component, without compiling it.
    ///
    /// # Errors
    /// Returns `Malformed` if the bytes do not read as a component, and the reason why this program refuses it.
    pub fn of_component(wasm: &[u8]) -> Result<PluginFacts, PluginError> {
        let declares = PluginDeclarations::from_component(wasm)?;
        let not_a_component = || PluginError::Malformed { reason: "it does not read as a component".to_owned() };
        saggar_plugin::check_component(wasm).ok_or_else(not_a_component)??;
        Ok(PluginFacts::from_exports(wasm, Digest::of(wasm), declares))
    }

    fn from_exports(component: &[u8], digest: Digest, declares: PluginDeclarations) -> PluginFacts {
        let exports = saggar_plugin::component_exports(component).unwrap_or_default();
        let has = |interface: &str| exports.iter().any(|export| export.starts_with(interface));
        PluginFacts {
            digest,
            trains: has("saggar:plugin/trainer@"),
            predicts: has("saggar:plugin/predictor@"),
            is_step: has("saggar:plugin/step@"),
            bytes: component.len() as u64,
            declares,
        }
    }

    /// Returns the facts as the REST interface gives them.
    pub fn document(&self) -> PluginDocument {
        let declares = (!self.declares.is_empty())
            .then(|| serde_json::to_value(&self.declares).expect("declarations are plain data"));
        PluginDocument {
            digest: self.digest.hex(),
            trains: self.trains,
            predicts: self.predicts,
            is_step: self.is_step,
            bytes: self.bytes,
            reference: reference_plugins().iter().any(|plugin| plugin.digest() == &self.digest),
            declares,
        }
    }
}

/// Inspects plugins.
pub trait PluginInspector: Debug + Send + Sync {
    /// Checks a component as if it were to run. Called from a thread that can block, once for each upload.
    ///
    /// # Errors
    /// Returns why the component can never run here.
    fn inspect(&self, wasm: &[u8]) -> Result<PluginFacts, PluginError>;
}

impl PluginInspector for PluginEngine {
    fn inspect(&self, wasm: &[u8]) -> Result<PluginFacts, PluginError> {
        let plugin = self.compile_for(wasm, CompilePurpose::Upload, COMPILE_TIME_MAX)?;
        Ok(PluginFacts {
            digest: *plugin.digest(),
            trains: plugin.has_trainer(),
            predicts: plugin.has_predictor(),
            is_step: plugin.has_step(),
            bytes: wasm.len() as u64,
            declares: PluginDeclarations::from_component(wasm)?,
        })
    }
}
