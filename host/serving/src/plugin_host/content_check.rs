//! Checks content before it is published: it is loaded on the device as a version would be, and predicts once.

use std::time::Instant;

use saggar_device::Meter;
use saggar_plugin::{CompilePurpose, DeclaredWeights, LoadedModel, ModelParts};
use saggar_store::SavedVariable;

use super::PluginHost;
use crate::predictor::{CandidateContent, LoadError};

impl PluginHost {
    /// Loads the content and predicts the defaults of its inputs. Returns the weights with the kinds that the plugin
    /// declares.
    ///
    /// # Errors
    /// Returns the errors of compiling and loading the plugin, which include weights that do not fit it.
    pub(super) fn load_and_predict_once(&self, it: CandidateContent<'_>) -> Result<DeclaredWeights, LoadError> {
        let began = Instant::now();
        let plugin = self.host.compile_for(it.plugin, CompilePurpose::Upload, self.load_time)?;
        let parts = |variables: &[SavedVariable]| ModelParts {
            plugin: plugin.clone(),
            variables: variables.to_vec(),
            config: it.config.to_owned(),
            inputs: it.inputs.clone(),
            weights_meter: Meter::new(self.device_bytes_max),
            meter: Meter::new(self.device_bytes_max),
            limits: self.model_limits(1),
            on_instance_start: None,
        };
        let device = self.device.current();
        let weights = match it.has_kinds {
            true => DeclaredWeights { variables: it.variables.to_vec(), unread: Vec::new() },
            false => LoadedModel::declared_weights(&self.host, parts(it.variables), std::sync::Arc::clone(&device))?,
        };
        let model = LoadedModel::load(&self.host, parts(&weights.variables), device)?;
        model.predict_defaults_once(self.load_time.saturating_sub(began.elapsed()))?;
        Ok(weights)
    }
}
