//! Training jobs: the queue, the supervisors that run attempts in worker processes, retries and resume.
//!
//! A job's truth is in the records (`saggar_store::records`) and its checkpoints; everything here can be lost at any
//! instant and is rebuilt from them. Serving is elsewhere: a job that publishes writes a model version, which the
//! server finds as it finds any other.

pub mod ending;
pub mod error;
pub mod launcher;
pub mod limits;
pub mod logs;
mod outputs;
pub mod phases;
pub mod protocol;
mod recorder;
mod scheduler;
pub mod spec;
mod supervisor;
pub mod worker;

use std::path::PathBuf;
use std::sync::Arc;

use saggar_metrics::Metrics;
use saggar_store::clock::Clock;
use saggar_store::limits::EVENTS_LISTED_MAX;
use saggar_store::records::{Attempt, Event, Job, JobFilter, JobState, MetricPoint, NewJob, Reason, Records};
use tokio::sync::watch;

pub use error::{JobError, SpecError};
pub use launcher::{Launcher, LocalLauncher};
pub use phases::Phase;
pub use spec::{CheckpointEvery, JobSpec, Mount};

use scheduler::Shared;

/// The jobs of one server. Cheap to clone.
#[derive(Clone)]
pub struct Jobs {
    shared: Arc<Shared>,
}

/// A piece of an attempt's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPiece {
    /// Whole lines, each with its timestamp.
    pub text: String,
    /// Where the next piece begins.
    pub offset: u64,
    /// Whether the attempt may still write more.
    pub open: bool,
}

impl Jobs {
    /// Jobs recorded in `records`, with logs under `jobs_dir`. Nothing runs before [`Jobs::run`].
    pub fn new(
        records: Arc<dyn Records>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        launcher: Arc<dyn Launcher>,
        jobs_dir: PathBuf,
    ) -> Jobs {
        Jobs { shared: Arc::new(Shared::new(records, clock, metrics, launcher, jobs_dir)) }
    }

    /// Takes over what a killed server left, then runs jobs, at most `slots` at once, until `shutdown` is true; then has
    /// the running ones save their state, and returns when they have. They go on at the next start.
    ///
    /// # Errors
    /// `Records` where the jobs left behind cannot be taken over.
    pub async fn run(&self, slots: usize, shutdown: watch::Receiver<bool>) -> Result<(), JobError> {
        scheduler::recover(&self.shared).await?;
        scheduler::schedule(Arc::clone(&self.shared), slots, shutdown).await;
        Ok(())
    }

    /// Records a job and has it run in its turn. The caller has checked that plugin and datasets exist, and filled in
    /// the dataset versions.
    ///
    /// # Errors
    /// `Spec`, `Records`.
    pub async fn submit(&self, spec: &JobSpec, idempotency_key: Option<String>) -> Result<Job, JobError> {
        spec.validate()?;
        let job = NewJob {
            project: spec.project.clone(),
            task: spec.task.clone(),
            spec: serde_json::to_string(spec).expect("a specification is plain data"),
            idempotency_key,
            ..NewJob::default()
        };
        let now_ms = self.shared.clock.now_ms();
        let job = self.shared.records(move |records| records.submit(&job, now_ms)).await?;
        self.shared.metrics.families.jobs_submitted.with_label_values(&[&spec.project, &spec.task]).inc();
        self.shared.wake();
        self.shared.touch();
        Ok(job)
    }

    /// The job of this name or identifier.
    ///
    /// # Errors
    /// `NotFound`, `Records`.
    pub async fn get(&self, name: &str) -> Result<Job, JobError> {
        let name = name.to_owned();
        self.shared.records(move |records| records.get(&name)).await
    }

    /// Jobs, newest first.
    ///
    /// # Errors
    /// `Records`.
    pub async fn list(&self, filter: JobFilter) -> Result<Vec<Job>, JobError> {
        self.shared.records(move |records| records.list(&filter)).await
    }

    /// The attempts at a job, first one first.
    ///
    /// # Errors
    /// `NotFound`, `Records`.
    pub async fn attempts(&self, id: &str) -> Result<Vec<Attempt>, JobError> {
        let id = id.to_owned();
        self.shared.records(move |records| records.attempts(&id)).await
    }

    /// Events of a job after a sequence number, oldest first.
    ///
    /// # Errors
    /// `NotFound`, `Records`.
    pub async fn events(&self, id: &str, after: u64) -> Result<Vec<Event>, JobError> {
        let id = id.to_owned();
        self.shared.records(move |records| records.events(Some(&id), after, 0)).await
    }

    /// All events of a job, oldest first: what [`phases::of`] reads.
    ///
    /// # Errors
    /// `Records`.
    pub async fn all_events(&self, id: &str) -> Result<Vec<Event>, JobError> {
        let mut all = Vec::new();
        loop {
            let after = all.last().map_or(0, |event: &Event| event.sequence);
            let more = self.events(id, after).await?;
            let is_last = more.len() < EVENTS_LISTED_MAX as usize;
            all.extend(more);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// The last point of each of a job's series.
    ///
    /// # Errors
    /// `Records`.
    pub async fn latest_metrics(&self, id: &str) -> Result<Vec<MetricPoint>, JobError> {
        let id = id.to_owned();
        self.shared.records(move |records| records.latest_metrics(&id)).await
    }

    /// The points of one of a job's series from a step on; all series' names where none is given.
    ///
    /// # Errors
    /// `Records`.
    pub async fn series(&self, id: &str, name: &str, from_step: u64) -> Result<Vec<MetricPoint>, JobError> {
        let (id, name) = (id.to_owned(), name.to_owned());
        self.shared.records(move |records| records.series(&id, &name, from_step, 0)).await
    }

    /// Names of a job's series, sorted.
    ///
    /// # Errors
    /// `Records`.
    pub async fn series_names(&self, id: &str) -> Result<Vec<String>, JobError> {
        let id = id.to_owned();
        self.shared.records(move |records| records.series_names(&id)).await
    }

    /// How many queued jobs start before this one, plus one; none for a job that is not queued.
    ///
    /// # Errors
    /// `Records`.
    pub async fn position(&self, job: &Job) -> Result<Option<u64>, JobError> {
        if job.state != JobState::Queued {
            return Ok(None);
        }
        let queued = self.list(JobFilter { states: vec![JobState::Queued], ..JobFilter::default() }).await?;
        let before = |other: &&Job| (-other.priority, other.cursor) < (-job.priority, job.cursor);
        Ok(Some(queued.iter().filter(before).count() as u64 + 1))
    }

    /// Asks a job to stop. A running one saves its state first.
    ///
    /// # Errors
    /// `NotFound`; `State` where it is over; `Records`.
    pub async fn stop(&self, name: &str, reason: Reason) -> Result<Job, JobError> {
        let (name, now_ms) = (name.to_owned(), self.shared.clock.now_ms());
        let stop = move |records: &dyn Records| {
            let id = records.get(&name)?.id;
            records.request_stop(&id, &reason, now_ms)
        };
        let job = self.shared.records(stop).await?;
        self.shared.order(&job.id, |orders| orders.stop = true);
        self.shared.touch();
        Ok(job)
    }

    /// Has a running job take a checkpoint at its next step boundary. False where it is not running here.
    pub fn checkpoint(&self, id: &str) -> bool {
        self.shared.order(id, |orders| orders.checkpoints += 1)
    }

    /// Whole lines of an attempt's log from byte `offset` on. An attempt that has no log yet gives none.
    ///
    /// # Errors
    /// `NotFound`, `Records`, `Io`.
    pub async fn log(&self, id: &str, attempt: u32, offset: u64, bytes_max: u64) -> Result<LogPiece, JobError> {
        // Asked before the file is read: lines written in between are then read, or `open` is still true.
        let job = self.get(id).await?;
        let open = !job.state.is_final() && attempt >= job.attempts;
        let path = logs::log_path(&self.shared.jobs_dir, &job.id, attempt);
        let read = tokio::task::spawn_blocking(move || logs::read_from(&path, offset, bytes_max)).await;
        let (text, offset) = read.map_err(std::io::Error::other)??;
        Ok(LogPiece { text, offset, open })
    }

    /// A receiver that hears whenever something about some job changes: a log line, a step, a state.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes()
    }
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs").finish_non_exhaustive()
    }
}
