//! The inspection of uploaded plugins.

use std::fmt::Debug;

use saggar_plugin::limits::COMPILE_TIME_MAX;
use saggar_plugin::{CompilePurpose, PluginDeclarations, PluginEngine, PluginError};
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
    /// Its size in bytes.
    pub bytes: u64,
    /// The parameters and data that it declares.
    #[serde(default, skip_serializing_if = "PluginDeclarations::is_empty")]
    pub declares: PluginDeclarations,
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
        let (trains, predicts) = (plugin.has_trainer(), plugin.has_predictor());
        let declares = PluginDeclarations::from_component(wasm)?;
        Ok(PluginFacts { digest: *plugin.digest(), trains, predicts, bytes: wasm.len() as u64, declares })
    }
}
