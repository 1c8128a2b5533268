//! The job context of a replayed training: gives it what its job had, compares what it does, and discards what it
//! produces.

use std::sync::Arc;
use std::time::Duration;

use saggar_device::Backend;
use saggar_plugin::{
    BatchShards, DispatchObserver, InitialState, JobContext, LogLevel, OpenedModel, PluginError, ShardMean,
};
use saggar_store::{Checkpoint, ImageInputs, LoggedItem, LoggedKey, SavedVariable, digest_of_variables};

use crate::comparison::{CallComparison, ReplayRange};
use crate::dispatch_watch::DispatchWatch;
use crate::host_call::{HostCall, bits_of_number, digest_of, log_item_call};
use crate::recorded_calls::RecordedCalls;
use crate::recording_context::first_step;
use crate::report::ReplayReport;

/// What a replay looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayRequest {
    /// The steps.
    pub range: ReplayRange,
    /// The names of operands to print.
    pub print: Vec<String>,
}

/// A job context that replays a training.
pub struct ReplayContext {
    inner: Box<dyn JobContext>,
    comparison: Arc<CallComparison>,
    watch: Arc<DispatchWatch>,
    /// The number of the attempt that the training sees.
    attempt: u32,
}

/// The result of a replay, while it goes on.
#[derive(Clone, Debug)]
pub struct ReplayProgress {
    comparison: Arc<CallComparison>,
    print: Vec<String>,
    device: String,
}

impl ReplayContext {
    /// Returns a context that takes parameters, state, secrets and models from `inner`, and the progress of the replay.
    /// `inner` also gets log lines and series; it is not asked to store or to publish anything. `device` is the
    /// training's device.
    pub fn new(
        inner: Box<dyn JobContext>,
        device: Arc<dyn Backend>,
        request: ReplayRequest,
        recorded: RecordedCalls,
    ) -> (ReplayContext, ReplayProgress) {
        let info = device.info();
        let name = format!("{} {} {}", info.name, info.adapter, info.driver);
        let attempt = recorded.attempt().unwrap_or(1);
        let comparison = Arc::new(CallComparison::new(request.range, recorded));
        let watch = Arc::new(DispatchWatch::new(Arc::clone(&comparison), device, request.print.clone()));
        let progress = ReplayProgress { comparison: Arc::clone(&comparison), print: request.print, device: name };
        (ReplayContext { inner, comparison, watch, attempt }, progress)
    }
}

impl ReplayProgress {
    /// Returns whether the replay has reached its end: its last step, or an operand that is not finite.
    pub fn is_over(&self) -> bool {
        self.comparison.is_over()
    }

    /// Returns the report of what was replayed so far. `start_step` is the step of the state that the replay started
    /// from, and `failure` the error of the training, which is left out if the replay itself ended it.
    pub fn report(&self, start_step: u64, failure: Option<String>) -> ReplayReport {
        let (state, recorded) = (self.comparison.state(), self.comparison.recorded_calls());
        let is_printed = |name: &String| state.printed.iter().any(|printed| printed.operand == *name);
        let unknown_operands: Vec<String> = self.print.iter().filter(|name| !is_printed(name)).cloned().collect();
        ReplayReport {
            start_step,
            steps: state.steps,
            device: self.device.clone(),
            recorded_on: recorded.devices().to_vec(),
            is_recorded: !recorded.is_empty(),
            compared: state.compared,
            unrecorded: state.unrecorded,
            different: state.different,
            first_difference: state.first_difference,
            failure: failure.filter(|_| !self.is_over()),
            non_finite: state.non_finite,
            printed: state.printed,
            printed_left_out: state.printed_left_out,
            known_operands: if unknown_operands.is_empty() { Vec::new() } else { state.known_operands },
            unknown_operands,
        }
    }
}

impl JobContext for ReplayContext {
    fn parameters(&self) -> String {
        self.inner.parameters()
    }

    fn seed(&self) -> u64 {
        self.inner.seed()
    }

    fn attempt(&self) -> u32 {
        self.attempt
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
        let watch: Arc<dyn DispatchObserver> = Arc::clone(&self.watch) as _;
        Some(watch)
    }

    fn all_reduce(&mut self, own: Vec<Vec<u8>>, mean: ShardMean) -> Result<Vec<u8>, PluginError> {
        self.inner.all_reduce(own, mean)
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        self.inner.log(level, line);
    }

    fn metric(&mut self, step: u64, name: &str, value: f64) {
        self.comparison.compare(&HostCall::Metric { step, name: name.to_owned(), bits: bits_of_number(value) });
        // The guard of the inner context would end the training before the operand is found.
        if value.is_finite() {
            self.inner.metric(step, name, value);
        }
    }

    fn log_item(&mut self, key: LoggedKey, item: LoggedItem) {
        self.comparison.compare(&log_item_call(&key, &item));
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
        self.comparison.set_step(first_step(&state));
        Ok(state)
    }

    fn checkpoint_due(&mut self, _step: u64) -> bool {
        // Saving it compares the variables.
        self.comparison.has_checkpoint()
    }

    fn save(&mut self, checkpoint: Checkpoint) -> Result<(), PluginError> {
        if self.comparison.has_checkpoint() {
            let variables = digest_of_variables(&checkpoint.variables).hex();
            self.comparison.compare(&HostCall::Checkpoint { variables });
        }
        Ok(())
    }

    fn stop_requested(&self, step: u64) -> bool {
        self.comparison.set_step(step);
        self.comparison.is_over() || self.inner.stop_requested(step)
    }

    fn phase(&mut self, name: &str) {
        self.comparison.compare(&HostCall::Phase { name: name.to_owned() });
    }

    fn publish(
        &mut self,
        model: &str,
        variables: Vec<SavedVariable>,
        config: &str,
        _: &ImageInputs,
    ) -> Result<u64, PluginError> {
        let mut call = HostCall::Publish {
            model: model.to_owned(),
            version: 1,
            variables: digest_of_variables(&variables).hex(),
            config: digest_of(config.as_bytes()),
        };
        let published = match self.comparison.recorded(&call) {
            Some(HostCall::Publish { version, .. }) => version,
            Some(_) | None => 1,
        };
        if let HostCall::Publish { version, .. } = &mut call {
            *version = published;
        }
        self.comparison.compare(&call);
        Ok(published)
    }

    fn open_model(&mut self, model: &str, version: Option<u64>) -> Result<OpenedModel, PluginError> {
        let opened = self.inner.open_model(model, version)?;
        let variables = digest_of_variables(&opened.variables).hex();
        let call = HostCall::OpenModel { model: model.to_owned(), version: opened.version, variables };
        self.comparison.compare(&call);
        Ok(opened)
    }

    fn write_output(&mut self, path: &str, data: &[u8]) -> Result<(), PluginError> {
        self.comparison.compare(&HostCall::WriteOutput { path: path.to_owned(), content: digest_of(data) });
        Ok(())
    }
}
