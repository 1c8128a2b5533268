//! Hyper-parameter searches, called sweeps. A trial of a sweep is a job; trials that are stopped early and may continue
//! are paused jobs, so that no step is trained twice.
//!
//! [`decision`] decides, as a pure function of the records, which trials start, continue and stop. [`SweepService::run`]
//! records each decision and only then makes the jobs follow it, so that a server that is killed at any instant goes on
//! with the same trials and decisions. A trial's job is submitted under an idempotency key of the sweep and the trial's
//! number. Placement of jobs on devices is elsewhere, in `saggar_jobs::placement`.

pub mod decision;
pub mod error;
pub mod importance;
pub mod limits;
mod perturbation;
pub mod space;
pub mod spec;
mod sweep_loop;
mod sweep_metrics;
mod tpe_sampler;
mod trial_jobs;

use std::sync::Arc;

use saggar_clock::Clock;
use saggar_jobs::{JobError, JobService};
use saggar_store::AccessRights;
use saggar_store::records::{JobRecords, NewSweep, StateReason, SweepRecord, TrialRecord};
use tokio::sync::Notify;

pub use error::{RangeError, SweepError, SweepSpecError};
pub use importance::{ParameterImportance, parameter_importance};
pub use spec::{SweepMethod, SweepSpec, ValidSweep};

use sweep_metrics::SweepMetrics;

/// The sweeps of one server. Cheap to clone.
#[derive(Clone)]
pub struct SweepService {
    shared: Arc<SharedSweeps>,
}

struct SharedSweeps {
    jobs: JobService,
    records: Arc<dyn JobRecords>,
    clock: Arc<dyn Clock>,
    wake: Notify,
    metrics: SweepMetrics,
}

impl std::fmt::Debug for SweepService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sweeps").finish_non_exhaustive()
    }
}

/// A sweep to be created.
#[derive(Clone, Debug)]
pub struct SweepSubmission {
    /// The specification, with the references of its job resolved.
    pub sweep: ValidSweep,
    /// The name of the submitting key.
    pub owner: Option<String>,
    /// The access rights of that key.
    pub rights: AccessRights,
    /// A submission with an already used key returns the existing sweep.
    pub idempotency_key: Option<String>,
}

impl SweepService {
    /// Creates the service for sweeps whose trials are jobs of `jobs`. No trial starts before [`SweepService::run`].
    pub fn new(jobs: JobService) -> SweepService {
        let (records, clock, wake) = (jobs.records(), jobs.clock(), Notify::new());
        let metrics = SweepMetrics::new(jobs.metrics());
        SweepService { shared: Arc::new(SharedSweeps { jobs, records, clock, wake, metrics }) }
    }

    /// Records a sweep, whose trials then start.
    ///
    /// # Errors
    /// `Records`, also if too many sweeps are not over.
    pub async fn create(&self, submission: SweepSubmission) -> Result<SweepRecord, SweepError> {
        let SweepSubmission { sweep, owner, rights, idempotency_key } = submission;
        let new = NewSweep {
            project: sweep.spec.job.project.clone(),
            spec: serde_json::to_string(&sweep.spec).expect("a specification is plain data"),
            owner,
            rights,
            idempotency_key,
        };
        let now_ms = self.shared.clock.now_ms();
        let created = self.with_records(move |records| records.create_sweep(&new, now_ms)).await?;
        self.shared.wake.notify_one();
        Ok(created)
    }

    /// Returns the sweep that was created under this idempotency key, or `None`.
    ///
    /// # Errors
    /// `Records`.
    pub async fn sweep_by_idempotency_key(&self, key: &str) -> Result<Option<SweepRecord>, SweepError> {
        let key = key.to_owned();
        self.with_records(move |records| records.find_sweep_by_idempotency_key(&key)).await
    }

    /// Returns the sweep with this name or identifier.
    ///
    /// # Errors
    /// `NotFound`; `Records`.
    pub async fn get(&self, name: &str) -> Result<SweepRecord, SweepError> {
        let asked = name.to_owned();
        let found = self.with_records(move |records| records.find_sweep(&asked)).await?;
        found.ok_or_else(|| SweepError::NotFound { name: name.to_owned() })
    }

    /// Returns sweeps, newest first; with `projects`, only those of these projects.
    ///
    /// # Errors
    /// `Records`.
    pub async fn list(&self, projects: Option<Vec<String>>) -> Result<Vec<SweepRecord>, SweepError> {
        self.with_records(move |records| records.list_sweeps(projects.as_deref())).await
    }

    /// Returns the trials of a sweep, by number.
    ///
    /// # Errors
    /// `Records`.
    pub async fn trials(&self, id: &str) -> Result<Vec<TrialRecord>, SweepError> {
        let id = id.to_owned();
        self.with_records(move |records| records.trials(&id)).await
    }

    /// Stops a sweep: its running trials save their state and pause, and no other trial starts.
    ///
    /// # Errors
    /// `NotFound`; `Over`; `Records`.
    pub async fn stop(&self, name: &str) -> Result<SweepRecord, SweepError> {
        let sentence = "stopped by a user; its trials are paused";
        self.set_stopped(name, Some(StateReason::new("STOPPED", sentence))).await
    }

    /// Resumes a stopped sweep: its trials continue where they paused.
    ///
    /// # Errors
    /// `NotFound`; `Over`; `Records`.
    pub async fn resume(&self, name: &str) -> Result<SweepRecord, SweepError> {
        self.set_stopped(name, None).await
    }

    async fn set_stopped(&self, name: &str, reason: Option<StateReason>) -> Result<SweepRecord, SweepError> {
        let sweep = self.get(name).await?;
        let id = sweep.id.clone();
        if !self.with_records(move |records| records.set_sweep_stopped(&id, reason.as_ref())).await? {
            return Err(SweepError::Over { name: sweep.name, state: sweep.state.name() });
        }
        self.shared.wake.notify_one();
        self.get(&sweep.id).await
    }

    /// Runs a function on the records, on a thread that may wait for the disk.
    async fn with_records<T: Send + 'static>(
        &self,
        use_them: impl FnOnce(&dyn JobRecords) -> Result<T, saggar_store::error::RecordError> + Send + 'static,
    ) -> Result<T, SweepError> {
        let records = Arc::clone(&self.shared.records);
        let done = tokio::task::spawn_blocking(move || use_them(&*records)).await;
        Ok(done.map_err(std::io::Error::other)??)
    }
}

/// Returns whether a job could not be reached for a reason that can pass.
fn is_temporary(error: &SweepError) -> bool {
    match error {
        SweepError::Job(JobError::Records(saggar_store::error::RecordError::QueueFull { .. })) => true,
        SweepError::Job(error) => error.is_server_fault(),
        SweepError::Records(_) | SweepError::Io(_) => true,
        SweepError::Spec(_)
        | SweepError::NotFound { .. }
        | SweepError::Over { .. }
        | SweepError::NotOver { .. }
        | SweepError::NoResult { .. }
        | SweepError::JobRemoved { .. }
        | SweepError::NoModel { .. }
        | SweepError::NoWeights { .. }
        | SweepError::NotPromoted { .. } => false,
    }
}
