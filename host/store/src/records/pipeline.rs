//! Records of pipeline runs: what a run was started with, and the state of each step.

use std::fmt::Debug;

use saggar_clock::UnixMillis;

use super::StateReason;
use crate::error::RecordError;
use crate::rights::AccessRights;

/// Defines an enumeration of states with their names.
macro_rules! named_states {
    ($(#[$doc:meta])* $type:ident { $($(#[$state_doc:meta])* $state:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $type {
            $($(#[$state_doc])* $state,)*
        }

        impl $type {
            /// Every state.
            pub const ALL: &[$type] = &[$($type::$state),*];

            /// Returns the name that users see.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$state => $name,)*
                }
            }

            /// Returns the state of this name.
            pub fn from_name(name: &str) -> Option<$type> {
                $type::ALL.iter().copied().find(|state| state.name() == name)
            }
        }
    };
}

named_states! {
    /// The state of a pipeline run.
    PipelineRunState {
        /// Steps run or wait.
        Running = "RUNNING",
        /// Every step succeeded or was skipped.
        Succeeded = "SUCCEEDED",
        /// A step failed.
        Failed = "FAILED",
        /// A user stopped it.
        Cancelled = "CANCELLED",
    }
}

named_states! {
    /// The state of a step.
    PipelineStepState {
        /// Waits for other steps.
        Pending = "PENDING",
        /// Its job waits or runs, or its deployment is under way.
        Running = "RUNNING",
        /// Waits for a person.
        Waiting = "WAITING",
        /// Done.
        Succeeded = "SUCCEEDED",
        /// Failed, or needs a step that failed.
        Failed = "FAILED",
        /// Its condition is false.
        Skipped = "SKIPPED",
        /// Stopped by a user.
        Cancelled = "CANCELLED",
    }
}

impl PipelineRunState {
    /// Returns whether the state is final. A restart makes the run continue.
    pub const fn is_final(self) -> bool {
        match self {
            PipelineRunState::Running => false,
            PipelineRunState::Succeeded | PipelineRunState::Failed | PipelineRunState::Cancelled => true,
        }
    }
}

impl PipelineStepState {
    /// Returns whether the attempt is over.
    pub const fn is_final(self) -> bool {
        match self {
            PipelineStepState::Pending | PipelineStepState::Running | PipelineStepState::Waiting => false,
            PipelineStepState::Succeeded
            | PipelineStepState::Failed
            | PipelineStepState::Skipped
            | PipelineStepState::Cancelled => true,
        }
    }
}

/// A run to be recorded.
#[derive(Clone, Debug, Default)]
pub struct NewPipelineRun {
    /// The name of the pipeline, after which the run is numbered.
    pub pipeline: String,
    /// The project of its jobs.
    pub project: String,
    /// The plan: a JSON object.
    pub plan: String,
    /// The values of all parameters: a JSON object.
    pub params: String,
    /// The name of each step with the number of its items, in the order of the plan.
    pub steps: Vec<(String, u32)>,
    /// The key that started it.
    pub owner: Option<String>,
    /// The rights of that key.
    pub rights: AccessRights,
    /// A second run with the same key is not recorded.
    pub idempotency_key: Option<String>,
    /// The name of the run whose results it takes.
    pub reuse_from: Option<String>,
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineRunRecord {
    /// The identifier.
    pub id: String,
    /// The name: the pipeline's with a number.
    pub name: String,
    /// The name of the pipeline.
    pub pipeline: String,
    /// The project of its jobs.
    pub project: String,
    /// The plan: a JSON object.
    pub plan: String,
    /// The values of all parameters: a JSON object.
    pub params: String,
    /// The state.
    pub state: PipelineRunState,
    /// The reason for the state.
    pub reason: StateReason,
    /// Why it was asked to stop, if it was.
    pub stop: Option<StateReason>,
    /// The key that started it.
    pub owner: Option<String>,
    /// The rights of that key.
    pub rights: AccessRights,
    /// When it was started.
    pub created_ms: UnixMillis,
    /// When it ended.
    pub finished_ms: Option<UnixMillis>,
    /// The name of the run whose results it takes.
    pub reuse_from: Option<String>,
    /// Increases with every run.
    pub cursor: u64,
}

/// An attempt of an item of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineStepRecord {
    /// The position of the step in the plan.
    pub position: u32,
    /// The number of the item; 0 for a step without items.
    pub item: u32,
    /// The number of the attempt, from 1. A restart begins another attempt; retries of a job are attempts of the job.
    pub attempt: u32,
    /// The name of the step.
    pub step: String,
    /// The state.
    pub state: PipelineStepState,
    /// The reason for the state.
    pub reason: StateReason,
    /// The name of its job.
    pub job: Option<String>,
    /// The run whose result it uses instead of computing.
    pub cached_from: Option<String>,
    /// The digest of everything that its result depends on.
    pub cache_key: Option<String>,
    /// What it read, with digests: a JSON array.
    pub inputs: String,
    /// Its outputs by name: a JSON object.
    pub outputs: String,
    /// When it started.
    pub started_ms: Option<UnixMillis>,
    /// When it ended.
    pub finished_ms: Option<UnixMillis>,
}

impl PipelineStepRecord {
    /// Returns what identifies the attempt in its run.
    pub fn key(&self) -> StepAttemptKey {
        StepAttemptKey { position: self.position, item: self.item, attempt: self.attempt }
    }
}

/// Identifies an attempt of an item of a step in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepAttemptKey {
    /// The position of the step in the plan.
    pub position: u32,
    /// The number of the item.
    pub item: u32,
    /// The number of the attempt.
    pub attempt: u32,
}

/// A change of an attempt. Members that are `None` keep their values.
#[derive(Clone, Debug, PartialEq)]
pub struct StepChange {
    /// The state that the attempt must have; otherwise nothing changes.
    pub from: PipelineStepState,
    /// The new state.
    pub to: PipelineStepState,
    /// The reason for the new state.
    pub reason: StateReason,
    /// The name of its job.
    pub job: Option<String>,
    /// The run whose result it uses.
    pub cached_from: Option<String>,
    /// The digest of everything that its result depends on.
    pub cache_key: Option<String>,
    /// What it read: a JSON array.
    pub inputs: Option<String>,
    /// Its outputs: a JSON object.
    pub outputs: Option<String>,
}

impl StepChange {
    /// Returns a change of the state alone.
    pub fn new(from: PipelineStepState, to: PipelineStepState, reason: StateReason) -> StepChange {
        StepChange { from, to, reason, job: None, cached_from: None, cache_key: None, inputs: None, outputs: None }
    }
}

/// A filter for listing runs, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PipelineRunFilter {
    /// Only runs of this pipeline.
    pub pipeline: Option<String>,
    /// Only runs of one of these projects. An empty list matches no run.
    pub projects: Option<Vec<String>>,
    /// Only runs in this state.
    pub state: Option<PipelineRunState>,
    /// The maximum number of runs; 0 means `limits::JOBS_LISTED_MAX`.
    pub limit: u32,
    /// Only runs older than the one with this cursor.
    pub before: Option<u64>,
}

/// A pipeline that starts at certain times.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineSchedule {
    /// Its name.
    pub name: String,
    /// The project of its runs.
    pub project: String,
    /// The times, as five cron fields in UTC.
    pub cron: String,
    /// The plan and the parameters: a JSON object.
    pub request: String,
    /// The key that created it.
    pub owner: Option<String>,
    /// The rights of that key at creation.
    pub rights: AccessRights,
    /// When it was created.
    pub created_ms: UnixMillis,
    /// Scheduled times up to this one have been handled.
    pub settled_ms: UnixMillis,
    /// The name of the last run that it started.
    pub last_run: Option<String>,
}

/// The records of all pipeline runs. Each method is one transaction and can block on the disk. Times are arguments.
/// What a run does next is decided elsewhere.
pub trait PipelineRecords: Debug + Send + Sync {
    /// Records a run whose steps are pending. If there is a run with the idempotency key, returns that one.
    ///
    /// # Errors
    /// Returns `Invalid` if a name, the plan or the key is not valid; `Database`.
    fn create_run(&self, run: &NewPipelineRun, now_ms: UnixMillis) -> Result<PipelineRunRecord, RecordError>;

    /// Returns the run with this idempotency key, or `None`.
    ///
    /// # Errors
    /// Returns `Database`.
    fn find_run_by_idempotency_key(&self, key: &str) -> Result<Option<PipelineRunRecord>, RecordError>;

    /// Returns the run with this name or identifier.
    ///
    /// # Errors
    /// Returns `NoSuchRun`; `Database`.
    fn get_run(&self, name_or_id: &str) -> Result<PipelineRunRecord, RecordError>;

    /// Returns runs, newest first.
    ///
    /// # Errors
    /// Returns `Database`.
    fn list_runs(&self, filter: &PipelineRunFilter) -> Result<Vec<PipelineRunRecord>, RecordError>;

    /// Returns the runs that are not over, oldest first.
    ///
    /// # Errors
    /// Returns `Database`.
    fn unfinished_runs(&self) -> Result<Vec<PipelineRunRecord>, RecordError>;

    /// Returns every attempt of every step, by position, item and attempt.
    ///
    /// # Errors
    /// Returns `Database`.
    fn steps(&self, run: &str) -> Result<Vec<PipelineStepRecord>, RecordError>;

    /// Changes an attempt if it has the expected state, is the newest of its step and the run is not over. Returns
    /// whether it did.
    ///
    /// # Errors
    /// Returns `Database`.
    fn change_step(
        &self,
        run: &str,
        key: StepAttemptKey,
        change: &StepChange,
        now_ms: UnixMillis,
    ) -> Result<bool, RecordError>;

    /// Ends a run that is not over. Returns whether it did.
    ///
    /// # Errors
    /// Returns `Database`.
    fn finish_run(
        &self,
        run: &str,
        state: PipelineRunState,
        reason: &StateReason,
        now_ms: UnixMillis,
    ) -> Result<bool, RecordError>;

    /// Records that a run was asked to stop. Returns `false` if it is over.
    ///
    /// # Errors
    /// Returns `Database`.
    fn request_run_stop(&self, run: &str, reason: &StateReason) -> Result<bool, RecordError>;

    /// Makes a run that is over continue: each of these items of steps, given as position and item, begins another
    /// attempt, which is pending. Returns `false` if the run is not over.
    ///
    /// # Errors
    /// Returns `Database`.
    fn restart_run(&self, run: &str, items: &[(u32, u32)]) -> Result<bool, RecordError>;

    /// Returns the newest attempt that succeeded with this cache key, with the name of its run, among the runs of a
    /// project.
    ///
    /// # Errors
    /// Returns `Database`.
    fn find_cached_step(
        &self,
        project: &str,
        cache_key: &str,
    ) -> Result<Option<(String, PipelineStepRecord)>, RecordError>;

    /// Returns the name of an unfinished run that a job belongs to, or `None`.
    ///
    /// # Errors
    /// Returns `Database`.
    fn unfinished_run_of_job(&self, job: &str) -> Result<Option<String>, RecordError>;

    /// Deletes a run that is over. Returns `false` if it is not over or does not exist.
    ///
    /// # Errors
    /// Returns `Database`.
    fn remove_run(&self, run: &str) -> Result<bool, RecordError>;

    /// Records a schedule, replacing any with the same name.
    ///
    /// # Errors
    /// Returns `Invalid` if its name or request is not valid; `Database`.
    fn put_pipeline_schedule(&self, schedule: &PipelineSchedule) -> Result<(), RecordError>;

    /// Returns the schedules, sorted by name.
    ///
    /// # Errors
    /// Returns `Database`.
    fn pipeline_schedules(&self) -> Result<Vec<PipelineSchedule>, RecordError>;

    /// Deletes a schedule. Returns `false` if it does not exist.
    ///
    /// # Errors
    /// Returns `Database`.
    fn remove_pipeline_schedule(&self, name: &str) -> Result<bool, RecordError>;

    /// Records that a schedule's times up to `due_ms` are handled, by this run or, if `None`, by skipping them. Returns
    /// `false` if they were handled already, or the schedule does not exist.
    ///
    /// # Errors
    /// Returns `Database`.
    fn advance_pipeline_schedule(&self, name: &str, due_ms: UnixMillis, run: Option<&str>)
    -> Result<bool, RecordError>;
}
