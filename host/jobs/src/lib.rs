//! Training jobs: the queue, the supervisors that run attempts in worker processes, retries and resume.
//!
//! The state of a job is in the records (`saggar_store::records`) and its checkpoints; everything here can be lost
//! at any instant and is rebuilt from them. Serving is elsewhere: a job that publishes writes a model version, which
//! the server finds like any other.

mod attempt_control;
mod attempt_recorder;
mod batch_task;
mod commands;
pub mod credentials;
mod effects;
pub mod engine;
mod engine_jobs;
mod engine_pools;
pub mod error;
mod gateway;
mod gauges;
mod held_leases;
mod host_keeper;
mod hosts;
mod job_trace;
mod key_limits;
pub mod launcher;
mod lease_keeper;
pub mod limits;
mod line_reader;
pub mod logs;
pub mod measure;
mod notebooks;
pub mod outcome;
mod outputs;
pub mod phases;
pub mod placement;
pub mod protocol;
mod queue_snapshot;
mod queue_waits;
mod rank_keeper;
pub mod rank_network;
mod reclaim;
mod refresh_pace;
mod scheduler;
pub mod scheduler_config;
mod schedules;
mod series_pages;
mod shared;
mod single_attempt;
pub mod slurm_engine;
pub mod spec;
mod step_outputs;
mod storage_guard;
mod supervisor;
pub mod transport;
pub mod worker;

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use saggar_clock::{Clock, UnixMillis};
use saggar_fetch::FetchPolicy;
use saggar_metrics::MetricsRegistry;
use saggar_store::records::{
    ActiveJob, JobAttempt, JobDetails, JobEvent, JobFilter, JobMembership, JobRecord, JobRecords, MetricPoint,
    ServerIdentity, UsageTotal,
};
use saggar_store::{JobFiles, KeyFile, StateDir};
use saggar_telemetry::SpanTracer;
use tokio::sync::watch;

pub use batch_task::{BATCH_JOB_VARIABLE, BatchTask};
pub use commands::{JobSubmission, restart_spec};
pub use credentials::WorkerCredentials;
pub use effects::{EffectLog, JobEffect, PublicationNotes};
pub use error::{JobError, SchedulerConfigError, SpecError};
pub use hosts::HostWithJobs;
pub use launcher::{LaunchRequest, LocalLauncher, WorkerHandle, WorkerLauncher, WorkerSignal};
pub use notebooks::{NOTEBOOK_QUEUE, NotebookAddress};
pub use phases::JobPhase;
pub use queue_waits::{QueueWait, QueueWaits};
pub use rank_network::{RankNetwork, RankPorts};
pub use scheduler_config::{JobQueue, ResourceQuota, SchedulerConfig, SlotPool};
pub use shared::SpecResolver;
pub use single_attempt::SingleAttempt;
pub use spec::{
    CheckpointEvery, CheckpointSelector, DataMount, DataSource, DataStepFetch, DataStepOutput, DataStepSource,
    DataStepSpec, DataStepVersion, ESTIMATE_FILE, InitFrom, JobSpec, NotebookSpec, PredictionSpec, REPLAY_FILE,
    ReplaySpec, RetryCause, bind_step_inputs, model_provenance, parse_keep_best, replay_spec,
};
pub use step_outputs::{STEP_OUTPUT_EVENT, StepOutput};
pub use worker::JobRights;

use queue_waits::QueueWaitLister;
use shared::SharedState;
use storage_guard::StorageGuard;
use transport::{UnixWorkerListener, WorkerListener};

/// The name shown instead of a job's name if the reader may not see the job's project.
const REDACTED_JOB_NAME: &str = "a job of another project";

/// The jobs of one server. Cheap to clone.
#[derive(Clone)]
pub struct JobService {
    shared: Arc<SharedState>,
    queue_waits: QueueWaitLister,
}

/// A chunk of an attempt's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// Complete lines, each with its timestamp.
    pub text: String,
    /// The byte offset of the next chunk.
    pub offset: u64,
    /// Whether the attempt can still write more.
    pub open: bool,
}

/// A page of one of a job's series.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesPage {
    /// The name of the series: `loss`.
    pub name: String,
    /// Its points from the requested step on, in step order.
    pub points: Vec<MetricPoint>,
    /// Whether more points may follow.
    pub is_truncated: bool,
}

impl JobService {
    /// Creates the service for jobs recorded in `records`, with their outputs and logs in `job_files`. No job runs
    /// before
    /// [`JobService::run`].
    pub fn new(
        records: Arc<dyn JobRecords>,
        clock: Arc<dyn Clock>,
        metrics: Arc<MetricsRegistry>,
        launcher: Arc<dyn WorkerLauncher>,
        job_files: Arc<dyn JobFiles>,
        layout: SchedulerConfig,
    ) -> JobService {
        let shared = SharedState::new(records, clock, metrics, launcher, job_files, layout);
        JobService::from_shared(Arc::new(shared))
    }

    pub(crate) fn from_shared(shared: Arc<SharedState>) -> JobService {
        JobService { shared, queue_waits: QueueWaitLister::default() }
    }

    /// Runs jobs as this one of several servers. Only the first call has an effect.
    #[must_use]
    pub fn with_server(self, server: ServerIdentity) -> JobService {
        self.shared.set_server(server);
        self
    }

    /// Accepts workers on this listener instead of a Unix socket, such as those of other machines. Only the first call
    /// has an effect. Must be called in the runtime that calls [`JobService::run`].
    #[must_use]
    pub fn with_worker_listener(self, listener: Box<dyn WorkerListener>) -> JobService {
        self.shared.accept_workers(listener);
        self
    }

    /// Recovers the jobs of a killed server, then runs jobs until `shutdown` is true. Then asks the running ones to
    /// save their state, and returns when they have. They continue at the next start.
    ///
    /// # Errors
    /// `Io` if workers cannot be accepted; `Records` if the jobs left behind cannot be recovered.
    pub async fn run(&self, shutdown: watch::Receiver<bool>) -> Result<(), JobError> {
        if self.shared.gateway().is_err() {
            self.shared.accept_workers(Box::new(UnixWorkerListener::bind()?));
        }
        reclaim::recover_jobs(&self.shared).await?;
        scheduler::run_scheduler(Arc::clone(&self.shared), shutdown).await;
        Ok(())
    }

    /// Sets where rank 0 of an attempt with several hosts listens if it runs here; by default all hosts are on this machine.
    /// Only the first call has an effect.
    #[must_use]
    pub fn with_rank_network(self, network: RankNetwork) -> JobService {
        self.shared.set_rank_network(network);
        self
    }

    /// Returns the current pools, queues and limits.
    pub fn scheduler_config(&self) -> Arc<SchedulerConfig> {
        self.shared.scheduler_config()
    }

    /// Limits the jobs of each key as the key file says, which is read again whenever the queue is checked.
    #[must_use]
    pub fn with_keys(self, keys: KeyFile) -> JobService {
        self.shared.watch_keys(keys);
        self
    }

    /// Counts the records, series and logs of running jobs towards the limit of stored bytes.
    #[must_use]
    pub fn with_storage_quota(self, limit_bytes: Option<u64>, home: StateDir, models_dir: PathBuf) -> JobService {
        self.shared.set_storage_guard(StorageGuard::new(limit_bytes, home, models_dir));
        self
    }

    /// Sets the time without a heartbeat after which a worker is killed and its attempt counts as lost.
    #[must_use]
    pub fn with_worker_silence(self, max: Duration) -> JobService {
        self.shared.set_worker_silence_max(max);
        self
    }

    /// Sets what data steps can fetch from other servers; nothing by default.
    #[must_use]
    pub fn with_fetch_policy(self, policy: FetchPolicy) -> JobService {
        self.shared.set_fetch_policy(policy);
        self
    }

    /// Sends the spans of jobs whose request was traced to `tracer`, if there is one.
    #[must_use]
    pub fn with_tracer(self, tracer: Option<SpanTracer>) -> JobService {
        if let Some(tracer) = tracer {
            self.shared.set_tracer(tracer);
        }
        self
    }

    /// Sets the function that resolves references of scheduled jobs when they are due, as those of other jobs are at
    /// submission. Only the first call has an effect.
    pub fn set_spec_resolver(&self, resolver: SpecResolver) {
        self.shared.set_spec_resolver(resolver);
    }

    /// Sets the function that records effects of jobs and schedules on other things, and refusals. Only the first call
    /// has an effect.
    pub fn set_effect_log(&self, log: EffectLog) {
        self.shared.set_effect_log(log);
    }

    /// Sets the function that returns log lines about published versions. Only the first call has an effect.
    pub fn set_publication_notes(&self, notes: PublicationNotes) {
        self.shared.set_publication_notes(notes);
    }

    /// Returns the running jobs, with the pools of their slots.
    ///
    /// # Errors
    /// `Records`.
    pub async fn running_jobs(&self) -> Result<Vec<ActiveJob>, JobError> {
        self.shared.with_records(|records| records.active_jobs()).await
    }

    /// Returns the number of waiting jobs of each queue that is not empty.
    ///
    /// # Errors
    /// `Records`.
    pub async fn queue_lengths(&self) -> Result<HashMap<String, usize>, JobError> {
        let counts = self.shared.with_records(|records| records.queue_counts()).await?;
        let mut lengths = HashMap::new();
        for count in counts.into_iter().filter(|count| count.waiting > 0) {
            *lengths.entry(count.queue).or_default() += usize::try_from(count.waiting).unwrap_or(usize::MAX);
        }
        Ok(lengths)
    }

    /// Returns the resource usage so far, by project and key.
    ///
    /// # Errors
    /// `Records`.
    pub async fn resource_usage(&self) -> Result<Vec<UsageTotal>, JobError> {
        self.shared.with_records(|records| records.usage_totals()).await
    }

    /// Returns why each queued job waits, by identifier. A job that is about to start is first in its queue and has an
    /// empty reason. Reasons name only jobs of projects for which `sees` returns `true`.
    ///
    /// # Errors
    /// `Records`.
    pub async fn queue_waits(&self, sees: impl Fn(&str) -> bool) -> Result<QueueWaits, JobError> {
        self.queue_waits.list(&self.shared, sees).await
    }

    /// Returns the job with this name or identifier.
    ///
    /// # Errors
    /// `NotFound`, `Records`.
    pub async fn get(&self, name: &str) -> Result<JobRecord, JobError> {
        let name = name.to_owned();
        self.shared.with_records(move |records| records.get(&name)).await
    }

    /// Returns jobs, newest first.
    ///
    /// # Errors
    /// `Records`.
    pub async fn list(&self, filter: JobFilter) -> Result<Vec<JobRecord>, JobError> {
        self.shared.with_records(move |records| records.list(&filter)).await
    }

    /// Returns the projects that have jobs, each with the time of its oldest job and of its last change, by name.
    ///
    /// # Errors
    /// `Records`.
    pub async fn projects(&self) -> Result<Vec<(String, UnixMillis, UnixMillis)>, JobError> {
        self.shared.with_records(|records| records.projects()).await
    }

    /// Returns the attempts of a job, first one first.
    ///
    /// # Errors
    /// `NotFound`, `Records`.
    pub async fn attempts(&self, id: &str) -> Result<Vec<JobAttempt>, JobError> {
        let id = id.to_owned();
        self.shared.with_records(move |records| records.attempts(&id)).await
    }

    /// Returns the events of a job after a sequence number, oldest first.
    ///
    /// # Errors
    /// `NotFound`, `Records`.
    pub async fn events(&self, id: &str, after: u64) -> Result<Vec<JobEvent>, JobError> {
        let id = id.to_owned();
        self.shared.with_records(move |records| records.events(Some(&id), after, 0)).await
    }

    /// Returns the events of all jobs after a sequence number, oldest first.
    ///
    /// # Errors
    /// `Records`.
    pub async fn all_events(&self, after: u64) -> Result<Vec<JobEvent>, JobError> {
        self.shared.with_records(move |records| records.events(None, after, 0)).await
    }

    /// Returns the sequence number of the newest event of all jobs, or 0 before the first.
    ///
    /// # Errors
    /// `Records`.
    pub async fn newest_event_sequence(&self) -> Result<u64, JobError> {
        self.shared.with_records(|records| records.newest_event_sequence()).await
    }

    /// Returns the newest events of a job, oldest first.
    ///
    /// # Errors
    /// `Records`.
    pub async fn newest_events(&self, id: &str, limit: u32) -> Result<Vec<JobEvent>, JobError> {
        let id = id.to_owned();
        self.shared.with_records(move |records| records.newest_events(&id, limit)).await
    }

    /// Returns the events of some kinds of a job, oldest first. With [`phases::EVENT_KINDS`], these are the input of
    /// [`phases::job_phases`].
    ///
    /// # Errors
    /// `Records`.
    pub async fn events_of_kinds(&self, id: &str, kinds: &'static [&'static str]) -> Result<Vec<JobEvent>, JobError> {
        let id = id.to_owned();
        self.shared.with_records(move |records| records.events_of_kinds(&id, kinds)).await
    }

    /// Returns the attempts and last points of jobs, by identifier. Jobs that do not exist are skipped.
    ///
    /// # Errors
    /// `Records`.
    pub async fn details(&self, ids: Vec<String>) -> Result<HashMap<String, JobDetails>, JobError> {
        self.shared.with_records(move |records| records.job_details(&ids)).await
    }

    /// Returns jobs by identifier or name, under what was given. Jobs that do not exist are left out.
    ///
    /// # Errors
    /// `Records`.
    pub async fn jobs_by_id(&self, ids: Vec<String>) -> Result<HashMap<String, JobRecord>, JobError> {
        let read = move |records: &dyn JobRecords| {
            let mut found = HashMap::new();
            for id in ids {
                match records.get(&id) {
                    Ok(job) => drop(found.insert(id, job)),
                    Err(saggar_store::error::RecordError::NoSuchJob { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(found)
        };
        self.shared.with_records(read).await
    }

    /// Returns the trial and the pipeline step that a job was submitted for.
    ///
    /// # Errors
    /// `NotFound`, `Records`.
    pub async fn membership(&self, id: &str) -> Result<JobMembership, JobError> {
        let id = id.to_owned();
        self.shared.with_records(move |records| records.job_membership(&id)).await
    }

    /// Returns the attempts and last points of one job.
    ///
    /// # Errors
    /// `NotFound`, `Records`.
    pub async fn job_details(&self, id: &str) -> Result<JobDetails, JobError> {
        let found = self.details(vec![id.to_owned()]).await?.remove(id);
        found.ok_or_else(|| JobError::no_job(id))
    }

    /// Returns some of a job's series from a step on, with at most `points_max` points in all; long series use what
    /// short ones leave of their share. A truncated series has at least one point, unless there are more names than
    /// points.
    ///
    /// # Errors
    /// `Records`.
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

    /// Returns the names of a job's series, sorted.
    ///
    /// # Errors
    /// `Records`.
    pub async fn series_names(&self, id: &str) -> Result<Vec<String>, JobError> {
        let id = id.to_owned();
        self.shared.with_records(move |records| records.series_names(&id)).await
    }

    /// Returns complete lines of an attempt's log from byte `offset` on. The chunk is empty if there is no log yet.
    ///
    /// # Errors
    /// `NotFound`, `Records`, `Io`.
    pub async fn read_log(&self, id: &str, attempt: u32, offset: u64, bytes_max: u64) -> Result<LogChunk, JobError> {
        // The state is read before the file: lines written in between are then included, or `open` is still true.
        let job = self.get(id).await?;
        let open = !job.state.is_final() && attempt >= job.attempts;
        let (files, id) = (Arc::clone(&self.shared.job_files), job.id.clone());
        let read = move || logs::read_from(&*files, &id, attempt, offset, bytes_max);
        let read = tokio::task::spawn_blocking(read).await;
        let (text, offset) = read.map_err(std::io::Error::other)??;
        Ok(LogChunk { text, offset, open })
    }

    /// Returns the last complete lines of an attempt's log before byte `end`, and their byte range: at most `bytes_max`
    /// bytes, unless a single line is longer. `id` is the job's identifier. The text is empty if there is no log yet.
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
        let (files, id) = (Arc::clone(&self.shared.job_files), id.to_owned());
        let read = move || logs::read_backward(&*files, &id, attempt, end, bytes_max);
        let read = tokio::task::spawn_blocking(read).await;
        Ok(read.map_err(std::io::Error::other)??)
    }

    /// Returns the time of the last step of the job's attempt, or of its start; `None` if no attempt of it runs here.
    pub fn last_progress_ms(&self, id: &str) -> Option<UnixMillis> {
        self.shared.last_progress().get(id).copied()
    }

    /// Returns the records, which also contain the sweeps and the pipeline runs.
    pub fn records(&self) -> Arc<dyn JobRecords> {
        Arc::clone(&self.shared.records)
    }

    /// Returns the clock that the records' times come from.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.shared.clock)
    }

    /// Returns the metrics that the service counts in.
    pub fn metrics(&self) -> Arc<MetricsRegistry> {
        Arc::clone(&self.shared.metrics)
    }

    /// Returns a receiver that is notified of every change of any job: a log line, a step, a state.
    pub fn subscribe_changes(&self) -> watch::Receiver<u64> {
        self.shared.subscribe_changes()
    }
}

impl std::fmt::Debug for JobService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs").finish_non_exhaustive()
    }
}
