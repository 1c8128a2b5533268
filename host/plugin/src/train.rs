//! A training: one call of the plugin's trainer, inside a job that it knows as [`JobContext`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use saggar_device::{Backend, Meter};
use saggar_store::checkpoint::{Checkpoint, SavedVariable};
use saggar_store::dataset::ColumnarDataset;

use crate::engine::{CompiledPlugin, PluginEngine};
use crate::error::PluginError;
use crate::instance_state::{CallClock, InstanceRole, InstanceState};
use crate::job::TrainRole;
use crate::limits::{MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MAX, WATCHDOG_TIMEOUT_DEFAULT};
use crate::shards::{BatchShards, ShardMean};

/// How much a line that a plugin writes matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// For the plugin's author.
    Debug,
    /// For whoever runs the job.
    Info,
    /// Something is odd.
    Warn,
    /// Something failed.
    Error,
}

impl LogLevel {
    /// `debug`, `info`, `warn`, `error`.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        }
    }
}

/// The job around a training. Every method is called on the thread that trains, between its steps, and may block it.
pub trait JobContext: Send {
    /// The job's parameters: a JSON object.
    fn parameters(&self) -> String;

    /// The job's seed.
    fn seed(&self) -> u64;

    /// The number of this attempt, from 1.
    fn attempt(&self) -> u32;

    /// How batches that gradients are taken of are divided. The same at every call.
    fn shards(&self) -> BatchShards;

    /// Whether an update that would make variables infinite or not a number is left out. The same at every call.
    fn skips_nonfinite(&self) -> bool;

    /// Whether products and convolutions of steps that take gradients are computed in `float16`, with a scaled loss. The
    /// same at every call.
    fn is_mixed_precision(&self) -> bool;

    /// The mean over all shards. `own` has the parts of this process's shards in order, and `mean` says what a part is and
    /// adds them up. Called once a step where there is more than one shard, in all of the job's processes.
    ///
    /// # Errors
    /// Where another process is gone or does something else; ends the training.
    fn all_reduce(&mut self, own: Vec<Vec<u8>>, mut mean: ShardMean) -> Result<Vec<u8>, PluginError> {
        own.iter().for_each(|part| mean.add(part));
        Ok(mean.finish())
    }

    /// A line that the plugin wrote, at most [`crate::limits::LOG_LINE_BYTES_MAX`] long.
    fn log(&mut self, level: LogLevel, line: &str);

    /// A value of a named series. It may be infinite or not a number.
    fn metric(&mut self, step: u64, name: &str, value: f64);

    /// Steps done, of steps to do.
    fn progress(&mut self, step: u64, of: u64);

    /// This many more items of datasets were drawn, and taking them to the device took so long.
    fn items_drawn(&mut self, items: u64, time: Duration);

    /// The value of a secret that the job was granted.
    ///
    /// # Errors
    /// Where it was not, or there is none of that name.
    fn secret(&self, name: &str) -> Result<String, PluginError>;

    /// What the training starts from.
    ///
    /// # Errors
    /// Where there may be a checkpoint that cannot be reached: starting anew would lose it.
    fn initial_state(&mut self) -> Result<InitialState, PluginError>;

    /// Whether a checkpoint should be taken at this step. Called at every step boundary.
    fn checkpoint_due(&mut self, step: u64) -> bool;

    /// Makes a checkpoint durable. It is taken when this returns.
    ///
    /// # Errors
    /// Ends the training.
    fn save(&mut self, checkpoint: Checkpoint) -> Result<(), PluginError>;

    /// Whether the training should save its state and return. Called at every step boundary.
    fn stop_requested(&self) -> bool;

    /// A phase of the job's work begins. The name was checked.
    fn phase(&mut self, name: &str);

    /// Makes a model version of these variables, with this training's plugin as its code. The same again gives the same
    /// version. Returns its number.
    ///
    /// # Errors
    /// The plugin is told, and decides whether to go on.
    fn publish(&mut self, model: &str, variables: Vec<SavedVariable>, config: &str) -> Result<u64, PluginError>;

    /// A published version of a model: the newest whole one, or the one that is named.
    ///
    /// # Errors
    /// The plugin is told, and decides whether to go on.
    fn open_model(&mut self, model: &str, version: Option<u64>) -> Result<OpenedModel, PluginError>;

    /// Keeps a file with the job. The path was checked.
    ///
    /// # Errors
    /// The plugin is told, and decides whether to go on.
    fn write_output(&mut self, path: &str, data: &[u8]) -> Result<(), PluginError>;
}

/// What a training starts from.
#[derive(Clone, Debug)]
pub enum InitialState {
    /// Initial values.
    Nothing,
    /// Everything that a checkpoint holds.
    Checkpoint(Checkpoint),
    /// Weights of a model, for those variables that have their names; step 0.
    Weights(Vec<SavedVariable>),
}

/// A published version of a model, as a training reads it.
#[derive(Clone, Debug)]
pub struct OpenedModel {
    /// Its number.
    pub version: u64,
    /// Its parameters and statistics.
    pub variables: Vec<SavedVariable>,
    /// What its predictor is given.
    pub config: String,
}

/// Limits of one training.
#[derive(Clone, Copy, Debug)]
pub struct TrainLimits {
    /// Linear memory of the instance; none is [`MEMORY_BYTES_DEFAULT`].
    pub memory_bytes: Option<u64>,
    /// Wall time of the whole training; none is no limit.
    pub time: Option<Duration>,
    /// How long it may compute without asking anything of the host.
    pub watchdog_timeout: Duration,
}

impl Default for TrainLimits {
    fn default() -> TrainLimits {
        TrainLimits { memory_bytes: None, time: None, watchdog_timeout: WATCHDOG_TIMEOUT_DEFAULT }
    }
}

/// How a training ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainOutcome {
    /// The plugin returned because it was done.
    Finished,
    /// The plugin was told to stop; its last state is in a checkpoint.
    Stopped,
}

/// Runs a plugin's training to its end. Blocks; no runtime is needed on this thread.
///
/// `datasets` are what `dataset.open` finds, by mount; `meter` is charged with the training's device memory.
///
/// # Errors
/// `MissingExport` where the plugin has no trainer; `Incompatible`; `Trap`, `StackOverflow`, `Deadline`, `Hung`,
/// `MemoryLimit`, `TableLimit`, `HandleLimit` where its code fails; `Guest` where it answers an error; `Device` where the
/// device was lost; `Job` where the context failed.
pub fn train(
    host: &PluginEngine,
    plugin: &CompiledPlugin,
    device: Arc<dyn Backend>,
    meter: Meter,
    datasets: BTreeMap<String, Arc<ColumnarDataset>>,
    context: Box<dyn JobContext>,
    limits: TrainLimits,
) -> Result<TrainOutcome, PluginError> {
    let trainer = plugin.trainer_export()?;
    let memory_bytes_max = limits.memory_bytes.unwrap_or(MEMORY_BYTES_DEFAULT).min(MEMORY_BYTES_MAX);
    let role = TrainRole::new(context, datasets, plugin.digest().hex());
    let state = InstanceState::new(device, meter, memory_bytes_max, InstanceRole::Train(Box::new(role)));
    let mut store = state.into_store(host.engine());
    let clock = CallClock::new(limits.time, Some(limits.watchdog_timeout));
    let instance = plugin.instantiate(&mut store, clock)?;
    let guest = trainer.load(&mut store, &instance).map_err(|error| store.data_mut().trap_error("start", &error))?;
    store.data_mut().begin_call(clock);
    let answer = guest.call_train(&mut store);
    let state = store.data_mut();
    let dropped = state.logs.dropped();
    if dropped > 0 {
        state.write_log(LogLevel::Warn, &format!("{dropped} lines were dropped"));
    }
    if answer.is_ok()
        && let Err(fault) = state.log_skipped_steps()
    {
        tracing::debug!(?fault, "what was left out is not told");
    }
    let failure = match answer {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(state.guest_error("train", error)),
        Err(error) => Some(state.trap_error("train", &error)),
    };
    if matches!(&state.role, InstanceRole::Train(train) if train.stopped) {
        // However it left, its state was saved before it was told to.
        if let Some(error) = failure {
            state.write_log(LogLevel::Warn, &format!("told to stop, the plugin ended with an error: {error}"));
        }
        return Ok(TrainOutcome::Stopped);
    }
    failure.map_or(Ok(TrainOutcome::Finished), Err)
}
