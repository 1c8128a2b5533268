//! The attempt of a replay: repeats steps of another job, compares them with its recordings, and writes a report.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use saggar_device::Meter;
use saggar_plugin::{FailureReason, TrainLimits, TrainOutcome, train};
use saggar_replay::{RecordedCalls, ReplayContext, ReplayRange, ReplayReport, ReplayRequest};
use saggar_store::StateDir;

use super::usage_reporter::UsageReporter;
use super::{AttemptFailure, LoadedAttempt, WorkerAttempt};
use crate::limits::UNRECORDED_ATTEMPTS_MAX;
use crate::measure::start_step;
use crate::protocol::WorkerEvent;
use crate::spec::{REPLAY_FILE, ReplaySpec};

impl WorkerAttempt<'_> {
    /// Replays the steps, and writes the report as the job's only output.
    pub(super) fn run_replay(
        &self,
        replay: &ReplaySpec,
        loaded: LoadedAttempt,
    ) -> Result<TrainOutcome, AttemptFailure> {
        let spec = &self.start.spec;
        let job = self.start.jobs.get(&replay.job);
        let job = job.ok_or_else(|| AttemptFailure::permanent("NO_JOB", format!("{} is gone", replay.job)))?;
        let start_step = start_step(spec);
        let recorded = read_recordings(&loaded.home, job, start_step, replay.to_step)
            .map_err(|error| AttemptFailure::permanent("BAD_RECORDING", error))?;
        let context = self.worker_context(&loaded, job);
        let meter = spec.gpu_memory_bytes.map_or_else(Meter::unlimited, Meter::new);
        let LoadedAttempt { host, plugin, home, device, datasets, began, .. } = loaded;
        let counters = context.usage_counters();
        let reporter = UsageReporter::start(self.channel.clone(), meter.clone(), counters, began, None);
        let range = ReplayRange { from_step: replay.from_step, to_step: replay.to_step };
        let request = ReplayRequest { range, print: replay.print.clone() };
        let (context, progress) = ReplayContext::new(Box::new(context), Arc::clone(&device), request, recorded);
        let limits = TrainLimits { memory_bytes: spec.memory_bytes, ..TrainLimits::default() };
        let outcome = train(&host, &plugin, device, meter, datasets, Box::new(context), limits);
        reporter.finish();
        if self.control.stop.load(Ordering::Acquire) {
            return Ok(TrainOutcome::Stopped);
        }
        // An error of the plugin is a result: the replay reproduces it.
        let failure = match outcome {
            Err(error) if error.reason() == FailureReason::DeviceLost => return Err(error.into()),
            Err(error) => Some(error.to_string()),
            Ok(_) => None,
        };
        self.write_report(&home, &progress.report(start_step, failure))
    }

    fn write_report(&self, home: &StateDir, report: &ReplayReport) -> Result<TrainOutcome, AttemptFailure> {
        for line in report.lines() {
            self.channel.send(&WorkerEvent::Log { level: "info".to_owned(), line });
        }
        let bad_home = |error: &dyn std::fmt::Display| AttemptFailure::permanent("BAD_HOME", error);
        let text = serde_json::to_string_pretty(report).map_err(|error| bad_home(&error))?;
        home.job_files()
            .write_output(&self.start.job, REPLAY_FILE, format!("{text}\n").as_bytes())
            .map_err(|error| bad_home(&error))?;
        Ok(TrainOutcome::Finished)
    }
}

/// Returns what the attempts of a job recorded after the step `from`.
fn read_recordings(
    home: &StateDir,
    job: &str,
    from: u64,
    to: Option<u64>,
) -> Result<RecordedCalls, Box<dyn std::error::Error>> {
    let (mut recorded, mut missing, mut attempt) = (RecordedCalls::default(), 0, 0);
    while missing < UNRECORDED_ATTEMPTS_MAX {
        attempt += 1;
        let bytes = home.job_files().read_recording(job, attempt)?;
        missing = if bytes.is_empty() { missing + 1 } else { 0 };
        recorded
            .add_attempt(&String::from_utf8_lossy(&bytes), from, to)
            .map_err(|error| format!("attempt {attempt}: {error}"))?;
    }
    Ok(recorded)
}
