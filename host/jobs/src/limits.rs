//! Named maxima of jobs.

use std::time::Duration;

use saggar_store::records::LEASE_MS;

/// Time for a worker to end after it lost its lease, until it is killed.
pub const LEASE_LOST_GRACE: Duration = Duration::from_secs(5);
/// Maximum bytes of one line of a worker's event stream; a longer one ends the attempt.
pub const EVENT_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of one log line; the rest is cut.
pub const LOG_LINE_BYTES_MAX: usize = 8 << 10;
/// Maximum bytes of one attempt's log; further lines are counted, not stored.
pub const LOG_BYTES_MAX: u64 = 64 << 20;
/// Maximum extra attempts of a job.
pub const RETRY_MAX: u32 = 1000;
/// Maximum datasets that one job can mount.
pub const MOUNTS_MAX: usize = 16;
/// Maximum bytes of all answers of a prediction job, which are in memory until the job ends.
pub const PREDICTIONS_BYTES_MAX: u64 = 1 << 30;
/// Maximum time of a model for one batch of a prediction job.
pub const PREDICTION_BATCH_TIME_MAX: Duration = Duration::from_secs(600);
/// Maximum bytes of a user's message about a job.
pub const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// Maximum operands that a replay prints.
pub const PRINTED_OPERANDS_MAX: usize = 32;
/// Maximum bytes of the name of an operand to print.
pub const PRINTED_OPERAND_BYTES_MAX: usize = 512;
/// Maximum consecutive attempts without a recording, after which no later one is looked for.
pub const UNRECORDED_ATTEMPTS_MAX: u32 = 32;
/// Maximum bytes of a job's parameters as JSON.
pub const PARAMETERS_BYTES_MAX: usize = 64 << 10;
/// Maximum time for a worker to save its state after a stop request, before it is killed.
pub const STOP_GRACE: Duration = Duration::from_secs(30);
/// Maximum time for a worker to read a command.
pub const COMMAND_TIME_MAX: Duration = Duration::from_secs(30);

/// Maximum time for a worker to connect to a server on another machine.
pub const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Maximum bytes of a worker's first line.
pub const HELLO_BYTES_MAX: usize = 4 << 10;

/// Maximum time for a connection to send its first line.
pub const HELLO_TIME_MAX: Duration = Duration::from_secs(10);

/// Maximum connections that have not sent their first line.
pub const HELLOS_MAX: usize = 256;

/// Maximum time for the supervisor to receive the last events of a worker that is done.
pub const CLOSE_TIME_MAX: Duration = Duration::from_secs(30);

/// Maximum time without a heartbeat of a server on another machine before its worker ends.
pub const SERVER_SILENCE_MAX: Duration = Duration::from_secs(60);
/// The addition to a worker's OOM score (proc_pid_oom_score_adj(5)), in thousandths of all memory. If memory is
/// exhausted the system kills a worker before the server, and a compile child, which has the highest score, before a
/// worker.
pub const WORKER_OOM_SCORE_ADJUSTMENT: u32 = 500;
/// Time between two heartbeats of a worker, sent by a thread that does nothing else.
pub const WORKER_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum time for a worker whose device is lost to end.
pub const LOST_DEVICE_GRACE: Duration = Duration::from_secs(10);
/// Maximum time without a heartbeat before a worker is killed and its attempt counts as lost.
pub const WORKER_SILENCE_MAX: Duration = Duration::from_secs(60);
/// Maximum time that one of an attempt's worker processes can be silent while the others wait for it: longer than it waits
/// for a store.
pub const RANK_SILENCE_MAX: Duration = Duration::from_secs(720);
/// Time for which an attempt repeats an operation on a store of objects that does not answer. One operation of the store
/// takes up to [`saggar_store::limits::S3_RETRY_TIME_MAX`] more.
pub const STORE_OUTAGE_MAX: Duration = Duration::from_secs(600);
/// Time until the first repetition of such an operation; it doubles with each.
pub const STORE_OUTAGE_PAUSE_MIN: Duration = Duration::from_secs(1);
/// Maximum time between two repetitions of such an operation.
pub const STORE_OUTAGE_PAUSE_MAX: Duration = Duration::from_secs(15);
/// Maximum bytes of logged items that wait in memory while a store of objects does not answer; further ones are dropped.
pub const LOGGED_WAITING_BYTES_MAX: u64 = 64 << 20;
/// Time between two looks at stop requests while an attempt waits for a store.
pub const STORE_OUTAGE_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time without an answer of another host's machine before its ranks count as gone. A rank that lost its leader ends
/// within that time.
pub const RANK_UNREACHABLE_MAX: Duration = Duration::from_secs(12);
/// Maximum time for all ranks of other hosts to connect to rank 0.
pub const RANK_JOIN_TIME_MAX: Duration = Duration::from_secs(30);
/// Maximum time without a renewal of a host's row before no part of an attempt is placed there; a host that is not lost renews
/// it every 5 s.
pub const PART_HOST_UNSEEN_MAX: Duration = Duration::from_secs(12);
/// Maximum time for a process of a batch job to find its part of an attempt, which the first process claims.
pub const PART_WAIT_MAX: Duration = Duration::from_secs(60);
/// Maximum time for one connection to rank 0 to authenticate itself.
pub const RANK_HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum connections to rank 0 that authenticate themselves at the same time.
pub const RANK_HANDSHAKES_MAX: usize = 64;
/// Maximum bytes of the first message of a rank.
pub const RANK_HELLO_BYTES_MAX: u32 = 4 << 10;
/// Maximum refused connections that the log of an attempt names.
pub const RANK_REFUSALS_LOGGED_MAX: usize = 16;
/// Maximum bytes of one message between worker processes: a shard's gradients, or a checkpoint.
pub const RANK_MESSAGE_BYTES_MAX: u64 = 16 << 30;
/// Durations of all-reduce operations that are buffered before they are reported together.
pub const ALL_REDUCE_TIMES_BUFFERED: usize = 64;
/// Time without a renewal of its lease after which a worker no longer knows that its attempt owns the job.
pub const LEASE_UNSURE_AFTER: Duration = Duration::from_secs(12);
/// Maximum time without a renewal before a worker ends, and a supervisor gives its attempt up.
pub const LEASE_UNSURE_MAX: Duration = Duration::from_secs(600);
/// Time between two looks of a worker at its lease.
pub const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two usage reports of a worker.
pub const USAGE_INTERVAL: Duration = Duration::from_millis(500);
/// How long the series of a finished job stay in `/metrics`.
pub const SERIES_RETENTION_TIME: Duration = Duration::from_secs(600);
/// Time until a training's first checkpoint, by default.
pub const CHECKPOINT_FIRST: Duration = Duration::from_secs(1);
/// Minimum time between two checkpoints, by default.
pub const CHECKPOINT_INTERVAL_MIN: Duration = Duration::from_secs(2);
/// Maximum time between two checkpoints, by default.
pub const CHECKPOINT_INTERVAL_MAX: Duration = Duration::from_secs(30);
/// Maximum share of a training's time for saving checkpoints, in percent, within these intervals.
pub const CHECKPOINT_COST_PERCENT: u32 = 1;
/// Maximum number of newest checkpoints that a job can keep.
pub const CHECKPOINTS_KEPT_MAX: u32 = 10_000;
/// The highest priority.
pub const PRIORITY_MAX: u8 = 100;
/// Maximum slots of one job.
pub const SLOTS_MAX: f64 = 64.0;
/// Maximum extensions of a job's running time.
pub const EXTENSIONS_MAX: u32 = 1000;
/// Maximum worker processes of one job, and parts of its batches.
pub const REPLICAS_MAX: u32 = 64;
/// Maximum secrets that one job can read.
pub const SECRETS_MAX: usize = 32;
/// Maximum delay of an attempt after a failed one.
pub const BACKOFF_MAX: Duration = Duration::from_secs(60);

// An owner that is late stops writing before another server can own the job.
const _: () = assert!(LEASE_UNSURE_AFTER.as_millis() + 2_000 < LEASE_MS as u128);
// A host that is cut off has ended its ranks before the lease of the attempt is over.
const _: () = assert!(RANK_UNREACHABLE_MAX.as_millis() < LEASE_MS as u128);
const _: () = assert!(LOG_LINE_BYTES_MAX < EVENT_BYTES_MAX);
const _: () = assert!(SERVER_SILENCE_MAX.as_secs() >= 10 * WORKER_HEARTBEAT_INTERVAL.as_secs());
const _: () = assert!(WORKER_SILENCE_MAX.as_secs() >= 10 * WORKER_HEARTBEAT_INTERVAL.as_secs());
/// The maximum memory of a notebook without another limit, in bytes.
pub const NOTEBOOK_MEMORY_BYTES_DEFAULT: u64 = 4 << 30;
/// The maximum size of a file of a notebook that becomes an output, in bytes.
pub const NOTEBOOK_FILE_BYTES_MAX: u64 = 1 << 30;
/// The time between two looks at a notebook.
pub const NOTEBOOK_POLL: Duration = Duration::from_millis(500);
/// The time between two checks of the rights of a notebook's key.
pub const NOTEBOOK_RIGHTS_INTERVAL: Duration = Duration::from_secs(2);
/// The maximum time without an answer of a notebook, after which it is ended.
pub const NOTEBOOK_SILENCE_MAX: Duration = Duration::from_secs(120);
