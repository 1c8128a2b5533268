//! The job context of a measured training: it records reports with their times and discards outputs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use saggar_device::Meter;
use saggar_plugin::{BatchShards, InitialState, JobContext, LogLevel, OpenedModel, PluginError};
use saggar_store::{Checkpoint, ImageInputs, LoggedItem, LoggedKey, SavedVariable};

use super::{MeasureUntil, MeasurementConfig, TrainingMeasurement};
use crate::spec::{NonFinite, Precision};
use crate::worker::open_model;

/// Called with the steps done and the steps to do; returns whether to continue.
type ProgressCallback = Box<dyn FnMut(u64, u64) -> bool + Send>;

/// Waits until the device has finished its work. The loss of the device is reported by the next dispatch.
type DeviceSynchronize = Box<dyn Fn() + Send>;

pub(super) struct MeasuringContext {
    trial: MeasurementConfig,
    synchronize: DeviceSynchronize,
    meter: Meter,
    measured: Arc<Mutex<TrainingMeasurement>>,
    on_progress: ProgressCallback,
    began: Instant,
    /// Whether the training reports its steps explicitly.
    reports_progress: bool,
    /// When the first batch was used, or at least drawn.
    first_batch: Option<Duration>,
}

impl MeasuringContext {
    pub(super) fn new(
        trial: MeasurementConfig,
        wait: DeviceSynchronize,
        meter: Meter,
        measured: Arc<Mutex<TrainingMeasurement>>,
        go_on: ProgressCallback,
    ) -> MeasuringContext {
        let began = Instant::now();
        MeasuringContext {
            trial,
            synchronize: wait,
            meter,
            measured,
            on_progress: go_on,
            began,
            reports_progress: false,
            first_batch: None,
        }
    }

    fn lock_measurement(&self) -> MutexGuard<'_, TrainingMeasurement> {
        self.measured.lock()
    }

    /// Returns the elapsed time after the device has finished its work.
    fn synchronized_elapsed(&self) -> Duration {
        (self.synchronize)();
        self.began.elapsed()
    }

    /// Records that `step` steps are done, of `of` if known.
    fn record_step(&self, step: u64, of: Option<u64>) {
        let mut measured = self.lock_measurement();
        if measured.is_over {
            return;
        }
        measured.steps_to_do = of.filter(|&of| of > 0).or(measured.steps_to_do);
        let wanted = match self.trial.until {
            MeasureUntil::Steps(steps) => step >= steps,
            MeasureUntil::EnoughSamples => false,
        };
        let is_first = measured.timeline.steps() == 0;
        let is_last = measured.steps_to_do.is_some_and(|of| step >= of);
        // Reports can cover several steps; the first batch then gives the time of the first step.
        if let Some(at) = self.first_batch.filter(|_| is_first && step > 1) {
            measured.timeline.record_step(1, at);
        }
        let to_do = measured.steps_to_do.map(|steps| steps.saturating_sub(measured.start_step));
        let steps = match self.trial.until {
            MeasureUntil::EnoughSamples => to_do.unwrap_or(u64::MAX),
            MeasureUntil::Steps(steps) => steps.min(measured.steps_to_do.unwrap_or(u64::MAX)),
        };
        // The device can be some dispatches behind, and waiting for it takes time. It is therefore waited for only at
        // the marks that end a measurement.
        let now = self.began.elapsed();
        let ends = is_first || is_last || wanted || measured.timeline.reaches_enough_samples(step, now, steps);
        let now = if ends { self.synchronized_elapsed() } else { now };
        measured.timeline.record_step(step, now);
        let enough = match self.trial.until {
            MeasureUntil::EnoughSamples => measured.timeline.has_enough_samples(steps),
            MeasureUntil::Steps(_) => wanted,
        };
        if enough {
            measured.is_over = true;
            measured.busy = self.meter.busy_time();
        }
    }
}

impl JobContext for MeasuringContext {
    fn parameters(&self) -> String {
        serde_json::Value::Object(self.trial.spec.parameters.clone()).to_string()
    }

    fn seed(&self) -> u64 {
        self.trial.spec.seed
    }

    fn attempt(&self) -> u32 {
        1
    }

    fn shards(&self) -> BatchShards {
        BatchShards::for_rank(self.trial.spec.shards.unwrap_or(1), 0, 1)
    }

    fn skips_nonfinite(&self) -> bool {
        self.trial.spec.non_finite == NonFinite::Skip
    }

    fn is_mixed_precision(&self) -> bool {
        self.trial.spec.precision == Precision::Mixed
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        match level {
            LogLevel::Debug | LogLevel::Info => tracing::debug!("{line}"),
            LogLevel::Warn => tracing::warn!("{line}"),
            LogLevel::Error => tracing::error!("{line}"),
        }
    }

    fn metric(&mut self, _step: u64, _name: &str, _value: f64) {}

    fn log_item(&mut self, _key: LoggedKey, _item: LoggedItem) {}

    fn progress(&mut self, step: u64, of: u64) {
        self.reports_progress = true;
        self.record_step(step, Some(of));
        if !(self.on_progress)(step, of) {
            self.lock_measurement().is_over = true;
        }
    }

    fn items_drawn(&mut self, items: u64, _time: Duration) {
        let mut measured = self.lock_measurement();
        if items == 0 {
            if !measured.is_over {
                measured.timeline.record_epoch_end();
            }
            return;
        }
        measured.timeline.record_batch();
        drop(measured);
        if self.first_batch.is_none() {
            self.first_batch = Some(self.synchronized_elapsed());
        }
    }

    fn secret(&self, name: &str) -> Result<String, PluginError> {
        let value = self.trial.secrets.get(name).cloned();
        value.ok_or_else(|| PluginError::job(format!("secret `{name}` is not there where a training is measured")))
    }

    fn initial_state(&mut self) -> Result<InitialState, PluginError> {
        // The start does not change the speed; the number of steps from there is counted.
        Ok(InitialState::Nothing)
    }

    fn checkpoint_due(&mut self, step: u64) -> bool {
        if !self.reports_progress {
            self.record_step(step, None);
        }
        false
    }

    fn save(&mut self, _checkpoint: Checkpoint) -> Result<(), PluginError> {
        Ok(())
    }

    fn stop_requested(&self, _step: u64) -> bool {
        self.lock_measurement().is_over
    }

    fn phase(&mut self, _name: &str) {}

    fn publish(
        &mut self,
        _model: &str,
        _variables: Vec<SavedVariable>,
        _config: &str,
        _inputs: &ImageInputs,
    ) -> Result<u64, PluginError> {
        Ok(1)
    }

    fn open_model(&mut self, model: &str, version: Option<u64>) -> Result<OpenedModel, PluginError> {
        self.trial.rights.as_ref().map_or(Ok(()), |rights| rights.check_read_weights(model))?;
        match &self.trial.models {
            Some(models) => open_model(models, model, version),
            None => Err(PluginError::job(format!("model `{model}`: no models are here"))),
        }
    }

    fn write_output(&mut self, _path: &str, _data: &[u8]) -> Result<(), PluginError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
