//! Records a running attempt: its log line by line, its series and usage in batches, its metrics immediately.

mod history;
mod lease_writes;
mod points;

use std::sync::Arc;
use std::time::Instant;

use saggar_clock::UnixMillis;
use saggar_store::error::StoreError;
use saggar_store::records::{
    AttemptUsage, ClaimedJob, JobLease, JobRecords, JobState, MetricPoint, PAUSED, PausePoint, StateReason,
};
use saggar_store::{AccessAction, AccessRights};

use crate::effects::JobEffect;
use crate::error::JobError;
use crate::logs::LogWriter;
use crate::notebooks::NotebookAddress;
use crate::outcome::RetryDecision;
use crate::phases;
use crate::protocol::{self, WorkerEvent};
use crate::shared::SharedState;
use crate::spec::RetryCause;
use crate::step_outputs;
use points::record_points;

/// Maximum number of buffered series points.
const POINTS_BUFFERED_MAX: usize = 512;

/// Approximate bytes of a point in the records.
const POINT_BYTES: u64 = 100;

/// The kind of the event that extends a job's running time.
const EXTENDED_EVENT: &str = "EXTENDED";

/// A recorder of one attempt.
pub(crate) struct AttemptRecorder {
    shared: Arc<SharedState>,
    lease: JobLease,
    name: String,
    project: String,
    rights: AccessRights,
    task: String,
    log: LogWriter,
    /// Log lines that could not be written since the last successful write, and the reason.
    lines_lost: u64,
    lost_reason: String,
    points: Vec<MetricPoint>,
    usage: AttemptUsage,
    began: Instant,
    reported: protocol::WorkerUsage,
    step: u64,
    target: u64,
    /// Whether the first step of this attempt is known: it resumed, or did its first step.
    start_step_is_known: bool,
    dirty: bool,
    /// Whether the log already says that values of some series are dropped.
    series_warning_logged: bool,
    /// Whether the storage quota is exhausted; log lines are then lost too.
    is_storage_full: bool,
    device: String,
    checkpoint_ms: u64,
    /// Where the job was to pause when the attempt began.
    pause: Option<PausePoint>,
    /// The cause that ended the previous attempt, for the metric of resumes.
    previous_cause: String,
}

impl AttemptRecorder {
    pub(crate) fn open(shared: Arc<SharedState>, claim: &ClaimedJob) -> Result<AttemptRecorder, JobError> {
        let job = &claim.job;
        let log = LogWriter::open_leased(&*shared.job_files, &claim.lease)?;
        let now_ms = shared.clock.now_ms();
        let families = &shared.metrics.families;
        let waited = now_ms.saturating_sub(job.created_ms.max(job.not_before_ms)) as f64 / 1000.0;
        families.queue_wait.with_label_values(&[&job.demand.queue]).observe(waited);
        if claim.lease.attempt == 1 {
            families.jobs_started.with_label_values(&[&job.project, &job.task]).inc();
        }
        Ok(AttemptRecorder {
            shared,
            lease: claim.lease.clone(),
            name: job.name.clone(),
            project: job.project.clone(),
            rights: job.rights.clone(),
            task: job.task.clone(),
            log,
            lines_lost: 0,
            lost_reason: String::new(),
            points: Vec::new(),
            // An attempt that ends before it starts its work did no step, and undid none.
            usage: AttemptUsage { first_step: job.step, last_step: job.step, ..AttemptUsage::default() },
            began: Instant::now(),
            reported: protocol::WorkerUsage::default(),
            step: job.step,
            target: job.steps_target,
            start_step_is_known: false,
            dirty: false,
            series_warning_logged: false,
            is_storage_full: false,
            device: String::new(),
            checkpoint_ms: now_ms,
            pause: job.pause.clone(),
            previous_cause: String::new(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the device seconds that the attempt has used.
    pub(crate) fn device_seconds(&self) -> f64 {
        self.usage.gpu_seconds
    }

    /// Writes a line to the attempt's log. A write error, such as a full disk, does not end the training: the log later
    /// reports how many lines are missing.
    pub(crate) fn log(&mut self, line: &str) {
        let now_ms = self.shared.clock.now_ms();
        let at_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
        if self.is_storage_full {
            self.lines_lost += 1;
            "the server's storage quota is used up".clone_into(&mut self.lost_reason);
            return self.shared.notify_change();
        }
        let mut write = || {
            if self.lines_lost > 0 {
                let note = format!("{} lines before this one could not be written", self.lines_lost);
                self.log.write_line(at_ms, &note)?;
                self.lines_lost = 0;
            }
            self.log.write_line(at_ms, line)
        };
        if let Err(error) = write() {
            if self.lines_lost == 0 {
                tracing::error!(job = %self.name, %error, "the job's log cannot be written");
            }
            self.lines_lost += 1;
            self.lost_reason = error.to_string();
        }
        self.shared.notify_change();
    }

    /// Records that the attempt saved its state at `step` to pause.
    pub(crate) fn set_paused_step(&mut self, step: u64) {
        if !self.start_step_is_known {
            // It trained nothing: an earlier attempt had saved this state.
            (self.usage.first_step, self.start_step_is_known) = (step, true);
        }
        (self.step, self.usage.last_step, self.dirty) = (step, step, true);
    }

    /// Records an event of the worker.
    pub(crate) async fn record_event(&mut self, event: WorkerEvent) -> Result<(), JobError> {
        let now_ms = self.shared.clock.now_ms();
        match event {
            WorkerEvent::Started { device, adapter, driver, exact_seconds, choice } => {
                self.record_start(device, &adapter, &driver, exact_seconds, &choice).await?;
            }
            WorkerEvent::Resumed { step } => self.record_resume(step),
            WorkerEvent::Log { level, line } => match level.as_str() {
                "info" => self.log(&line),
                _ => self.log(&format!("{level}: {line}")),
            },
            WorkerEvent::Metric { step, name, value } => {
                let value = value.unwrap_or(f64::NAN);
                self.shared.with_series(|series, families| series.set_metric(families, &self.name, &name, value));
                // A pause that waits for this value must not wait again if the server is killed.
                let awaits =
                    |point: &PausePoint| point.metric.as_ref() == Some(&name) && point.is_reached(step, self.target);
                let is_awaited = self.pause.as_ref().is_some_and(awaits);
                self.points.push(MetricPoint { name, step, value, at_ms: now_ms });
                if self.points.len() >= POINTS_BUFFERED_MAX || is_awaited {
                    self.flush().await?;
                }
            }
            WorkerEvent::Progress { step, of } => self.record_progress(step, of),
            WorkerEvent::Usage(usage) => self.record_usage(usage),
            WorkerEvent::Checkpoint { step, bytes, seconds, digest } => {
                self.checkpoint_ms = now_ms;
                let families = &self.shared.metrics.families;
                families.checkpoint_duration.with_label_values(&["save"]).observe(seconds);
                families.checkpoint_bytes.with_label_values(&["save"]).observe(bytes as f64);
                let text = format!("checkpoint @{step} saved ({bytes} bytes, sha256 {digest})");
                self.record_note("CHECKPOINT_SAVED", text.clone()).await?;
                self.log(&text);
            }
            WorkerEvent::CheckpointFailed { op, reason } => self.record_failed_checkpoint(&op, &reason).await?,
            WorkerEvent::RanksAwaited { point } => self.record_meeting_point(point).await?,
            WorkerEvent::AllReduced { seconds } => {
                let histogram = self.shared.metrics.families.allreduce_duration.with_label_values(&[] as &[&str]);
                seconds.into_iter().for_each(|seconds| histogram.observe(seconds));
            }
            WorkerEvent::Phase { name } => {
                self.record_note(phases::PHASE_EVENT, name.clone()).await?;
                self.log(&format!("phase {name}"));
            }
            WorkerEvent::StepOutput { name, kind, value } => {
                let text = step_outputs::event_text(&name, &kind, &value);
                self.log(&format!("output {text}"));
                self.record_note(step_outputs::STEP_OUTPUT_EVENT, text).await?;
            }
            WorkerEvent::Published { model, version } => self.record_publication(&model, version).await?,
            WorkerEvent::PublicationRefused { model, reason } => {
                self.record_refused_publication(&model, reason).await?
            }
            WorkerEvent::NotebookReady { socket, token } => {
                self.shared.notebooks.add(&self.name, NotebookAddress { socket, token });
                self.log(&format!("the notebook is ready; `saggar notebook {}` prints its address", self.name));
            }
            WorkerEvent::Alive { .. }
            | WorkerEvent::PermissionRequested { .. }
            | WorkerEvent::NotebookIdle { .. }
            | WorkerEvent::Finished { .. }
            | WorkerEvent::Paused { .. }
            | WorkerEvent::Failed { .. } => {}
        }
        self.shared.notify_change();
        Ok(())
    }

    async fn record_failed_checkpoint(&mut self, op: &str, reason: &str) -> Result<(), JobError> {
        self.shared.metrics.families.checkpoint_failures.with_label_values(&[op, "error"]).inc();
        let text = format!("checkpoint not {}: {reason}", if op == "save" { "saved" } else { "used" });
        self.record_note("CHECKPOINT_FAILED", text.clone()).await?;
        self.log(&text);
        Ok(())
    }

    fn record_resume(&mut self, step: u64) {
        (self.usage.first_step, self.usage.last_step) = (step, step);
        (self.step, self.start_step_is_known, self.dirty) = (step, true, true);
        let labels = [self.project.as_str(), &self.task, &self.previous_cause];
        self.shared.metrics.families.job_resumes.with_label_values(&labels).inc();
        self.shared.with_series(|series, families| series.set_progress(families, &self.name, step, self.target));
        self.log(&format!("resumed from checkpoint @{step}"));
    }

    fn record_progress(&mut self, step: u64, of: u64) {
        if step > self.step {
            self.shared.record_progress(&self.lease.job);
        }
        if !self.start_step_is_known {
            // There was no checkpoint to resume from.
            (self.usage.first_step, self.start_step_is_known) = (0, true);
        }
        (self.step, self.target, self.dirty) = (step, of, true);
        self.usage.last_step = step;
        self.shared.with_series(|series, families| series.set_progress(families, &self.name, step, of));
    }

    async fn record_publication(&mut self, model: &str, version: u64) -> Result<(), JobError> {
        self.confirm_publication(model, version).await?;
        let text = format!("published {model}@{version}");
        self.record_note("PUBLISHED", text.clone()).await?;
        self.log(&text);
        for note in self.shared.publication_notes(model, version) {
            self.log(&note);
            self.record_note("PUBLICATION_NOTE", note).await?;
        }
        self.log_publication(model, format!("version {version} by job {}", self.name), true);
        Ok(())
    }

    async fn record_refused_publication(&mut self, model: &str, reason: String) -> Result<(), JobError> {
        self.log(&format!("not published: {reason}"));
        self.log_publication(model, format!("by job {}: {reason}", self.name), false);
        self.record_note("PUBLICATION_REFUSED", reason).await
    }

    /// Records a publication, or its refusal, in the effect log.
    fn log_publication(&self, model: &str, detail: String, is_done: bool) {
        let (thing, rights, project) = (model.to_owned(), self.rights.clone(), self.project.clone());
        self.shared.log_effect(&JobEffect {
            effect: AccessAction::PublishModel,
            thing,
            rights,
            project,
            detail,
            is_done,
        });
    }

    async fn record_start(
        &mut self,
        device: String,
        adapter: &str,
        driver: &str,
        exact: bool,
        choice: &str,
    ) -> Result<(), JobError> {
        self.shared.with_series(|series, families| series.begin_job(families, &self.name, &device, !exact));
        self.log(&format!("device {device}: {adapter} ({driver}); {choice}"));
        self.device.clone_from(&device);
        self.shared.record_progress(&self.lease.job);
        let now_ms = self.shared.clock.now_ms();
        let reason = StateReason::default();
        self.with_lease(move |records, lease| {
            records.set_device(lease, &device, exact)?;
            records.set_state(lease, JobState::Running, &reason, now_ms)
        })
        .await
    }

    fn record_usage(&mut self, now: protocol::WorkerUsage) {
        // A worker's time begins when its process is requested, and ends when the process is gone.
        let now = protocol::WorkerUsage { wall_seconds: self.began.elapsed().as_secs_f64(), ..now };
        let before = std::mem::replace(&mut self.reported, now);
        self.usage.wall_seconds = now.wall_seconds;
        self.usage.gpu_seconds = now.gpu_seconds;
        self.usage.peak_bytes = now.gpu_bytes_peak;
        self.usage.samples = now.samples;
        self.usage.data_seconds = now.data_seconds;
        self.usage.all_reduce_seconds = now.all_reduce_seconds;
        self.usage.checkpoint_seconds = now.checkpoint_seconds;
        self.dirty = true;
        let gpu_seconds = now.gpu_seconds - before.gpu_seconds;
        let wall_seconds = now.wall_seconds - before.wall_seconds;
        let samples = now.samples.saturating_sub(before.samples);
        let age = self.shared.clock.now_ms().saturating_sub(self.checkpoint_ms) as f64 / 1000.0;
        self.shared.with_series(|series, families| {
            series.add_usage(families, &self.name, gpu_seconds, wall_seconds, now.gpu_bytes);
            series.add_samples(families, &self.name, samples, samples as f64 / wall_seconds.max(1e-9));
            series.set_checkpoint_age(families, &self.name, age);
        });
        let families = &self.shared.metrics.families;
        let device = [self.device.as_str()];
        families.device_busy_seconds.with_label_values(&device).inc_by(gpu_seconds.max(0.0));
        let dispatches = now.dispatches.saturating_sub(before.dispatches);
        families.device_dispatches.with_label_values(&device).inc_by(dispatches as f64);
        let submissions = now.submissions.saturating_sub(before.submissions);
        families.device_submissions.with_label_values(&device).inc_by(submissions as f64);
    }

    /// Writes buffered points, steps and usage to the records.
    pub(crate) async fn flush(&mut self) -> Result<(), JobError> {
        // Lines that cannot be shown now are shown by a later flush.
        let _ = self.log.flush();
        let points = std::mem::take(&mut self.points);
        if points.is_empty() && !self.dirty {
            return Ok(());
        }
        self.dirty = false;
        let (step, target, usage) = (self.step, self.target, self.usage.clone());
        let shared = Arc::clone(&self.shared);
        let (refused, is_full) = self
            .with_lease(move |records, lease| {
                let room = shared.reserve_storage(points.len() as u64 * POINT_BYTES);
                let refused = match &room {
                    Err(error) if !points.is_empty() => Some(error.to_string()),
                    Ok(()) if !points.is_empty() => record_points(records, lease, &points)?,
                    Ok(()) | Err(_) => None,
                };
                records.record_progress(lease, step, target, &usage)?;
                Ok((refused, matches!(room, Err(StoreError::QuotaExceeded { .. }))))
            })
            .await?;
        if is_full && !self.is_storage_full {
            self.log("warn: nothing more is kept of this job: the server's storage quota is used up");
        }
        self.is_storage_full = is_full;
        if let Some(refused) = refused.filter(|_| !self.series_warning_logged) {
            self.series_warning_logged = true;
            self.log(&format!("warn: values are not kept: {refused}"));
        }
        Ok(())
    }

    /// Records that the attempt was asked to stop, and the reason.
    pub(crate) async fn record_stopping(&mut self, code: &str) -> Result<(), JobError> {
        let now_ms = self.shared.clock.now_ms();
        let reason = StateReason::new(code, "saving its state");
        self.with_lease(move |records, lease| records.set_state(lease, JobState::Stopping, &reason, now_ms)).await
    }

    /// Records that the job's running time was extended.
    pub(crate) async fn record_extension(&mut self, number: u32, of: u32) -> Result<(), JobError> {
        let text = format!("the job's running time is used up; extension {number} of at most {of}");
        self.record_note(EXTENDED_EVENT, text.clone()).await?;
        self.log(&text);
        Ok(())
    }

    /// Ends the attempt and applies the decision about the job.
    pub(crate) async fn finish(mut self, next: RetryDecision) -> Result<(), JobError> {
        self.record_usage(self.reported);
        self.flush().await?;
        let (state, reason, again) = match next {
            RetryDecision::Retry { reason, delay: after } => (JobState::Queued, reason, Some(after)),
            RetryDecision::Pause(point) => return self.pause(point).await,
            RetryDecision::Finish(state, reason) => (state, reason, None),
        };
        self.count_attempt(state, &reason, again.is_some());
        let line = match (again, reason.sentence.is_empty()) {
            (Some(after), _) if !after.is_zero() => {
                format!("attempt {} ended: {}; again in {} s", self.lease.attempt, reason.sentence, after.as_secs())
            }
            (Some(_), _) => format!("attempt {} ended: {}; queued again", self.lease.attempt, reason.sentence),
            (None, true) => format!("job {} {state}", self.name),
            (None, false) => format!("job {} {state}: {}", self.name, reason.sentence),
        };
        let now_ms = self.end_log(&line).await;
        tracing::info!(job = %self.name, attempt = self.lease.attempt, %state, reason = %reason.code, "attempt ended");
        let usage = self.usage.clone();
        self.with_lease(move |records, lease| {
            records.finish_attempt(lease, state, &reason, &usage, now_ms)?;
            match again {
                Some(after) => {
                    let not_before = now_ms.saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
                    records.requeue(lease, &reason, not_before, now_ms).map(drop)
                }
                None => records.finish_job(lease, state, &reason, now_ms).map(drop),
            }
        })
        .await?;
        if again.is_none() {
            self.shared.remove_series_later(self.name.clone());
        }
        Ok(())
    }

    /// Ends the attempt of a worker that has saved its state at `point`.
    async fn pause(mut self, point: PausePoint) -> Result<(), JobError> {
        self.count_attempt(JobState::Queued, &StateReason::new(PAUSED, ""), true);
        let line = format!("attempt {} ended: paused at step {}", self.lease.attempt, self.step);
        let now_ms = self.end_log(&line).await;
        tracing::info!(job = %self.name, attempt = self.lease.attempt, step = self.step, "paused");
        let usage = self.usage.clone();
        let pause = move |records: &dyn JobRecords, lease: &JobLease| {
            records.pause_at_point(lease, &point, &usage, now_ms).map(drop)
        };
        self.with_lease(pause).await
    }

    /// Writes the last line of the attempt's log. Returns the current time.
    async fn end_log(&mut self, line: &str) -> UnixMillis {
        self.log(line);
        self.record_lost_lines().await;
        let now_ms = self.shared.clock.now_ms();
        if let Err(error) = self.log.finish(i64::try_from(now_ms).unwrap_or(i64::MAX)) {
            tracing::error!(job = %self.name, %error, "the job's log may lack its end");
        }
        now_ms
    }

    /// Records an event that says how many log lines were lost, because the log itself no longer can.
    async fn record_lost_lines(&self) {
        if self.lines_lost == 0 {
            return;
        }
        let (lost, attempt, reason) = (self.lines_lost, self.lease.attempt, &self.lost_reason);
        let text = format!("{lost} lines of attempt {attempt}'s log could not be written: {reason}");
        // If this cannot be recorded, the end of the attempt cannot be recorded either.
        if let Err(error) = self.record_note("LOG_LINES_LOST", text).await {
            tracing::error!(job = %self.name, %error, lost, "the job's log lacks lines");
        }
    }

    fn count_attempt(&self, state: JobState, reason: &StateReason, again: bool) {
        let families = &self.shared.metrics.families;
        let job = [self.project.as_str(), &self.task];
        let code = if reason.code.is_empty() { state.name() } else { &reason.code };
        families.job_attempts.with_label_values(&[job[0], job[1], code]).inc();
        if again && RetryCause::from_code(&reason.code) == Some(RetryCause::Preempted) {
            families.job_preemptions.with_label_values(&job).inc();
        }
        if !again {
            families.jobs_finished.with_label_values(&[job[0], job[1], state.name()]).inc();
        }
    }
}

impl Drop for AttemptRecorder {
    /// Whatever the outcome, the attempt no longer runs here.
    fn drop(&mut self) {
        self.shared.last_progress().remove(&self.lease.job);
        self.shared.notebooks.remove(&self.name);
    }
}
