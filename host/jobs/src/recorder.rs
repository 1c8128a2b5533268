//! Writes an attempt down while it runs: its log line by line, its series and usage in batches, its metrics at once.

use std::sync::Arc;

use saggar_store::records::{Attempt, Claim, JobState, Lease, MetricPoint, Reason, Records, Usage};

use crate::ending::Next;
use crate::error::JobError;
use crate::logs::LogWriter;
use crate::phases;
use crate::protocol::{self, Event};
use crate::scheduler::Shared;

/// Points of series that are held back at most before they are recorded.
const POINTS_HELD_MAX: usize = 512;

/// Records one attempt.
pub(crate) struct Recorder {
    shared: Arc<Shared>,
    lease: Lease,
    name: String,
    project: String,
    task: String,
    log: LogWriter,
    points: Vec<MetricPoint>,
    usage: Usage,
    reported: protocol::Usage,
    step: u64,
    target: u64,
    dirty: bool,
    resumed: bool,
    device: String,
    checkpoint_ms: u64,
    /// Why the attempt before this one ended, for the metric of resumes.
    cause: String,
}

impl Recorder {
    pub(crate) fn open(shared: Arc<Shared>, claim: &Claim) -> Result<Recorder, JobError> {
        let job = &claim.job;
        let log = LogWriter::open(&shared.jobs_dir, &job.id, claim.lease.attempt)?;
        let now_ms = shared.clock.now_ms();
        let families = &shared.metrics.families;
        let waited = now_ms.saturating_sub(job.created_ms.max(job.not_before_ms)) as f64 / 1000.0;
        families.queue_wait.with_label_values(&["default"]).observe(waited);
        if claim.lease.attempt == 1 {
            families.jobs_started.with_label_values(&[&job.project, &job.task]).inc();
        }
        Ok(Recorder {
            shared,
            lease: claim.lease.clone(),
            name: job.name.clone(),
            project: job.project.clone(),
            task: job.task.clone(),
            log,
            points: Vec::new(),
            usage: Usage { last_step: job.step, ..Usage::default() },
            reported: protocol::Usage::default(),
            step: job.step,
            target: job.steps_target,
            dirty: false,
            resumed: false,
            device: String::new(),
            checkpoint_ms: now_ms,
            cause: job.reason.code.clone(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Writes a line to the attempt's log.
    pub(crate) fn log(&mut self, line: &str) -> Result<(), JobError> {
        let now_ms = self.shared.clock.now_ms();
        self.log.line(i64::try_from(now_ms).unwrap_or(i64::MAX), line)?;
        self.shared.touch();
        Ok(())
    }

    /// Records what the worker said.
    pub(crate) async fn event(&mut self, event: Event) -> Result<(), JobError> {
        let now_ms = self.shared.clock.now_ms();
        match event {
            Event::Started { device, adapter, driver, exact_seconds, choice } => {
                self.started(device, &adapter, &driver, exact_seconds, &choice).await?;
            }
            Event::Resumed { step } => {
                self.usage.first_step = step;
                self.step = step;
                self.resumed = true;
                let labels = [self.project.as_str(), &self.task, &self.cause];
                self.shared.metrics.families.job_resumes.with_label_values(&labels).inc();
                self.shared.series(|series, families| series.progress(families, &self.name, step, self.target));
                self.log(&format!("resumed from checkpoint @{step}"))?;
            }
            Event::Log { level, line } => match level.as_str() {
                "info" => self.log(&line)?,
                _ => self.log(&format!("{level}: {line}"))?,
            },
            Event::Metric { step, name, value } => {
                let value = value.unwrap_or(f64::NAN);
                self.shared.series(|series, families| series.metric(families, &self.name, &name, value));
                self.points.push(MetricPoint { name, step, value, at_ms: now_ms });
                if self.points.len() >= POINTS_HELD_MAX {
                    self.flush().await?;
                }
            }
            Event::Progress { step, of } => {
                (self.step, self.target, self.dirty) = (step, of, true);
                self.usage.last_step = step;
                self.shared.series(|series, families| series.progress(families, &self.name, step, of));
            }
            Event::Usage(usage) => self.used(usage),
            Event::Checkpoint { step, bytes, seconds, digest } => {
                self.checkpoint_ms = now_ms;
                let families = &self.shared.metrics.families;
                families.checkpoint_duration.with_label_values(&["save"]).observe(seconds);
                families.checkpoint_bytes.with_label_values(&["save"]).observe(bytes as f64);
                let text = format!("checkpoint @{step} saved ({bytes} bytes, sha256 {digest})");
                self.note("CHECKPOINT_SAVED", text.clone()).await?;
                self.log(&text)?;
            }
            Event::CheckpointFailed { op, reason } => {
                self.shared.metrics.families.checkpoint_failures.with_label_values(&[op.as_str(), "error"]).inc();
                let text = format!("checkpoint not {}: {reason}", if op == "save" { "saved" } else { "used" });
                self.note("CHECKPOINT_FAILED", text.clone()).await?;
                self.log(&text)?;
            }
            Event::Phase { name } => {
                self.note(phases::EVENT, name.clone()).await?;
                self.log(&format!("phase {name}"))?;
            }
            Event::Published { model, version } => {
                let text = format!("published {model}@{version}");
                self.note("PUBLISHED", text.clone()).await?;
                self.log(&text)?;
            }
            Event::Finished { .. } | Event::Failed { .. } => {}
        }
        self.shared.touch();
        Ok(())
    }

    async fn started(
        &mut self,
        device: String,
        adapter: &str,
        driver: &str,
        exact: bool,
        choice: &str,
    ) -> Result<(), JobError> {
        self.shared.series(|series, families| series.begin(families, &self.name, &device, !exact));
        self.log(&format!("device {device}: {adapter} ({driver}); {choice}"))?;
        self.device.clone_from(&device);
        let now_ms = self.shared.clock.now_ms();
        let reason = Reason::default();
        self.write(move |records, lease| {
            records.set_device(lease, &device)?;
            records.set_state(lease, JobState::Running, &reason, now_ms)
        })
        .await
    }

    fn used(&mut self, now: protocol::Usage) {
        let before = std::mem::replace(&mut self.reported, now);
        self.usage.wall_seconds = now.wall_seconds;
        self.usage.gpu_seconds = now.gpu_seconds;
        self.usage.peak_bytes = now.gpu_bytes_peak;
        self.usage.samples = now.samples;
        self.dirty = true;
        let gpu_seconds = now.gpu_seconds - before.gpu_seconds;
        let wall_seconds = now.wall_seconds - before.wall_seconds;
        let samples = now.samples.saturating_sub(before.samples);
        let age = self.shared.clock.now_ms().saturating_sub(self.checkpoint_ms) as f64 / 1000.0;
        self.shared.series(|series, families| {
            series.usage(families, &self.name, gpu_seconds, wall_seconds, now.gpu_bytes);
            series.samples(families, &self.name, samples, samples as f64 / wall_seconds.max(1e-9));
            series.checkpoint_age(families, &self.name, age);
        });
        let families = &self.shared.metrics.families;
        let device = [self.device.as_str()];
        families.gpu_busy_seconds.with_label_values(&device).inc_by(gpu_seconds.max(0.0));
        let dispatches = now.dispatches.saturating_sub(before.dispatches);
        families.gpu_dispatches.with_label_values(&device).inc_by(dispatches as f64);
        let submissions = now.submissions.saturating_sub(before.submissions);
        families.gpu_submissions.with_label_values(&device).inc_by(submissions as f64);
    }

    /// Records what is held back: points, steps and usage.
    pub(crate) async fn flush(&mut self) -> Result<(), JobError> {
        let points = std::mem::take(&mut self.points);
        if points.is_empty() && !self.dirty {
            return Ok(());
        }
        self.dirty = false;
        let (step, target, usage) = (self.step, self.target, self.usage.clone());
        self.write(move |records, lease| {
            if !points.is_empty() {
                records.record_metrics(lease, &points)?;
            }
            records.progress(lease, step, target, &usage).map(drop)
        })
        .await
    }

    /// Records that the attempt was told to stop.
    pub(crate) async fn stopping(&mut self) -> Result<(), JobError> {
        let now_ms = self.shared.clock.now_ms();
        let reason = Reason::new("STOP_REQUESTED", "saving its state");
        self.write(move |records, lease| records.set_state(lease, JobState::Stopping, &reason, now_ms)).await
    }

    /// Whether somebody asked the job to stop.
    pub(crate) async fn stop_asked(&self) -> Result<Option<Reason>, JobError> {
        let id = self.lease.job.clone();
        self.shared.records(move |records| records.get(&id).map(|job| job.stop)).await
    }

    /// Seconds that earlier attempts ran.
    pub(crate) async fn wall_seconds_before(&self) -> Result<f64, JobError> {
        let attempts = self.attempts().await?;
        Ok(attempts.iter().map(|attempt| attempt.usage.wall_seconds).sum())
    }

    /// Earlier attempts that ended because the server did: they do not count against the job's retries.
    pub(crate) async fn shutdowns_before(&self) -> Result<u32, JobError> {
        let attempts = self.attempts().await?;
        let ours = |attempt: &&Attempt| matches!(attempt.reason.code.as_str(), "HOST_SHUTDOWN" | "HOST_RESTART");
        Ok(u32::try_from(attempts.iter().filter(ours).count()).unwrap_or(u32::MAX))
    }

    async fn attempts(&self) -> Result<Vec<Attempt>, JobError> {
        let id = self.lease.job.clone();
        self.shared.records(move |records| records.attempts(&id)).await
    }

    /// Ends the attempt and does with the job what was decided.
    pub(crate) async fn conclude(mut self, next: Next) -> Result<(), JobError> {
        self.flush().await?;
        let (state, reason, again) = match next {
            Next::Again(reason) => (JobState::Queued, reason, true),
            Next::Over(state, reason) => (state, reason, false),
        };
        let families = &self.shared.metrics.families;
        let code = if reason.code.is_empty() { state.name() } else { &reason.code };
        families.job_attempts.with_label_values(&[&self.project, &self.task, &code.to_owned()]).inc();
        if !again {
            families.jobs_finished.with_label_values(&[&self.project, &self.task, &state.name().to_owned()]).inc();
        }
        let line = match (again, reason.sentence.is_empty()) {
            (true, _) => format!("attempt {} ended: {}; trying again", self.lease.attempt, reason.sentence),
            (false, true) => format!("job {} {state}", self.name),
            (false, false) => format!("job {} {state}: {}", self.name, reason.sentence),
        };
        self.log(&line)?;
        let now_ms = self.shared.clock.now_ms();
        self.log.finish(i64::try_from(now_ms).unwrap_or(i64::MAX))?;
        tracing::info!(job = %self.name, attempt = self.lease.attempt, %state, reason = %reason.code, "attempt ended");
        let usage = self.usage.clone();
        self.write(move |records, lease| {
            records.finish_attempt(lease, state, &reason, &usage, now_ms)?;
            if again {
                records.requeue(lease, &reason, now_ms, now_ms).map(drop)
            } else {
                records.finish_job(lease, state, &reason, now_ms).map(drop)
            }
        })
        .await?;
        if !again {
            self.shared.forget_series_later(self.name.clone());
        }
        Ok(())
    }

    async fn note(&self, kind: &'static str, text: String) -> Result<(), JobError> {
        let now_ms = self.shared.clock.now_ms();
        self.write(move |records, lease| records.record_event(&lease.job, kind, &text, now_ms)).await
    }

    async fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce(&dyn Records, &Lease) -> Result<T, saggar_store::error::RecordError> + Send + 'static,
    ) -> Result<T, JobError> {
        let lease = self.lease.clone();
        self.shared.records(move |records| write(records, &lease)).await
    }
}
