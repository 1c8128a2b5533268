//! A job for tests that keeps a training's reports and checkpoints in memory.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saggar_device::Backend;
use saggar_plugin::{BatchShards, InitialState, JobContext, LogLevel, OpenedModel, PluginError};
use saggar_store::checkpoint::{Checkpoint, SavedVariable};
use saggar_store::{ImageInputs, LoggedItem, LoggedKey};

/// Opens the CPU device.
pub(crate) fn cpu() -> Arc<dyn Backend> {
    saggar_cpu::open(Some(2)).unwrap()
}

/// The calls of a training to its job. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobRecording(Arc<Mutex<RecordedCalls>>);

/// The content of a [`JobRecording`].
#[derive(Debug, Default)]
pub(crate) struct RecordedCalls {
    pub(crate) lines: Vec<(LogLevel, String)>,
    pub(crate) metrics: Vec<(u64, String, f64)>,
    pub(crate) logged: Vec<(LoggedKey, LoggedItem)>,
    pub(crate) samples: u64,
    pub(crate) checkpoints: Vec<Checkpoint>,
    pub(crate) published: Vec<(String, Vec<SavedVariable>, String)>,
    pub(crate) phases: Vec<String>,
    pub(crate) outputs: Vec<(String, Vec<u8>)>,
}

impl JobRecording {
    /// Calls `look` with the recorded calls.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&mut RecordedCalls) -> R) -> R {
        look(&mut self.0.lock())
    }
}

/// A job that records all calls.
#[derive(Debug)]
pub(crate) struct RecordingJobContext {
    pub(crate) record: JobRecording,
    pub(crate) parameters: String,
    /// Interval of checkpoints, in steps.
    pub(crate) every: u64,
    /// The step at which the training is asked to stop.
    pub(crate) stop_at: u64,
    pub(crate) step: u64,
    pub(crate) is_mixed: bool,
    pub(crate) skips_nonfinite: bool,
    /// Shards of each batch, all computed in this process.
    pub(crate) shards: u32,
}

impl Default for RecordingJobContext {
    fn default() -> RecordingJobContext {
        RecordingJobContext {
            record: JobRecording::default(),
            parameters: "{}".to_owned(),
            every: u64::MAX,
            stop_at: u64::MAX,
            step: 0,
            is_mixed: false,
            skips_nonfinite: false,
            shards: 1,
        }
    }
}

impl JobContext for RecordingJobContext {
    fn parameters(&self) -> String {
        self.parameters.clone()
    }

    fn seed(&self) -> u64 {
        7
    }

    fn attempt(&self) -> u32 {
        1
    }

    fn shards(&self) -> BatchShards {
        BatchShards { count: self.shards, own: 0..self.shards }
    }

    fn skips_nonfinite(&self) -> bool {
        self.skips_nonfinite
    }

    fn is_mixed_precision(&self) -> bool {
        self.is_mixed
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        self.record.with(|calls| calls.lines.push((level, line.to_owned())));
    }

    fn metric(&mut self, step: u64, name: &str, value: f64) {
        self.record.with(|calls| calls.metrics.push((step, name.to_owned(), value)));
    }

    fn log_item(&mut self, key: LoggedKey, item: LoggedItem) {
        self.record.with(|calls| calls.logged.push((key, item)));
    }

    fn progress(&mut self, step: u64, _: u64) {
        self.step = step;
    }

    fn items_drawn(&mut self, items: u64, _: Duration) {
        self.record.with(|calls| calls.samples += items);
    }

    fn secret(&self, name: &str) -> Result<String, PluginError> {
        Err(PluginError::job(format!("secret `{name}` was not granted")))
    }

    fn initial_state(&mut self) -> Result<InitialState, PluginError> {
        let last = self.record.with(|calls| calls.checkpoints.last().cloned());
        Ok(last.map_or(InitialState::Nothing, InitialState::Checkpoint))
    }

    fn checkpoint_due(&mut self, step: u64) -> bool {
        step.is_multiple_of(self.every)
    }

    fn save(&mut self, checkpoint: Checkpoint) -> Result<(), PluginError> {
        self.record.with(|calls| calls.checkpoints.push(checkpoint));
        Ok(())
    }

    fn stop_requested(&self, _: u64) -> bool {
        self.step >= self.stop_at
    }

    fn publish(
        &mut self,
        model: &str,
        variables: Vec<SavedVariable>,
        config: &str,
        _: &ImageInputs,
    ) -> Result<u64, PluginError> {
        self.record.with(|calls| {
            calls.published.push((model.to_owned(), variables, config.to_owned()));
            Ok(calls.published.len() as u64)
        })
    }

    fn open_model(&mut self, model: &str, _: Option<u64>) -> Result<OpenedModel, PluginError> {
        self.record.with(|calls| match calls.published.iter().rposition(|(name, _, _)| name == model) {
            Some(at) => {
                let (_, variables, config) = calls.published[at].clone();
                Ok(OpenedModel { version: at as u64 + 1, variables, config })
            }
            None => Err(PluginError::job(format!("no model is called `{model}`"))),
        })
    }

    fn phase(&mut self, name: &str) {
        self.record.with(|calls| calls.phases.push(name.to_owned()));
    }

    fn write_output(&mut self, path: &str, data: &[u8]) -> Result<(), PluginError> {
        self.record.with(|calls| calls.outputs.push((path.to_owned(), data.to_vec())));
        Ok(())
    }
}
