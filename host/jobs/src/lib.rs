//! Training jobs: the queue, the supervisors that run attempts in worker processes, retries and resume.
//!
//! A job's truth is in the records (`saggar_store::records`) and its checkpoints; everything here can be lost at any
//! instant and is rebuilt from them. Serving is elsewhere: a job that publishes writes a model version, which the
//! server finds as it finds any other.

mod commands;
mod curves;
mod effects;
pub mod ending;
pub mod error;
mod gauges;
pub mod launcher;
pub mod layout;
pub mod limits;
pub mod logs;
pub mod measure;
mod outputs;
mod owners;
pub mod phases;
pub mod placement;
pub mod protocol;
mod recorder;
mod room;
mod scheduler;
mod schedules;
mod shared;
pub mod spec;
mod supervisor;
pub mod worker;

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use saggar_metrics::Metrics;
use saggar_store::clock::{Clock, Millis};
use saggar_store::records::{Attempt, Details, Event, Job, JobFilter, MetricPoint, Reason, Records, Running, Spent};
use saggar_store::{Home, KeyFile};
use tokio::sync::watch;

pub use commands::{Submission, restarted};
pub use effects::{EffectLog, JobEffect, PublicationNotes};
pub use error::{JobError, LayoutError, SpecError};
pub use launcher::{Launcher, LocalLauncher};
pub use layout::{Allowance, Layout, Pool, Queue};
pub use phases::Phase;
pub use shared::Resolver;
pub use spec::{Cause, CheckpointEvery, ESTIMATE, JobSpec, Mount, Origin, Prediction, Source, Which, keep_best};
pub use worker::JobRights;

use placement::Verdict;
use room::Room;
use scheduler::Look;
use shared::Shared;

/// What stands for a job's name where whoever reads it may not see the job's project.
const OF_ANOTHER_PROJECT: &str = "a job of another project";

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

/// A piece of one of a job's series.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The series: `loss`.
    pub name: String,
    /// Its points from a step on, in order of steps.
    pub points: Vec<MetricPoint>,
    /// Whether it may have more after these.
    pub is_cut: bool,
}

/// Why a queued job waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Its place among those of its queue, from 1.
    pub position: u64,
    /// What it waits for.
    pub reason: Reason,
}

impl Jobs {
    /// Jobs recorded in `records`, with logs under `jobs_dir`. Nothing runs before [`Jobs::run`].
    pub fn new(
        records: Arc<dyn Records>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        launcher: Arc<dyn Launcher>,
        jobs_dir: PathBuf,
        layout: Layout,
    ) -> Jobs {
        Jobs { shared: Arc::new(Shared::new(records, clock, metrics, launcher, jobs_dir, layout)) }
    }

    /// Takes over what a killed server left, then runs jobs until `shutdown` is true; then has the running ones save
    /// their state, and returns when they have. They go on at the next start.
    ///
    /// # Errors
    /// `Records` where the jobs left behind cannot be taken over.
    pub async fn run(&self, shutdown: watch::Receiver<bool>) -> Result<(), JobError> {
        scheduler::recover(&self.shared).await?;
        scheduler::schedule(Arc::clone(&self.shared), shutdown).await;
        Ok(())
    }

    /// Pools, queues and allowances as they are now.
    pub fn layout(&self) -> Arc<Layout> {
        self.shared.layout()
    }

    /// Holds the jobs of each key to the limits that the file of keys names, as it is at each look at the queue.
    #[must_use]
    pub fn with_keys(self, keys: KeyFile) -> Jobs {
        self.shared.follow_keys(keys);
        self
    }

    /// Holds what is recorded of running jobs, their series and logs, to the limit on all that is stored.
    #[must_use]
    pub fn with_storage_quota(self, limit_bytes: Option<u64>, home: Home, models_dir: PathBuf) -> Jobs {
        self.shared.limit_storage(Room::new(limit_bytes, home, models_dir));
        self
    }

    /// Has workers killed that give no sign of life for `max`, and their attempts counted as lost.
    #[must_use]
    pub fn with_worker_silence(self, max: Duration) -> Jobs {
        self.shared.limit_worker_silence(max);
        self
    }

    /// Has what the jobs of schedules refer to looked up by `resolver` when their time has come, as it is for other jobs when
    /// they are submitted. Only the first one counts.
    pub fn resolve_by(&self, resolver: Resolver) {
        self.shared.resolve_by(resolver);
    }

    /// Has what jobs and schedules do to things outside of them, or are refused, written down by `log`. Only the first one
    /// counts.
    pub fn log_effects_to(&self, log: EffectLog) {
        self.shared.log_effects_to(log);
    }

    /// Has jobs' logs say what `notes` has to say of the versions that they publish. Only the first one counts.
    pub fn note_publications_by(&self, notes: PublicationNotes) {
        self.shared.note_publications_by(notes);
    }

    /// Jobs that run, with the pools they have their slots from.
    ///
    /// # Errors
    /// `Records`.
    pub async fn running(&self) -> Result<Vec<Running>, JobError> {
        self.shared.records(|records| records.running()).await
    }

    /// How many jobs wait in each queue that any waits in.
    ///
    /// # Errors
    /// `Records`.
    pub async fn queued(&self) -> Result<HashMap<String, usize>, JobError> {
        let waiting = self.shared.records(|records| records.queued()).await?;
        let mut counts = HashMap::new();
        waiting.into_iter().for_each(|job| *counts.entry(job.demand.queue).or_default() += 1);
        Ok(counts)
    }

    /// What jobs took so far, by project and key.
    ///
    /// # Errors
    /// `Records`.
    pub async fn spent(&self) -> Result<Vec<Spent>, JobError> {
        self.shared.records(|records| records.spent()).await
    }

    /// Why each queued job waits, by identifier. One that is about to start is the first, for no reason. Reasons name the
    /// jobs of those projects only that `sees` lets the reader see.
    ///
    /// # Errors
    /// `Records`.
    pub async fn waits(&self, sees: impl Fn(&str) -> bool) -> Result<HashMap<String, Wait>, JobError> {
        let mut look = Look::take(&self.shared).await?;
        // Verdicts go by identifiers: a name is only ever told.
        for job in look.running.iter_mut().filter(|job| !sees(&job.project)) {
            job.name = OF_ANOTHER_PROJECT.to_owned();
        }
        // Thousands of jobs may wait.
        let placed = tokio::task::spawn_blocking(move || (look.verdicts(), look)).await;
        let (verdicts, look) = placed.map_err(std::io::Error::other)?;
        let waits = look.waiting.into_iter().zip(verdicts).map(|(job, verdict)| match verdict {
            Verdict::Wait { position, reason, .. } => (job.id, Wait { position, reason }),
            Verdict::Start { .. } => (job.id, Wait { position: 1, reason: job.reason }),
        });
        Ok(waits.collect())
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

    /// Events of any job after a sequence number, oldest first.
    ///
    /// # Errors
    /// `Records`.
    pub async fn events_of_all(&self, after: u64) -> Result<Vec<Event>, JobError> {
        self.shared.records(move |records| records.events(None, after, 0)).await
    }

    /// The sequence of the newest event of any job; 0 before the first.
    ///
    /// # Errors
    /// `Records`.
    pub async fn newest_event(&self) -> Result<u64, JobError> {
        self.shared.records(|records| records.newest_event()).await
    }

    /// The newest events of a job, oldest first.
    ///
    /// # Errors
    /// `Records`.
    pub async fn newest_events(&self, id: &str, limit: u32) -> Result<Vec<Event>, JobError> {
        let id = id.to_owned();
        self.shared.records(move |records| records.newest_events(&id, limit)).await
    }

    /// The events of some kinds of a job, oldest first: of those in [`phases::KINDS`], what [`phases::of`] reads.
    ///
    /// # Errors
    /// `Records`.
    pub async fn events_of_kinds(&self, id: &str, kinds: &'static [&'static str]) -> Result<Vec<Event>, JobError> {
        let id = id.to_owned();
        self.shared.records(move |records| records.events_of_kinds(&id, kinds)).await
    }

    /// Attempts and last points of jobs, by identifier. Those that are not there are left out.
    ///
    /// # Errors
    /// `Records`.
    pub async fn details(&self, ids: Vec<String>) -> Result<HashMap<String, Details>, JobError> {
        self.shared.records(move |records| records.details(&ids)).await
    }

    /// Attempts and last points of one job.
    ///
    /// # Errors
    /// `NotFound`, `Records`.
    pub async fn details_of(&self, id: &str) -> Result<Details, JobError> {
        let found = self.details(vec![id.to_owned()]).await?.remove(id);
        found.ok_or_else(|| JobError::no_job(id))
    }

    /// Some of a job's series from a step on, with `points_max` points in all; long ones have what short ones leave of their
    /// share. A series that is cut has one point at least, unless there are more names than points.
    ///
    /// # Errors
    /// `Records`.
    pub async fn curves(
        &self,
        id: &str,
        names: Vec<String>,
        from_step: u64,
        points_max: usize,
    ) -> Result<Vec<Curve>, JobError> {
        let id = id.to_owned();
        self.shared.records(move |records| curves::read(records, &id, names, from_step, points_max)).await
    }

    /// Names of a job's series, sorted.
    ///
    /// # Errors
    /// `Records`.
    pub async fn series_names(&self, id: &str) -> Result<Vec<String>, JobError> {
        let id = id.to_owned();
        self.shared.records(move |records| records.series_names(&id)).await
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

    /// The last whole lines of an attempt's log before byte `end`, and where they begin and end: of `bytes_max` bytes, and of more
    /// where not one would come otherwise. `id` is the job's identifier. An attempt that has no log yet gives none.
    ///
    /// # Errors
    /// `Io`.
    pub async fn log_back(
        &self,
        id: &str,
        attempt: u32,
        end: u64,
        bytes_max: u64,
    ) -> Result<(String, Range<u64>), JobError> {
        let path = logs::log_path(&self.shared.jobs_dir, id, attempt);
        let read = tokio::task::spawn_blocking(move || logs::read_back(&path, end, bytes_max)).await;
        Ok(read.map_err(std::io::Error::other)??)
    }

    /// When the job's attempt did its last step, or began; none where no attempt of it runs here.
    pub fn advanced_ms(&self, id: &str) -> Option<Millis> {
        self.shared.advanced().get(id).copied()
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
