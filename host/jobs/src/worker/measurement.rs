//! The attempt of a measuring job: trains until the time of the whole training can be estimated, and writes the
//! estimate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use saggar_device::{Backend, Meter};
use saggar_plugin::{CompiledPlugin, PluginEngine, PluginError, TrainOutcome};
use saggar_store::{ColumnarDataset, ModelRegistry, StateDir};

use super::usage_reporter::UsageReporter;
use super::{AttemptFailure, JobRights, WorkerAttempt};
use crate::measure::{MeasureUntil, MeasurementConfig, measure_training};
use crate::protocol::WorkerEvent;
use crate::spec::ESTIMATE_FILE;

/// The inputs of a measured training.
pub(super) struct MeasurementParts {
    pub(super) datasets: BTreeMap<String, Arc<ColumnarDataset>>,
    pub(super) secrets: BTreeMap<String, String>,
    pub(super) rights: JobRights,
    pub(super) began: Instant,
}

impl WorkerAttempt<'_> {
    /// Trains, and writes the estimate of the whole training as the job's only output.
    pub(super) fn run_measurement(
        &self,
        host: &PluginEngine,
        plugin: &CompiledPlugin,
        home: &StateDir,
        device: &Arc<dyn Backend>,
        parts: MeasurementParts,
    ) -> Result<TrainOutcome, AttemptFailure> {
        let MeasurementParts { datasets, secrets, rights, began } = parts;
        let spec = &self.start.spec;
        let meter = spec.gpu_memory_bytes.map_or_else(Meter::unlimited, Meter::new);
        let reporter = UsageReporter::start(self.channel.clone(), meter.clone(), Arc::default(), began, None);
        let models = Some(ModelRegistry::of_home(home, &self.locations.models));
        let (spec, rights, until) = (spec.clone(), Some(rights), MeasureUntil::EnoughSamples);
        let trial = MeasurementConfig { spec, datasets, secrets, models, rights, until };
        let (channel, control) = (self.channel.clone(), Arc::clone(&self.control));
        let measured = measure_training(host, plugin, device, meter, trial, move |step, of| {
            channel.send(&WorkerEvent::Progress { step, of });
            !control.stop.load(Ordering::Acquire)
        });
        reporter.finish();
        let measured = measured?;
        if self.control.stop.load(Ordering::Acquire) {
            return Ok(TrainOutcome::Stopped);
        }
        let estimate = measured.total_steps().and_then(|steps| measured.timeline.estimate(steps, true));
        let unknown =
            || PluginError::job("the training does not report its number of steps: it must call `job.progress`");
        let mut fields = estimate.ok_or_else(unknown)?.to_json();
        fields["first_step_seconds"] = measured.timeline.first_step_time().unwrap_or_default().as_secs_f64().into();
        fields["device"] = device.info().name.clone().into();
        let text = format!("{fields:#}\n");
        home.job_files()
            .write_output(&self.start.job, ESTIMATE_FILE, text.as_bytes())
            .map_err(|error| AttemptFailure::permanent("BAD_HOME", error))?;
        Ok(TrainOutcome::Finished)
    }
}
