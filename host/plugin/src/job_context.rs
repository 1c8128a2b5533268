//! The job around a training, as the trainings of this crate see it.

use std::sync::Arc;
use std::time::Duration;

use saggar_store::checkpoint::{Checkpoint, SavedVariable};
use saggar_store::{ImageInputs, LoggedItem, LoggedKey};

use crate::dispatch_observer::DispatchObserver;
use crate::error::PluginError;
use crate::shards::{BatchShards, ShardMean};

/// The severity of a plugin's log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Details for the plugin's author.
    Debug,
    /// Information for the user of the job.
    Info,
    /// A possible problem.
    Warn,
    /// A failure.
    Error,
}

impl LogLevel {
    /// Returns `debug`, `info`, `warn` or `error`.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        }
    }
}

/// The job around a training. Every method is called on the training thread, between steps, and can block it.
pub trait JobContext: Send {
    /// Returns the job's parameters, a JSON object.
    fn parameters(&self) -> String;

    /// Returns the job's seed.
    fn seed(&self) -> u64;

    /// Returns the number of this attempt, from 1.
    fn attempt(&self) -> u32;

    /// Returns how batches are divided for computing gradients. Constant during the job.
    fn shards(&self) -> BatchShards;

    /// Returns whether updates that would make variables infinite or NaN are skipped. Constant during the job.
    fn skips_nonfinite(&self) -> bool;

    /// Returns whether matrix products and convolutions of steps with gradients are computed in `float16` with a scaled
    /// loss. Constant during the job.
    fn is_mixed_precision(&self) -> bool;

    /// Returns the observer of the graphs that the training runs; `None` runs them without one. Constant during the job.
    fn dispatch_observer(&self) -> Option<Arc<dyn DispatchObserver>> {
        None
    }

    /// Returns the mean over all shards. `own` contains the parts of this process's shards in order; `mean` defines the
    /// format of a part and accumulates them. Called once per step if there is more than one shard, in all processes of
    /// the job.
    ///
    /// # Errors
    /// If another process has ended or is out of step; ends the training.
    fn all_reduce(&mut self, own: Vec<Vec<u8>>, mut mean: ShardMean) -> Result<Vec<u8>, PluginError> {
        own.iter().for_each(|part| mean.add(part));
        Ok(mean.finish())
    }

    /// Writes a line that the plugin logged, of at most [`crate::limits::LOG_LINE_BYTES_MAX`] bytes.
    fn log(&mut self, level: LogLevel, line: &str);

    /// Records a value of a named series. It can be infinite or NaN.
    fn metric(&mut self, step: u64, name: &str, value: f64);

    /// Records an image, a table or a histogram, replacing one with the same key. It was checked. Items beyond the job's
    /// limits, and items that cannot be stored, are dropped, and the job's log says so.
    fn log_item(&mut self, key: LoggedKey, item: LoggedItem);

    /// Records that `step` of `of` steps are done.
    fn progress(&mut self, step: u64, of: u64);

    /// Records that `items` more dataset items were drawn, which took `time` including their upload.
    fn items_drawn(&mut self, items: u64, time: Duration);

    /// Returns the value of a secret that was granted to the job.
    ///
    /// # Errors
    /// If the secret was not granted or does not exist.
    fn secret(&self, name: &str) -> Result<String, PluginError>;

    /// Returns the state that the training starts from.
    ///
    /// # Errors
    /// If a checkpoint possibly exists but cannot be reached: starting from the beginning would lose it.
    fn initial_state(&mut self) -> Result<InitialState, PluginError>;

    /// Returns whether a checkpoint should be taken at this step. Called at every step boundary.
    fn checkpoint_due(&mut self, step: u64) -> bool;

    /// Makes a checkpoint durable before it returns.
    ///
    /// # Errors
    /// Any error ends the training.
    fn save(&mut self, checkpoint: Checkpoint) -> Result<(), PluginError>;

    /// Returns whether the training should save its state at this step and return. Called at every step boundary.
    fn stop_requested(&self, step: u64) -> bool;

    /// Starts a phase of the job. The name was checked.
    fn phase(&mut self, name: &str);

    /// Publishes a model version with these variables, this training's plugin as its code, and the preprocessing of its
    /// image inputs. Returns its number.
    /// Publishing the same content again returns the same version.
    ///
    /// # Errors
    /// Passed to the plugin, which decides whether to continue.
    fn publish(
        &mut self,
        model: &str,
        variables: Vec<SavedVariable>,
        config: &str,
        inputs: &ImageInputs,
    ) -> Result<u64, PluginError>;

    /// Returns a published version of a model: `version`, or the newest complete one.
    ///
    /// # Errors
    /// Passed to the plugin, which decides whether to continue.
    fn open_model(&mut self, model: &str, version: Option<u64>) -> Result<OpenedModel, PluginError>;

    /// Stores a file with the job. The path was checked.
    ///
    /// # Errors
    /// Passed to the plugin, which decides whether to continue.
    fn write_output(&mut self, path: &str, data: &[u8]) -> Result<(), PluginError>;
}

/// The state that a training starts from.
#[derive(Clone, Debug)]
pub enum InitialState {
    /// The initial values of its variables.
    Nothing,
    /// The complete state in a checkpoint.
    Checkpoint(Checkpoint),
    /// Weights of a model, for the variables with the same names; step 0.
    Weights(Vec<SavedVariable>),
}

/// A published version of a model, as a training reads it.
#[derive(Clone, Debug)]
pub struct OpenedModel {
    /// Version number.
    pub version: u64,
    /// The version's parameters and statistics.
    pub variables: Vec<SavedVariable>,
    /// The configuration for its predictor.
    pub config: String,
}
