//! The job that a measured training sees: its reports are put down with their times, and what it makes is forgotten.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use saggar_device::Meter;
use saggar_plugin::{Beginning, JobContext, LogLevel, OpenedModel, PluginError, Shards};
use saggar_store::{Checkpoint, SavedVariable};

use super::{Measured, Trial, Until};
use crate::spec::{NonFinite, Precision};
use crate::worker::open_model;

/// Is told the steps done, and those to do; says whether to go on.
type GoOn = Box<dyn FnMut(u64, u64) -> bool + Send>;

/// Waits until the device has done what it was given. A lost device says so at the next dispatch.
type Wait = Box<dyn Fn() + Send>;

pub(super) struct Measuring {
    trial: Trial,
    wait: Wait,
    meter: Meter,
    measured: Arc<Mutex<Measured>>,
    go_on: GoOn,
    began: Instant,
    /// Whether the training says by itself how many steps it has done.
    reports: bool,
    /// When its first batch was used, or at least drawn.
    first_batch: Option<Duration>,
}

impl Measuring {
    pub(super) fn new(
        trial: Trial,
        wait: Wait,
        meter: Meter,
        measured: Arc<Mutex<Measured>>,
        go_on: GoOn,
    ) -> Measuring {
        let began = Instant::now();
        Measuring { trial, wait, meter, measured, go_on, began, reports: false, first_batch: None }
    }

    fn measured(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time when everything is done that the device was given.
    fn now(&self) -> Duration {
        (self.wait)();
        self.began.elapsed()
    }

    /// So many steps are done, of as many where that is known.
    fn mark(&self, step: u64, of: Option<u64>) {
        let mut measured = self.measured();
        if measured.is_over {
            return;
        }
        measured.steps_to_do = of.filter(|&of| of > 0).or(measured.steps_to_do);
        let wanted = match self.trial.until {
            Until::Steps(steps) => step >= steps,
            Until::Enough => false,
        };
        let is_first = measured.timeline.steps() == 0;
        let is_last = measured.steps_to_do.is_some_and(|of| step >= of);
        // Reports may come every so many steps; the first batch is the first step.
        if let Some(at) = self.first_batch.filter(|_| is_first && step > 1) {
            measured.timeline.step(1, at);
        }
        let to_do = measured.steps_to_do.map(|steps| steps.saturating_sub(measured.begins_at));
        let steps = match self.trial.until {
            Until::Enough => to_do.unwrap_or(u64::MAX),
            Until::Steps(steps) => steps.min(measured.steps_to_do.unwrap_or(u64::MAX)),
        };
        // The device may be some dispatches behind, and waiting for it costs time of its own: it is waited for at the marks
        // that figures end with.
        let now = self.began.elapsed();
        let ends = is_first || is_last || wanted || measured.timeline.begins_to_suffice(step, now, steps);
        let now = if ends { self.now() } else { now };
        measured.timeline.step(step, now);
        let enough = match self.trial.until {
            Until::Enough => measured.timeline.suffices(steps),
            Until::Steps(_) => wanted,
        };
        if enough {
            measured.is_over = true;
            measured.busy = self.meter.busy_time();
        }
    }
}

impl JobContext for Measuring {
    fn parameters(&self) -> String {
        serde_json::Value::Object(self.trial.spec.parameters.clone()).to_string()
    }

    fn seed(&self) -> u64 {
        self.trial.spec.seed
    }

    fn attempt(&self) -> u32 {
        1
    }

    fn shards(&self) -> Shards {
        Shards::of_rank(self.trial.spec.shards.unwrap_or(1), 0, 1)
    }

    fn leaves_out(&self) -> bool {
        self.trial.spec.non_finite == NonFinite::Skip
    }

    fn is_mixed(&self) -> bool {
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

    fn progress(&mut self, step: u64, of: u64) {
        self.reports = true;
        self.mark(step, Some(of));
        if !(self.go_on)(step, of) {
            self.measured().is_over = true;
        }
    }

    fn drawn(&mut self, items: u64, _time: Duration) {
        let mut measured = self.measured();
        if items == 0 {
            if !measured.is_over {
                measured.timeline.epoch_ended();
            }
            return;
        }
        measured.timeline.drawn();
        drop(measured);
        if self.first_batch.is_none() {
            self.first_batch = Some(self.now());
        }
    }

    fn secret(&self, name: &str) -> Result<String, PluginError> {
        let value = self.trial.secrets.get(name).cloned();
        value.ok_or_else(|| PluginError::job(format!("secret `{name}` is not there where a training is measured")))
    }

    fn restore(&mut self) -> Result<Beginning, PluginError> {
        // From where it starts changes nothing about its speed; how many steps there are from there is counted.
        Ok(Beginning::Nothing)
    }

    fn checkpoint_due(&mut self, step: u64) -> bool {
        if !self.reports {
            self.mark(step, None);
        }
        false
    }

    fn save(&mut self, _checkpoint: Checkpoint) -> Result<(), PluginError> {
        Ok(())
    }

    fn stop_requested(&self) -> bool {
        self.measured().is_over
    }

    fn phase(&mut self, _name: &str) {}

    fn publish(&mut self, _model: &str, _variables: Vec<SavedVariable>, _config: &str) -> Result<u64, PluginError> {
        Ok(1)
    }

    fn open_model(&mut self, model: &str, version: Option<u64>) -> Result<OpenedModel, PluginError> {
        self.trial.rights.as_ref().map_or(Ok(()), |rights| rights.read_weights(model))?;
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
