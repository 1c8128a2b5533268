//! Jobs, their attempts, and leases: the right to write a job's records.

use saggar_clock::UnixMillis;
use serde::{Deserialize, Serialize};

use super::host_labels::HostLabels;
use super::{AttemptHost, JobOrders, JobState, PausePoint, RoomClaim, StateReason};
use crate::rights::AccessRights;

/// A job to submit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewJob {
    /// The project, a valid name as for models. The job is named `<project>-<number>`.
    pub project: String,
    /// The task in the project file.
    pub task: String,
    /// The worker's full configuration: a JSON object.
    pub spec: String,
    /// The fields that the scheduler uses.
    pub demand: SchedulingRequest,
    /// A label that jobs share, across projects.
    pub experiment: Option<String>,
    /// The name of the key that submitted it.
    pub owner: Option<String>,
    /// The rights of that key.
    pub rights: AccessRights,
    /// Total steps; 0 if unknown.
    pub steps_target: u64,
    /// Where it pauses first.
    pub pause: Option<PausePoint>,
    /// Submitting again with the same key returns the same job.
    pub idempotency_key: Option<String>,
    /// The storage that its files are in: servers with other storage do not run it. Empty if every server has them.
    pub storage: String,
}

/// The scheduling parameters of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulingRequest {
    /// The queue.
    pub queue: String,
    /// Jobs of higher priority start first.
    pub priority: i32,
    /// Whether a job with precedence can preempt it; it resumes from its checkpoint later.
    pub preemptible: bool,
    /// `auto`, `cpu`, `gpu`, or a device's name.
    pub device: String,
    /// Slots that it occupies on each of its hosts, in thousandths.
    pub slots_milli: u32,
    /// The labels that its host must have.
    #[serde(default, skip_serializing_if = "HostLabels::is_empty")]
    pub labels: HostLabels,
    /// The number of hosts that its ranks are on.
    #[serde(default = "one_host", skip_serializing_if = "is_one")]
    pub hosts: u32,
}

fn one_host() -> u32 {
    1
}

fn is_one(hosts: &u32) -> bool {
    *hosts == 1
}

impl Default for SchedulingRequest {
    /// Returns one slot of the default queue, on any device.
    fn default() -> SchedulingRequest {
        SchedulingRequest {
            queue: "default".to_owned(),
            priority: 0,
            preemptible: false,
            device: "auto".to_owned(),
            slots_milli: 1000,
            labels: HostLabels::new(),
            hosts: 1,
        }
    }
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobRecord {
    /// Unique for ever: 26 letters and digits that sort by time.
    pub id: String,
    /// `<project>-<number>`.
    pub name: String,
    /// The project.
    pub project: String,
    /// Its number within the project, from 1, never used twice.
    pub number: u64,
    /// The task in the project file.
    pub task: String,
    /// A JSON object.
    pub spec: String,
    /// The fields that the scheduler uses.
    pub demand: SchedulingRequest,
    /// A label that jobs share, across projects.
    pub experiment: Option<String>,
    /// The name of the key that submitted it.
    pub owner: Option<String>,
    /// The rights of that key at submission. Code that acts for the job must call [`AccessRights::refresh`].
    #[serde(skip)]
    pub rights: AccessRights,
    /// Its state.
    pub state: JobState,
    /// The reason for the state.
    pub reason: StateReason,
    /// The reason for stopping, once a stop was requested.
    pub stop: Option<StateReason>,
    /// Where it pauses, or is paused.
    pub pause: Option<PausePoint>,
    /// Whether it is paused: `Queued`, but not to be started.
    pub is_paused: bool,
    /// The time of submission.
    pub created_ms: UnixMillis,
    /// The time its first attempt started.
    pub started_ms: Option<UnixMillis>,
    /// The time it ended.
    pub finished_ms: Option<UnixMillis>,
    /// The earliest time at which it can be claimed.
    pub not_before_ms: UnixMillis,
    /// Steps completed.
    pub step: u64,
    /// Total steps; 0 if unknown.
    pub steps_target: u64,
    /// The fencing epoch: raised by every claim and every take-over.
    pub epoch: u64,
    /// Number of attempts started.
    pub attempts: u32,
    /// The name of the server that runs its newest attempt, or ran it. Empty if the records have one server only.
    pub server: String,
    /// The identifier of that server's state directory.
    #[serde(skip)]
    pub server_id: String,
    /// The token of the claim, which a [`JobLease`] must have too.
    #[serde(skip)]
    pub claim: String,
    /// What its attempt is ordered to do.
    #[serde(skip)]
    pub orders: JobOrders,
    /// Position in a listing; the cursor of [`JobFilter`](super::JobFilter).
    pub cursor: u64,
}

/// The fields of a queued job that scheduling needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedJob {
    /// Its identifier.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its project.
    pub project: String,
    /// The name of the key that submitted it.
    pub owner: Option<String>,
    /// Its scheduling parameters.
    pub demand: SchedulingRequest,
    /// The earliest time at which it can be claimed.
    pub not_before_ms: UnixMillis,
    /// How long before that time it was requeued: the maximum wait, even if the clock is set back.
    pub backoff_ms: UnixMillis,
    /// The reason why it was requeued; empty if it never ran.
    pub reason: StateReason,
    /// The storage that its files are in; empty if every server has them.
    pub storage: String,
    /// The server that makes room for it.
    pub room: Option<RoomClaim>,
    /// Number of attempts started.
    pub attempts: u32,
}

/// The fields of an active job that scheduling others needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveJob {
    /// Its identifier.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its project.
    pub project: String,
    /// The name of the key that submitted it.
    pub owner: Option<String>,
    /// Its scheduling parameters.
    pub demand: SchedulingRequest,
    /// The pool whose slots its attempt occupies, of the server that runs it.
    pub pool: String,
    /// The identifier of that server.
    pub server_id: String,
    /// The hosts of its attempt, in the order of their ranks, if it has several. The first one is that server.
    pub hosts: Vec<AttemptHost>,
    /// The time its attempt was claimed.
    pub started_ms: UnixMillis,
    /// `Starting`, `Running` or `Stopping`.
    pub state: JobState,
    /// What its attempt is ordered to do.
    pub orders: JobOrders,
}

impl ActiveJob {
    /// Returns the pool whose slots it occupies on the host with this identifier, or `None` if it occupies none there.
    pub fn pool_on(&self, host_id: &str) -> Option<&str> {
        if self.hosts.is_empty() {
            return (self.server_id == host_id).then_some(self.pool.as_str());
        }
        self.hosts.iter().find(|host| host.host_id == host_id).map(|host| host.pool.as_str())
    }
}

/// Total usage of the attempts of one project and key, including those of removed jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UsageTotal {
    /// The project.
    pub project: String,
    /// The key; `None` for jobs that were submitted without one.
    pub owner: Option<String>,
    /// Device time in seconds.
    pub gpu_seconds: f64,
    /// Wall time of attempts in seconds.
    pub wall_seconds: f64,
}

/// The right to write a job's records, valid until the job is claimed or taken over.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobLease {
    /// The job's identifier.
    pub job: String,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The fencing epoch.
    pub epoch: u64,
    /// The random token of the claim. A database that lost its newest commits could give the same epoch twice.
    #[serde(default)]
    pub claim: String,
}

/// A claimed job.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedJob {
    /// The job, in state `Starting`.
    pub job: JobRecord,
    /// The right to write its records.
    pub lease: JobLease,
}

/// Resource usage of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AttemptUsage {
    /// The first step it ran: the one after its checkpoint's.
    pub first_step: u64,
    /// The last step it ran.
    pub last_step: u64,
    /// Wall time in seconds.
    pub wall_seconds: f64,
    /// Device time in seconds.
    pub gpu_seconds: f64,
    /// Peak device memory in bytes.
    pub peak_bytes: u64,
    /// Number of training items.
    pub samples: u64,
    /// Seconds spent copying items to the device.
    pub data_seconds: f64,
    /// Seconds spent in all-reduce over worker processes.
    pub all_reduce_seconds: f64,
    /// Seconds spent saving checkpoints.
    pub checkpoint_seconds: f64,
}

/// An attempt to run a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobAttempt {
    /// Its number, from 1.
    pub number: u32,
    /// `Starting` and `Running`, then a final state; `Queued` if it was preempted.
    pub state: JobState,
    /// The reason why it ended.
    pub reason: StateReason,
    /// The device it ran on, once known.
    pub device: String,
    /// Whether device time is estimated as wall time around the work, because the device has no timer.
    pub seconds_estimated: bool,
    /// The pool whose slots it occupied.
    pub pool: String,
    /// The name of the server or worker that claimed it. Empty if the records have one server only.
    pub server: String,
    /// The names of its hosts, in the order of their ranks, if it had several.
    pub hosts: Vec<String>,
    /// The time it was claimed.
    pub started_ms: UnixMillis,
    /// The time it ended.
    pub ended_ms: Option<UnixMillis>,
    /// Its usage.
    pub usage: AttemptUsage,
}
