//! A training that is run for its figures: the plugin trains as in a job, on a device and for as many steps as are wanted,
//! and nothing is kept of it. What it shows of its speed is a [`StepTimeline`], and that says what more steps would take.
//!
//! The plugin sees the same interface as in a job: what it publishes and writes is taken and forgotten.

mod context;
mod timeline;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use saggar_device::{Backend, Meter};
use saggar_plugin::{CompiledPlugin, PluginEngine, PluginError, TrainLimits, train};
use saggar_store::{ColumnarDataset, ModelRegistry};

pub use timeline::{StepTimeline, TrainingEstimate};

use crate::spec::{CheckpointSelector, InitFrom, JobSpec};
use crate::worker::JobRights;
use context::MeasuringContext;

/// When a measured training ends, if not by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureUntil {
    /// After so many steps, or at the step boundary that follows.
    Steps(u64),
    /// As soon as what it showed suffices for an estimate of its whole length.
    EnoughSamples,
}

/// What a measured training is made of.
#[derive(Clone, Debug)]
pub struct MeasurementConfig {
    /// Its parameters, seed, shards, precision, limits on memory and the step that it begins at; the rest of it says nothing here.
    pub spec: JobSpec,
    /// What it mounts, by mount point.
    pub datasets: BTreeMap<String, Arc<ColumnarDataset>>,
    /// Values of the secrets that it may read, by name.
    pub secrets: BTreeMap<String, String>,
    /// Models that it may open.
    pub models: Option<ModelRegistry>,
    /// Which of them; all, where no job is measured.
    pub rights: Option<JobRights>,
    /// When it ends.
    pub until: MeasureUntil,
}

/// What a training showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainingMeasurement {
    /// Its steps by the clock, which began when the plugin was started.
    pub timeline: StepTimeline,
    /// Steps that it has to do from the first one on, if it says so.
    pub steps_to_do: Option<u64>,
    /// Steps that are done where it really begins: it is measured from the first one.
    pub start_step: u64,
    /// Time that the device worked for it.
    pub busy: Duration,
    /// Whether it was measured to the end that it was to have.
    is_over: bool,
}

impl TrainingMeasurement {
    /// Steps of the whole training from where it really begins: what the plugin says, unless it ended before.
    pub fn total_steps(&self) -> Option<u64> {
        let steps = if self.is_over { self.steps_to_do } else { Some(self.timeline.steps()) };
        steps.map(|steps| steps.saturating_sub(self.start_step))
    }
}

/// Runs the plugin's training on `device` as `trial` says, charged to `meter`. Blocks. `go_on` is told the steps done and
/// those to do whenever the training reports some, and says whether it goes on.
///
/// # Errors
/// Those of [`train`]; `Job` where the training ended without having reported a step.
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
    let mut measured = measured.lock().unwrap_or_else(PoisonError::into_inner).clone();
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

/// Steps that are done where a job begins. Submission has named the step of a checkpoint.
fn start_step(spec: &JobSpec) -> u64 {
    match spec.init_from {
        Some(InitFrom::Checkpoint { which: CheckpointSelector::Step(step), .. }) => step,
        Some(
            InitFrom::Checkpoint { which: CheckpointSelector::Latest | CheckpointSelector::Best, .. }
            | InitFrom::Model { .. },
        )
        | None => 0,
    }
}
