//! Measured trainings: the plugin trains as in a job, on one device and for a limited number of steps, and nothing is
//! stored. The result is a [`StepTimeline`], which estimates the time of further steps.
//!
//! The plugin sees the same interface as in a job; what it publishes and writes is discarded.

mod context;
mod timeline;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saggar_device::{Backend, Meter};
use saggar_plugin::{CompiledPlugin, PluginEngine, PluginError, TrainLimits, train};
use saggar_store::{ColumnarDataset, ModelRegistry};

pub use timeline::{StepTimeline, TrainingEstimate};

use crate::spec::{CheckpointSelector, InitFrom, JobSpec};
use crate::worker::JobRights;
use context::MeasuringContext;

/// When a measured training ends, unless it ends earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureUntil {
    /// After this number of steps, or at the step boundary that follows.
    Steps(u64),
    /// As soon as the measurement suffices to estimate the whole training.
    EnoughSamples,
}

/// The configuration of a measured training.
#[derive(Clone, Debug)]
pub struct MeasurementConfig {
    /// The job specification. Only its parameters, seed, shards, precision, memory limits and initial step are used.
    pub spec: JobSpec,
    /// The mounted datasets, by mount point.
    pub datasets: BTreeMap<String, Arc<ColumnarDataset>>,
    /// The values of the secrets that the training can read, by name.
    pub secrets: BTreeMap<String, String>,
    /// The models that the training can open.
    pub models: Option<ModelRegistry>,
    /// The access rights to these models; `None` if not measured for a job, so that all can be read.
    pub rights: Option<JobRights>,
    /// When the measurement ends.
    pub until: MeasureUntil,
}

/// The result of a measured training.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainingMeasurement {
    /// The times of its steps, from the start of the plugin.
    pub timeline: StepTimeline,
    /// Steps of the whole training from the first one on; `None` if the plugin does not report it.
    pub steps_to_do: Option<u64>,
    /// Steps already done at the training's real start; the measurement begins with the first step.
    pub start_step: u64,
    /// The time that the device worked for the training.
    pub busy: Duration,
    /// Whether the measurement reached its intended end.
    is_over: bool,
}

impl TrainingMeasurement {
    /// Returns the steps of the whole training from its real start: as the plugin reports, or fewer if it ended
    /// earlier.
    pub fn total_steps(&self) -> Option<u64> {
        let steps = if self.is_over { self.steps_to_do } else { Some(self.timeline.steps()) };
        steps.map(|steps| steps.saturating_sub(self.start_step))
    }
}

/// Runs the plugin's training on `device` as `trial` says, charged to `meter`. Blocks. `go_on` is called with the steps
/// done and the steps to do whenever the training reports a step, and returns whether to continue.
///
/// # Errors
/// Returns the errors of [`train()`], and `Job` if the training ended without reporting a step.
pub fn measure_training(
    host: &PluginEngine,
    plugin: &CompiledPlugin,
    device: &Arc<dyn Backend>,
    meter: Meter,
    trial: MeasurementConfig,
    go_on: impl FnMut(u64, u64) -> bool + Send + 'static,
) -> Result<TrainingMeasurement, PluginError> {
    let memory_bytes = trial.spec.memory_bytes;
    let datasets = trial.datasets.clone();
    let measured = TrainingMeasurement { start_step: start_step(&trial.spec), ..TrainingMeasurement::default() };
    let measured = Arc::new(Mutex::new(measured));
    let waited = Arc::clone(device);
    let wait = Box::new(move || drop(waited.synchronize()));
    let context = MeasuringContext::new(trial, wait, meter.clone(), Arc::clone(&measured), Box::new(go_on));
    let limits = TrainLimits { memory_bytes, ..TrainLimits::default() };
    train(host, plugin, Arc::clone(device), meter.clone(), datasets, Box::new(context), limits)?;
    let mut measured = measured.lock().clone();
    if !measured.is_over {
        device.synchronize()?;
        measured.busy = meter.busy_time();
    }
    if measured.timeline.steps() == 0 {
        return Err(PluginError::job(
            "the training reported no step: it calls neither `job.progress` nor `job.boundary`",
        ));
    }
    Ok(measured)
}

/// Returns the steps done before a job begins. Submission has resolved the step of a checkpoint.
pub(crate) fn start_step(spec: &JobSpec) -> u64 {
    match spec.init_from {
        Some(InitFrom::Checkpoint { which: CheckpointSelector::Step(step), .. }) => step,
        Some(
            InitFrom::Checkpoint { which: CheckpointSelector::Latest | CheckpointSelector::Best, .. }
            | InitFrom::Model { .. },
        )
        | None => 0,
    }
}
