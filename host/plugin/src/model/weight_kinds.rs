//! Weights that come from a file, which does not say which of them are parameters and which are statistics: the plugin
//! that loads them does.

use std::sync::Arc;

use saggar_device::Backend;
use saggar_store::checkpoint::{SavedVariable, VariableKind};

use super::{LoadedModel, ModelParts};
use crate::engine::PluginEngine;
use crate::error::PluginError;
use crate::variables::device_weights::DeviceWeights;
use crate::variables::namespace::VariableNamespace;

/// Weights with the kinds that a plugin declares.
#[derive(Clone, Debug)]
pub struct DeclaredWeights {
    /// All variables. Those that the plugin did not ask for are parameters.
    pub variables: Vec<SavedVariable>,
    /// The names of the variables that the plugin did not ask for while it was loaded, in order.
    pub unread: Vec<String>,
}

impl LoadedModel {
    /// Loads the plugin once with variables of unknown kinds, drops it, and returns the variables with the kinds that it
    /// declares. Blocks.
    ///
    /// # Errors
    /// `Weights` if a variable is missing, or has another data type or shape than the plugin declares, or if the plugin
    /// declares one that only training needs; `MissingExport` if it has no predictor; `Device`; the errors of loading an
    /// instance.
    pub fn declared_weights(
        host: &PluginEngine,
        parts: ModelParts,
        device: Arc<dyn Backend>,
    ) -> Result<DeclaredWeights, PluginError> {
        parts.plugin.predictor_export()?;
        let mut variables = parts.variables.clone();
        let weights = Arc::new(DeviceWeights::upload(&variables, &*device, &parts.weights_meter)?);
        let namespace = VariableNamespace::with_call_weights(&variables).adopting_kinds();
        let kinds = parts.into_factory(host, namespace, device).declared_kinds(&weights)?;
        let mut unread = Vec::new();
        for variable in &mut variables {
            match kinds.get(&variable.name) {
                Some(VariableKind::Training) => {
                    return Err(PluginError::Weights {
                        name: variable.name.clone(),
                        declared: format!("{} that only training needs", variable.descriptor),
                        given: "parameters and statistics only, as every published version has".to_owned(),
                    });
                }
                Some(kind) => variable.kind = *kind,
                None => {
                    variable.kind = VariableKind::Parameter;
                    unread.push(variable.name.clone());
                }
            }
        }
        unread.sort();
        Ok(DeclaredWeights { variables, unread })
    }
}
