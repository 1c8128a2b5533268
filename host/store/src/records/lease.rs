//! Leases: which server runs a job, for how long it may without renewing that, and what it is ordered to do with it.
//!
//! A claim gives a server a job for [`LEASE_MS`]. The server renews its leases long before they end. After a lease has
//! ended, any server can take the job away and queue it again; the epoch then rises, and every write of the previous
//! owner is refused. An owner that is late can still renew as long as nobody took the job away, so a database that was
//! gone for a while ends no attempt.

use std::collections::HashSet;

use saggar_clock::UnixMillis;

use super::{
    ActiveJob, AttemptHost, ClaimedJob, HostRecord, JobLease, JobOrder, JobOrders, JobRecord, QueuedJob, StateReason,
    UsageTotal,
};
use crate::error::RecordError;

/// Milliseconds for which a claim or a renewal is valid, by the database's clock.
pub const LEASE_MS: u64 = 15_000;

/// Milliseconds for which only one server makes room for a queued job: preempted jobs have 30 s to save their state, and then
/// the job starts.
pub const ROOM_CLAIM_MS: u64 = 45_000;

/// A server that runs jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerIdentity {
    /// Its name, for people. Empty if the records have one server only.
    pub name: String,
    /// The identifier of its state directory, by which a restarted server knows its own jobs.
    pub id: String,
    /// The identifier of the storage that its files are in. Servers with the same storage can run each other's jobs.
    pub storage: String,
}

/// The waiting jobs that a placement reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueSelection {
    /// None: only the running jobs are read, which say whether any could start.
    None,
    /// The first jobs in scheduling order. Mostly one of them can start.
    First,
    /// The first jobs of each group: jobs with the same scheduling parameters, project, key and storage. Of those, the first
    /// ones decide whether any can start.
    Groups,
    /// Only the job with this identifier.
    Job(String),
}

/// What a placement needs to read.
#[derive(Clone, Copy, Debug)]
pub struct PlacementQuery<'a> {
    /// The server that jobs are placed on.
    pub server: &'a ServerIdentity,
    /// The jobs that are placed.
    pub selection: &'a QueueSelection,
    /// Whether slots of pools are common to all servers, so that the jobs of all are read one by one.
    pub with_common_pools: bool,
    /// Whether a limit counts the jobs that run on other servers.
    pub with_other_servers: bool,
    /// Whether a limit counts the earlier resource usage.
    pub with_usage: bool,
    /// The current time.
    pub now_ms: UnixMillis,
}

/// The queue when jobs are placed. A long queue is not read as a whole, but as [`QueueSelection`] says.
#[derive(Clone, Debug, Default)]
pub struct PlacementState {
    /// Queued jobs, as [`JobRecords::queued_jobs`](super::JobRecords::queued_jobs) orders them.
    pub waiting: Vec<QueuedJob>,
    /// The identifiers of jobs after which others wait that were not read: the last one of each group, or the last one of all.
    pub unread_after: HashSet<String>,
    /// Active jobs, oldest first: those of this server, or of all servers.
    pub running: Vec<ActiveJob>,
    /// The active jobs that are not in `running`, counted; empty if no limit counts them.
    pub running_elsewhere: Vec<RunningCount>,
    /// The earlier resource usage; empty if no limit counts it.
    pub spent: Vec<UsageTotal>,
    /// All hosts, if a job that waits needs several. `running` then has the jobs of all servers.
    pub hosts: Vec<HostRecord>,
}

/// The number of active jobs with the same queue, project and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningCount {
    /// The queue.
    pub queue: String,
    /// The project.
    pub project: String,
    /// The name of the key that submitted them.
    pub owner: Option<String>,
    /// How many there are.
    pub jobs: u32,
}

/// The numbers of unfinished jobs of a queue and project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueCount {
    /// The queue.
    pub queue: String,
    /// The project.
    pub project: String,
    /// Queued jobs that are not paused.
    pub waiting: u64,
    /// Active jobs, on all servers.
    pub running: u64,
}

/// A queued job that is to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedJob {
    /// Its identifier.
    pub id: String,
    /// The pool whose slots it takes.
    pub pool: String,
    /// Its hosts, in the order of their ranks, if it has several. The first one is the server that claims it.
    pub hosts: Vec<AttemptHost>,
}

/// A running job that is to make room for a queued one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedPreemption {
    /// The running job's identifier.
    pub id: String,
    /// The identifier of the job that gets its slots.
    pub waiting: String,
    /// The reason, for the running job's record.
    pub reason: StateReason,
}

/// What a placement decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobPlacements {
    /// The jobs to start.
    pub start: Vec<PlacedJob>,
    /// The jobs to preempt.
    pub preempt: Vec<PlacedPreemption>,
}

/// A job that was placed and claimed.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedClaim {
    /// The claimed job.
    pub claim: ClaimedJob,
    /// The pool whose slots it takes.
    pub pool: String,
}

/// Decides which queued jobs start, and which running ones make room. Called in a transaction that can be repeated, so it has
/// no other effects.
pub type PlaceJobs<'a> = &'a dyn Fn(&PlacementState) -> JobPlacements;

/// The outcome of a renewal.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseRenewal {
    /// The lease is valid for another [`LEASE_MS`].
    Renewed {
        /// What the attempt is ordered to do.
        orders: JobOrders,
        /// The reason of a request to stop the job, or `None`.
        stop: Option<StateReason>,
    },
    /// The job was taken away, has ended or is removed: the attempt must end.
    Lost,
}

/// What becomes of a job whose owner is gone.
#[derive(Clone, Debug, PartialEq)]
pub enum LostJobDecision {
    /// It is queued again.
    Requeue(StateReason),
    /// It has failed, because it is not to be retried after this.
    Fail(StateReason),
}

/// Decides what becomes of a job whose owner is gone. Called in a transaction that can be repeated.
pub type DecideLostJob<'a> = &'a dyn Fn(&JobRecord) -> LostJobDecision;

/// The records of leases. Each method is one transaction.
pub trait LeaseRecords: std::fmt::Debug + Send + Sync {
    /// Returns whether other servers can use the same records, so that leases must be renewed.
    fn is_shared(&self) -> bool;

    /// Reads what a placement needs. Jobs whose earliest time of a start has not come are left out.
    ///
    /// # Errors
    /// Returns `Database`.
    fn placement_state(&self, query: &PlacementQuery<'_>) -> Result<PlacementState, RecordError>;

    /// Reads the same, decides with `place`, claims the jobs that it returned for the server, and orders the preemptions,
    /// while no other server does the same. Jobs that cannot start or be preempted any more are left out. A draining host
    /// claims nothing.
    ///
    /// # Errors
    /// Returns `Database`.
    fn claim_placed(&self, query: &PlacementQuery<'_>, place: PlaceJobs<'_>) -> Result<Vec<PlacedClaim>, RecordError>;

    /// Returns the numbers of unfinished jobs of each queue and project that has any, by name.
    ///
    /// # Errors
    /// Returns `Database`.
    fn queue_counts(&self) -> Result<Vec<QueueCount>, RecordError>;

    /// Renews leases, in the order given, also those that are over and were not taken away yet.
    ///
    /// # Errors
    /// Returns `Database`, if it is not known which ones were renewed.
    fn renew_leases(&self, leases: &[JobLease]) -> Result<Vec<LeaseRenewal>, RecordError>;

    /// Takes away jobs whose lease is over, which fences their owners, and queues or fails each as `decide` says.
    /// Returns them as they are then. Takes none while the database's server has run for less than a lease: the owners
    /// could not renew before that.
    ///
    /// # Errors
    /// Returns `Database`.
    fn reap_expired(&self, decide: DecideLostJob<'_>, now_ms: UnixMillis) -> Result<Vec<JobRecord>, RecordError>;

    /// Records an order for an active job, which its owner learns from the job's record and from its next renewal.
    ///
    /// # Errors
    /// Returns `NoSuchJob`; `Finished`; `Invalid` if the job is queued; `Database`.
    fn order(&self, id: &str, order: &JobOrder) -> Result<JobRecord, RecordError>;

    /// Records an event of an attempt.
    ///
    /// # Errors
    /// Returns `Fenced`; `Finished`; `NoSuchJob`; `Database`.
    fn record_attempt_event(
        &self,
        lease: &JobLease,
        kind: &str,
        text: &str,
        now_ms: UnixMillis,
    ) -> Result<(), RecordError>;

    /// Returns `Fenced` or `Finished` if a lease is over: another claim owns the job.
    ///
    /// # Errors
    /// Returns the same; `NoSuchJob`; `Database`.
    fn check_lease(&self, lease: &JobLease) -> Result<(), RecordError>;
}
