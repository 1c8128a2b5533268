//! The attempt of a job that is measured: it trains until it is known how long the whole would take, and says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use saggar_device::{Backend, Meter};
use saggar_plugin::{Host, Outcome, Plugin, PluginError};
use saggar_store::{Dataset, Home, Models};

use super::{Attempt, Failure, JobRights};
use crate::measure::{Trial, Until, measure};
use crate::protocol::Event;
use crate::spec::ESTIMATE;

/// What the attempt has found for its training.
pub(super) struct Parts {
    pub(super) datasets: BTreeMap<String, Arc<Dataset>>,
    pub(super) secrets: BTreeMap<String, String>,
    pub(super) rights: JobRights,
    pub(super) began: Instant,
}

impl Attempt<'_> {
    /// Trains, and writes what the whole training would take as the job's only output.
    pub(super) fn measure(
        &self,
        host: &Host,
        plugin: &Plugin,
        home: &Home,
        device: &Arc<dyn Backend>,
        parts: Parts,
    ) -> Result<Outcome, Failure> {
        let Parts { datasets, secrets, rights, began } = parts;
        let spec = &self.start.spec;
        let meter = spec.gpu_memory_bytes.map_or_else(Meter::unlimited, Meter::new);
        let reporter = self.channel.report_usage(meter.clone(), Arc::default(), began, None);
        let models = Some(Models::new(self.models));
        let (spec, rights, until) = (spec.clone(), Some(rights), Until::Enough);
        let trial = Trial { spec, datasets, secrets, models, rights, until };
        let (channel, control) = (self.channel.clone(), Arc::clone(&self.control));
        let measured = measure(host, plugin, device, meter, trial, move |step, of| {
            channel.send(&Event::Progress { step, of });
            !control.stop.load(Ordering::Acquire)
        });
        reporter.finish();
        let measured = measured?;
        if self.control.stop.load(Ordering::Acquire) {
            return Ok(Outcome::Stopped);
        }
        let estimate = measured.steps_in_all().and_then(|steps| measured.timeline.estimate(steps, true));
        let unknown =
            || PluginError::job("the training does not say how many steps it has to do: `job.progress` tells it");
        let mut fields = estimate.ok_or_else(unknown)?.fields();
        fields["first_step_seconds"] = measured.timeline.first_step().unwrap_or_default().as_secs_f64().into();
        fields["device"] = device.info().name.clone().into();
        let text = format!("{fields:#}\n");
        home.write_output(&self.start.job, ESTIMATE, text.as_bytes())
            .map_err(|error| Failure::broken("BAD_HOME", error))?;
        Ok(Outcome::Finished)
    }
}
