//! Leases: which server runs a job, for how long it may without renewing that, and what it is ordered to do with it.
//!
//! A claim gives a server a job for [`LEASE_MS`]. The server renews its leases long before they end. After a lease has
//! ended, any server can take the job away and queue it again; the epoch then rises, and every write of the previous
//! owner is refused. An owner that is late can still renew as long as nobody took the job away, so a database that was
//! gone for a while ends no attempt.

use saggar_clock::UnixMillis;

use super::{ActiveJob, ClaimedJob, JobLease, JobOrder, JobOrders, JobRecord, QueuedJob, StateReason, UsageTotal};
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

/// The queue when jobs are placed.
#[derive(Clone, Debug, Default)]
pub struct PlacementState {
    /// Queued jobs, as [`JobRecords::queued_jobs`](super::JobRecords::queued_jobs) orders them.
    pub waiting: Vec<QueuedJob>,
    /// Active jobs of all servers, oldest first.
    pub running: Vec<ActiveJob>,
    /// The earlier resource usage; empty if it was not asked for.
    pub spent: Vec<UsageTotal>,
}

/// A queued job that is to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedJob {
    /// Its identifier.
    pub id: String,
    /// The pool whose slots it takes.
    pub pool: String,
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

    /// Reads the queue, decides with `place`, claims the jobs that it returned for this server, and orders the preemptions,
    /// while no other server does the same. Jobs that cannot start or be preempted any more are left out. A draining host
    /// claims nothing. `with_usage` says whether `place` needs the usage.
    ///
    /// # Errors
    /// Returns `Database`.
    fn claim_placed(
        &self,
        server: &ServerIdentity,
        with_usage: bool,
        place: PlaceJobs<'_>,
        now_ms: UnixMillis,
    ) -> Result<Vec<PlacedClaim>, RecordError>;

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
