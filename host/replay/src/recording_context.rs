//! The job context of a recorded training: does what another context does, and records it.

use std::sync::Arc;
use std::time::Duration;

use saggar_device::Backend;
use saggar_plugin::{
    BatchShards, DispatchObserver, InitialState, JobContext, LogLevel, OpenedModel, PluginError, ShardMean,
};
use saggar_store::{Checkpoint, ImageInputs, LoggedItem, LoggedKey, SavedVariable, digest_of_variables};

use crate::host_call::{HostCall, bits_of_number, digest_of, log_item_call};
use crate::recorder::CallRecorder;
use crate::recording_observer::RecordingObserver;

/// A job context that records the calls of the training.
pub struct RecordingContext {
    inner: Box<dyn JobContext>,
    recorder: Arc<CallRecorder>,
    observer: Arc<RecordingObserver>,
}

impl RecordingContext {
    /// Returns a context that does what `inner` does and writes the calls to `recorder`. `device` is the training's
    /// device, whose tensors are read after every dispatch.
    pub fn new(inner: Box<dyn JobContext>, recorder: CallRecorder, device: Arc<dyn Backend>) -> RecordingContext {
        let recorder = Arc::new(recorder);
        let observer = Arc::new(RecordingObserver::new(Arc::clone(&recorder), device));
        RecordingContext { inner, recorder, observer }
    }
}

impl JobContext for RecordingContext {
    fn parameters(&self) -> String {
        self.inner.parameters()
    }

    fn seed(&self) -> u64 {
        self.inner.seed()
    }

    fn attempt(&self) -> u32 {
        self.inner.attempt()
    }

    fn shards(&self) -> BatchShards {
        self.inner.shards()
    }

    fn skips_nonfinite(&self) -> bool {
        self.inner.skips_nonfinite()
    }

    fn is_mixed_precision(&self) -> bool {
        self.inner.is_mixed_precision()
    }

    fn dispatch_observer(&self) -> Option<Arc<dyn DispatchObserver>> {
        let observer: Arc<dyn DispatchObserver> = Arc::clone(&self.observer) as _;
        Some(observer)
    }

    fn all_reduce(&mut self, own: Vec<Vec<u8>>, mean: ShardMean) -> Result<Vec<u8>, PluginError> {
        self.inner.all_reduce(own, mean)
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        self.inner.log(level, line);
    }

    fn metric(&mut self, step: u64, name: &str, value: f64) {
        self.recorder.record(HostCall::Metric { step, name: name.to_owned(), bits: bits_of_number(value) });
        self.inner.metric(step, name, value);
    }

    fn log_item(&mut self, key: LoggedKey, item: LoggedItem) {
        self.recorder.record(log_item_call(&key, &item));
        self.inner.log_item(key, item);
    }

    fn progress(&mut self, step: u64, of: u64) {
        self.inner.progress(step, of);
    }

    fn items_drawn(&mut self, items: u64, time: Duration) {
        self.inner.items_drawn(items, time);
    }

    fn secret(&self, name: &str) -> Result<String, PluginError> {
        self.inner.secret(name)
    }

    fn initial_state(&mut self) -> Result<InitialState, PluginError> {
        let state = self.inner.initial_state()?;
        self.recorder.set_step(first_step(&state));
        Ok(state)
    }

    fn checkpoint_due(&mut self, step: u64) -> bool {
        if let Some(problem) = self.recorder.take_problem() {
            self.inner.log(LogLevel::Warn, &problem);
        }
        self.inner.checkpoint_due(step)
    }

    fn save(&mut self, checkpoint: Checkpoint) -> Result<(), PluginError> {
        let variables = digest_of_variables(&checkpoint.variables).hex();
        self.recorder.record(HostCall::Checkpoint { variables });
        self.inner.save(checkpoint)
    }

    fn stop_requested(&self, step: u64) -> bool {
        self.recorder.set_step(step);
        self.inner.stop_requested(step)
    }

    fn phase(&mut self, name: &str) {
        self.recorder.record(HostCall::Phase { name: name.to_owned() });
        self.inner.phase(name);
    }

    fn publish(
        &mut self,
        model: &str,
        variables: Vec<SavedVariable>,
        config: &str,
        inputs: &ImageInputs,
    ) -> Result<u64, PluginError> {
        let (digest, config_digest) = (digest_of_variables(&variables).hex(), digest_of(config.as_bytes()));
        let version = self.inner.publish(model, variables, config, inputs)?;
        let call = HostCall::Publish { model: model.to_owned(), version, variables: digest, config: config_digest };
        self.recorder.record(call);
        Ok(version)
    }

    fn open_model(&mut self, model: &str, version: Option<u64>) -> Result<OpenedModel, PluginError> {
        let opened = self.inner.open_model(model, version)?;
        let variables = digest_of_variables(&opened.variables).hex();
        self.recorder.record(HostCall::OpenModel { model: model.to_owned(), version: opened.version, variables });
        Ok(opened)
    }

    fn write_output(&mut self, path: &str, data: &[u8]) -> Result<(), PluginError> {
        self.recorder.record(HostCall::WriteOutput { path: path.to_owned(), content: digest_of(data) });
        self.inner.write_output(path, data)
    }
}

/// Returns the step that a training with this state starts after.
pub(crate) fn first_step(state: &InitialState) -> u64 {
    match state {
        InitialState::Checkpoint(checkpoint) => checkpoint.step,
        InitialState::Nothing | InitialState::Weights(_) => 0,
    }
}
