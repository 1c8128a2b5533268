//! Training jobs: the queue, the supervisors that run attempts in worker processes, retries and resume.
//!
//! A job's truth is in the records (`saggar_store::with_records`) and its checkpoints; everything here can be lost at any
//! instant and is rebuilt from them. Serving is elsewhere: a job that publishes writes a model version, which the
//! server finds as it finds any other.

mod attempt_recorder;
mod commands;
mod effects;
pub mod error;
mod gauges;
mod key_limits;
pub mod launcher;
pub mod limits;
pub mod logs;
pub mod measure;
pub mod outcome;
mod outputs;
pub mod phases;
pub mod placement;
pub mod protocol;
mod scheduler;
pub mod scheduler_config;
mod schedules;
mod series_pages;
mod shared;
pub mod spec;
mod storage_guard;
mod supervisor;
pub mod worker;

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use saggar_metrics::MetricsRegistry;
use saggar_store::clock::{Clock, UnixMillis};
use saggar_store::records::{
    ActiveJob, JobAttempt, JobDetails, JobEvent, JobFilter, JobRecord, JobRecords, MetricPoint, StateReason, UsageTotal,
};
use saggar_store::{KeyFile, StateDir};
use tokio::sync::watch;

pub use commands::{JobSubmission, restart_spec};
pub use effects::{EffectLog, JobEffect, PublicationNotes};
pub use error::{JobError, SchedulerConfigError, SpecError};
pub use launcher::{LocalLauncher, WorkerLauncher};
pub use phases::JobPhase;
pub use scheduler_config::{JobQueue, ResourceQuota, SchedulerConfig, SlotPool};
pub use shared::SpecResolver;
pub use spec::{
    CheckpointEvery, CheckpointSelector, DataMount, DataSource, ESTIMATE_FILE, InitFrom, JobSpec, PredictionSpec,
    RetryCause, parse_keep_best,
};
pub use worker::JobRights;

use placement::PlacementDecision;
use scheduler::QueueSnapshot;
use shared::SharedState;
use storage_guard::StorageGuard;

/// What stands for a job's name where whoever reads it may not see the job's project.
const REDACTED_JOB_NAME: &str = "a job of another project";

/// The jobs of one server. Cheap to clone.
#[derive(Clone)]
pub struct JobService {
    shared: Arc<SharedState>,
}

/// A piece of an attempt's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// Whole lines, each with its timestamp.
    pub text: String,
    /// Where the next piece begins.
    pub offset: u64,
    /// Whether the attempt may still write more.
    pub open: bool,
}

/// A piece of one of a job's series.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesPage {
    /// The series: `loss`.
    pub name: String,
    /// Its points from a step on, in order of steps.
    pub points: Vec<MetricPoint>,
    /// Whether it may have more after these.
    pub is_truncated: bool,
}

/// Why a queued job waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueWait {
    /// Its place among those of its queue, from 1.
    pub position: u64,
    /// What it waits for.
    pub reason: StateReason,
}

impl JobService {
    /// Jobs recorded in `with_records`, with logs under `jobs_dir`. Nothing runs before [`JobService::run`].
    pub fn new(
        records: Arc<dyn JobRecords>,
        clock: Arc<dyn Clock>,
        metrics: Arc<MetricsRegistry>,
        launcher: Arc<dyn WorkerLauncher>,
        jobs_dir: PathBuf,
        layout: SchedulerConfig,
    ) -> JobService {
        JobService { shared: Arc::new(SharedState::new(records, clock, metrics, launcher, jobs_dir, layout)) }
    }

    /// Takes over what a killed server left, then runs jobs until `shutdown` is true; then has the running ones save
    /// their state, and returns when they have. They go on at the next start.
    ///
    /// # Errors
    /// `JobRecords` where the jobs left behind cannot be taken over.
    pub async fn run(&self, shutdown: watch::Receiver<bool>) -> Result<(), JobError> {
        scheduler::recover(&self.shared).await?;
        scheduler::run_scheduler(Arc::clone(&self.shared), shutdown).await;
        Ok(())
    }

    /// Pools, queues and allowances as they are now.
    pub fn scheduler_config(&self) -> Arc<SchedulerConfig> {
        self.shared.scheduler_config()
    }

    /// Holds the jobs of each key to the limits that the file of keys names, as it is at each look at the queue.
    #[must_use]
    pub fn with_keys(self, keys: KeyFile) -> JobService {
        self.shared.watch_keys(keys);
        self
    }

    /// Holds what is recorded of running jobs, their series and logs, to the limit on all that is stored.
    #[must_use]
    pub fn with_storage_quota(self, limit_bytes: Option<u64>, home: StateDir, models_dir: PathBuf) -> JobService {
        self.shared.set_storage_guard(StorageGuard::new(limit_bytes, home, models_dir));
        self
    }

    /// Has workers killed that give no sign of life for `max`, and their attempts counted as lost.
    #[must_use]
    pub fn with_worker_silence(self, max: Duration) -> JobService {
        self.shared.set_worker_silence_max(max);
        self
    }

    /// Has what the jobs of schedules refer to looked up by `resolver` when their time has come, as it is for other jobs when
    /// they are submitted. Only the first one counts.
    pub fn set_spec_resolver(&self, resolver: SpecResolver) {
        self.shared.set_spec_resolver(resolver);
    }

    /// Has what jobs and schedules do to things outside of them, or are refused, written down by `read_log`. Only the first one
    /// counts.
    pub fn set_effect_log(&self, log: EffectLog) {
        self.shared.set_effect_log(log);
    }

    /// Has jobs' logs say what `notes` has to say of the versions that they publish. Only the first one counts.
    pub fn set_publication_notes(&self, notes: PublicationNotes) {
        self.shared.set_publication_notes(notes);
    }

    /// Jobs that run, with the pools they have their slots from.
    ///
    /// # Errors
    /// `JobRecords`.
    pub async fn running_jobs(&self) -> Result<Vec<ActiveJob>, JobError> {
        self.shared.with_records(|records| records.active_jobs()).await
    }

    /// How many jobs wait in each queue that any waits in.
    ///
    /// # Errors
    /// `JobRecords`.
    pub async fn queue_lengths(&self) -> Result<HashMap<String, usize>, JobError> {
        let waiting = self.shared.with_records(|records| records.queued_jobs()).await?;
        let mut counts = HashMap::new();
        waiting.into_iter().for_each(|job| *counts.entry(job.demand.queue).or_default() += 1);
        Ok(counts)
    }

    /// What jobs took so far, by project and key.
    ///
    /// # Errors
    /// `JobRecords`.
    pub async fn resource_usage(&self) -> Result<Vec<UsageTotal>, JobError> {
        self.shared.with_records(|records| records.usage_totals()).await
    }

    /// Why each queued job waits, by identifier. One that is about to start is the first, for no reason. Reasons name the
    /// jobs of those projects only that `sees` lets the reader see.
    ///
    /// # Errors
    /// `JobRecords`.
    pub async fn queue_waits(&self, sees: impl Fn(&str) -> bool) -> Result<HashMap<String, QueueWait>, JobError> {
        let mut look = QueueSnapshot::take(&self.shared).await?;
        // Verdicts go by identifiers: a name is only ever told.
        for job in look.running.iter_mut().filter(|job| !sees(&job.project)) {
            job.name = REDACTED_JOB_NAME.to_owned();
        }
        // Thousands of jobs may wait.
        let placed = tokio::task::spawn_blocking(move || (look.decisions(), look)).await;
        let (verdicts, look) = placed.map_err(std::io::Error::other)?;
        let waits = look.waiting.into_iter().zip(verdicts).map(|(job, verdict)| match verdict {
            PlacementDecision::Wait { position, reason, .. } => (job.id, QueueWait { position, reason }),
            PlacementDecision::Start { .. } => (job.id, QueueWait { position: 1, reason: job.reason }),
        });
        Ok(waits.collect())
    }

    /// The job of this name or identifier.
    ///
    /// # Errors
    /// `NotFound`, `JobRecords`.
    pub async fn get(&self, name: &str) -> Result<JobRecord, JobError> {
        let name = name.to_owned();
        self.shared.with_records(move |records| records.get(&name)).await
    }

    /// Jobs, newest first.
    ///
    /// # Errors
    /// `JobRecords`.
    pub async fn list(&self, filter: JobFilter) -> Result<Vec<JobRecord>, JobError> {
        self.shared.with_records(move |records| records.list(&filter)).await
    }

    /// The attempts at a job, first one first.
    ///
    /// # Errors
    /// `NotFound`, `JobRecords`.
    pub async fn attempts(&self, id: &str) -> Result<Vec<JobAttempt>, JobError> {
        let id = id.to_owned();
        self.shared.with_records(move |records| records.attempts(&id)).await
    }

    /// Events of a job after a sequence number, oldest first.
    ///
    /// # Errors
    /// `NotFound`, `JobRecords`.
    pub async fn events(&self, id: &str, after: u64) -> Result<Vec<JobEvent>, JobError> {
        let id = id.to_owned();
        self.shared.with_records(move |records| records.events(Some(&id), after, 0)).await
    }

    /// Events of any job after a sequence number, oldest first.
    ///
    /// # Errors
    /// `JobRecords`.
    pub async fn all_events(&self, after: u64) -> Result<Vec<JobEvent>, JobError> {
        self.shared.with_records(move |records| records.events(None, after, 0)).await
    }

    /// The sequence of the newest event of any job; 0 before the first.
    ///
    /// # Errors
    /// `JobRecords`.
    pub async fn newest_event_sequence(&self) -> Result<u64, JobError> {
        self.shared.with_records(|records| records.newest_event_sequence()).await
    }

    /// The newest events of a job, oldest first.
    ///
    /// # Errors
    /// `JobRecords`.
    pub async fn newest_events(&self, id: &str, limit: u32) -> Result<Vec<JobEvent>, JobError> {
        let id = id.to_owned();
        self.shared.with_records(move |records| records.newest_events(&id, limit)).await
    }

    /// The events of some kinds of a job, oldest first: of those in [`phases::KINDS`], what [`phases::of`] reads.
    ///
    /// # Errors
    /// `JobRecords`.
    pub async fn events_of_kinds(&self, id: &str, kinds: &'static [&'static str]) -> Result<Vec<JobEvent>, JobError> {
        let id = id.to_owned();
        self.shared.with_records(move |records| records.events_of_kinds(&id, kinds)).await
    }

    /// Attempts and last points of jobs, by identifier. Those that are not there are left out.
    ///
    /// # Errors
    /// `JobRecords`.
    pub async fn details(&self, ids: Vec<String>) -> Result<HashMap<String, JobDetails>, JobError> {
        self.shared.with_records(move |records| records.job_details(&ids)).await
    }

    /// Attempts and last points of one job.
    ///
    /// # Errors
    /// `NotFound`, `JobRecords`.
    pub async fn job_details(&self, id: &str) -> Result<JobDetails, JobError> {
        let found = self.details(vec![id.to_owned()]).await?.remove(id);
        found.ok_or_else(|| JobError::no_job(id))
    }

    /// Some of a job's series from a step on, with `points_max` points in all; long ones have what short ones leave of their
    /// share. A series that is cut has one point at least, unless there are more names than points.
    ///
    /// # Errors
    /// `JobRecords`.
    pub async fn series_pages(
        &self,
        id: &str,
        names: Vec<String>,
        from_step: u64,
        points_max: usize,
    ) -> Result<Vec<SeriesPage>, JobError> {
        let id = id.to_owned();
        self.shared
            .with_records(move |records| series_pages::read_series_pages(records, &id, names, from_step, points_max))
            .await
    }

    /// Names of a job's series, sorted.
    ///
    /// # Errors
    /// `JobRecords`.
    pub async fn series_names(&self, id: &str) -> Result<Vec<String>, JobError> {
        let id = id.to_owned();
        self.shared.with_records(move |records| records.series_names(&id)).await
    }

    /// Whole lines of an attempt's log from byte `offset` on. An attempt that has no log yet gives none.
    ///
    /// # Errors
    /// `NotFound`, `JobRecords`, `Io`.
    pub async fn read_log(&self, id: &str, attempt: u32, offset: u64, bytes_max: u64) -> Result<LogChunk, JobError> {
        // Asked before the file is read: lines written in between are then read, or `open` is still true.
        let job = self.get(id).await?;
        let open = !job.state.is_final() && attempt >= job.attempts;
        let path = logs::log_path(&self.shared.jobs_dir, &job.id, attempt);
        let read = tokio::task::spawn_blocking(move || logs::read_from(&path, offset, bytes_max)).await;
        let (text, offset) = read.map_err(std::io::Error::other)??;
        Ok(LogChunk { text, offset, open })
    }

    /// The last whole lines of an attempt's log before byte `end`, and where they begin and end: of `bytes_max` bytes, and of more
    /// where not one would come otherwise. `id` is the job's identifier. An attempt that has no log yet gives none.
    ///
    /// # Errors
    /// `Io`.
    pub async fn read_log_backward(
        &self,
        id: &str,
        attempt: u32,
        end: u64,
        bytes_max: u64,
    ) -> Result<(String, Range<u64>), JobError> {
        let path = logs::log_path(&self.shared.jobs_dir, id, attempt);
        let read = tokio::task::spawn_blocking(move || logs::read_backward(&path, end, bytes_max)).await;
        Ok(read.map_err(std::io::Error::other)??)
    }

    /// When the job's attempt did its last step, or began; none where no attempt of it runs here.
    pub fn last_progress_ms(&self, id: &str) -> Option<UnixMillis> {
        self.shared.last_progress().get(id).copied()
    }

    /// A receiver that hears whenever something about some job changes: a log line, a step, a state.
    pub fn subscribe_changes(&self) -> watch::Receiver<u64> {
        self.shared.subscribe_changes()
    }
}

impl std::fmt::Debug for JobService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs").finish_non_exhaustive()
    }
}
