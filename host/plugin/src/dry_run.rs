//! A training that computes nothing: a plugin's trainer runs on a [`NullBackend`], so that the graphs it builds can be looked at
//! without its data and without its time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use saggar_device::{Backend, Meter, NullBackend};
use saggar_store::checkpoint::{Checkpoint, SavedVariable};
use saggar_store::dataset::ColumnarDataset;

use crate::engine::{CompiledPlugin, PluginEngine};
use crate::error::PluginError;
use crate::shards::BatchShards;
use crate::train::{InitialState, JobContext, LogLevel, OpenedModel, TrainLimits, train};

/// What a plugin published while it rehearsed.
#[derive(Clone, Debug)]
pub struct DryRunModel {
    /// The model's name.
    pub model: String,
    /// Its variables; they have no elements but those that the plugin wrote itself.
    pub variables: Vec<SavedVariable>,
    /// What its predictor is given.
    pub config: String,
}

/// Models published at most; later ones are left out.
const PUBLISHED_MODELS_MAX: usize = 16;

/// Runs a plugin's training on `device`, with datasets by mount and a JSON object of parameters, for `limit` at most. What it
/// published is given whether or not it came to its end. Blocks.
///
/// # Errors
/// In the second place, whatever ended the training: those of [`train`]. Losses are zeros here, which some plugins refuse.
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
    let published = std::mem::take(&mut *published.lock().unwrap_or_else(PoisonError::into_inner));
    (published, ended.map(drop))
}

/// The job around it: nothing is kept but what is published.
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
        tracing::debug!(level = level.name(), line, "the plugin says");
    }

    fn metric(&mut self, _: u64, _: &str, _: f64) {}

    fn progress(&mut self, _: u64, _: u64) {}

    fn items_drawn(&mut self, _: u64, _: Duration) {}

    fn secret(&self, name: &str) -> Result<String, PluginError> {
        Err(PluginError::job(format!("secret `{name}` was not granted: nothing is while graphs are looked at")))
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

    fn stop_requested(&self) -> bool {
        false
    }

    fn phase(&mut self, _: &str) {}

    fn publish(&mut self, model: &str, variables: Vec<SavedVariable>, config: &str) -> Result<u64, PluginError> {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        if published.len() < PUBLISHED_MODELS_MAX {
            published.push(DryRunModel { model: model.to_owned(), variables, config: config.to_owned() });
        }
        Ok(published.len() as u64)
    }

    fn open_model(&mut self, model: &str, _: Option<u64>) -> Result<OpenedModel, PluginError> {
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        match published.iter().rposition(|it| it.model == model) {
            Some(at) => {
                let DryRunModel { variables, config, .. } = published[at].clone();
                Ok(OpenedModel { version: at as u64 + 1, variables, config })
            }
            None => Err(PluginError::job(format!("no model `{model}` is there while graphs are looked at"))),
        }
    }

    fn write_output(&mut self, _: &str, _: &[u8]) -> Result<(), PluginError> {
        Ok(())
    }
}
