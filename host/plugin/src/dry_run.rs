//! Dry run of a training: a plugin's trainer runs on a [`NullBackend`], which computes nothing, so that its graphs can
//! be inspected without its data and in little time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saggar_device::{Backend, Meter, NullBackend};
use saggar_store::checkpoint::{Checkpoint, SavedVariable};
use saggar_store::dataset::ColumnarDataset;
use saggar_store::{ImageInputs, LoggedItem, LoggedKey};

use crate::engine::{CompiledPlugin, PluginEngine};
use crate::error::PluginError;
use crate::job_context::{InitialState, JobContext, LogLevel, OpenedModel};
use crate::shards::BatchShards;
use crate::train::{TrainLimits, train};

/// A model that a plugin published in a dry run.
#[derive(Clone, Debug)]
pub struct DryRunModel {
    /// The model's name.
    pub model: String,
    /// The model's variables. Only those that the plugin wrote itself have elements.
    pub variables: Vec<SavedVariable>,
    /// The configuration for its predictor.
    pub config: String,
    /// The preprocessing of its image inputs.
    pub inputs: ImageInputs,
}

/// Maximum number of published models that are returned; later ones are ignored.
const PUBLISHED_MODELS_MAX: usize = 16;

/// Runs a plugin's training on `device` for at most `limit`, with datasets by mount point and a JSON object of
/// parameters. Returns the published models even if the training fails. Blocks.
///
/// # Errors
/// The second value is the error that ended the training, as in [`train`]. All losses are zero, which some plugins
/// refuse.
pub fn dry_run(
    host: &PluginEngine,
    plugin: &CompiledPlugin,
    device: &NullBackend,
    datasets: BTreeMap<String, Arc<ColumnarDataset>>,
    parameters: String,
    limit: Duration,
) -> (Vec<DryRunModel>, Result<(), PluginError>) {
    let published = Arc::new(Mutex::new(Vec::new()));
    let stage = DryRunContext { parameters, published: Arc::clone(&published) };
    let limits = TrainLimits { time: Some(limit), ..TrainLimits::default() };
    let backend: Arc<dyn Backend> = Arc::new(device.clone());
    let ended = train(host, plugin, backend, Meter::unlimited(), datasets, Box::new(stage), limits);
    let published = std::mem::take(&mut *published.lock());
    (published, ended.map(drop))
}

/// The job of a dry run, which keeps only published models.
struct DryRunContext {
    parameters: String,
    published: Arc<Mutex<Vec<DryRunModel>>>,
}

impl JobContext for DryRunContext {
    fn parameters(&self) -> String {
        self.parameters.clone()
    }

    fn seed(&self) -> u64 {
        0
    }

    fn attempt(&self) -> u32 {
        1
    }

    fn shards(&self) -> BatchShards {
        BatchShards::default()
    }

    fn skips_nonfinite(&self) -> bool {
        false
    }

    fn is_mixed_precision(&self) -> bool {
        false
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        tracing::debug!(level = level.name(), line, "log line of the plugin");
    }

    fn metric(&mut self, _: u64, _: &str, _: f64) {}

    fn log_item(&mut self, _: LoggedKey, _: LoggedItem) {}

    fn progress(&mut self, _: u64, _: u64) {}

    fn items_drawn(&mut self, _: u64, _: Duration) {}

    fn secret(&self, name: &str) -> Result<String, PluginError> {
        Err(PluginError::job(format!("secret `{name}` was not granted: a dry run has no secrets")))
    }

    fn initial_state(&mut self) -> Result<InitialState, PluginError> {
        Ok(InitialState::Nothing)
    }

    fn checkpoint_due(&mut self, _: u64) -> bool {
        false
    }

    fn save(&mut self, _: Checkpoint) -> Result<(), PluginError> {
        Ok(())
    }

    fn stop_requested(&self, _: u64) -> bool {
        false
    }

    fn phase(&mut self, _: &str) {}

    fn publish(
        &mut self,
        model: &str,
        variables: Vec<SavedVariable>,
        config: &str,
        inputs: &ImageInputs,
    ) -> Result<u64, PluginError> {
        let mut published = self.published.lock();
        if published.len() < PUBLISHED_MODELS_MAX {
            published.push(DryRunModel {
                model: model.to_owned(),
                variables,
                config: config.to_owned(),
                inputs: inputs.clone(),
            });
        }
        Ok(published.len() as u64)
    }

    fn open_model(&mut self, model: &str, _: Option<u64>) -> Result<OpenedModel, PluginError> {
        let published = self.published.lock();
        match published.iter().rposition(|it| it.model == model) {
            Some(at) => {
                let DryRunModel { variables, config, .. } = published[at].clone();
                Ok(OpenedModel { version: at as u64 + 1, variables, config })
            }
            None => Err(PluginError::job(format!(
                "model `{model}` was not found: a dry run can only open models that it has published"
            ))),
        }
    }

    fn write_output(&mut self, _: &str, _: &[u8]) -> Result<(), PluginError> {
        Ok(())
    }
}
