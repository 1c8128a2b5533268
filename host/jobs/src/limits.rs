//! Named maxima of jobs.

use std::time::Duration;

/// Bytes of one line of a worker's event stream; a longer one ends the attempt.
pub const EVENT_BYTES_MAX: usize = 1 << 20;
/// Bytes of one log line; the rest is cut.
pub const LOG_LINE_BYTES_MAX: usize = 8 << 10;
/// Bytes of one attempt's log; past it lines are counted, not kept.
pub const LOG_BYTES_MAX: u64 = 64 << 20;
/// Extra attempts a job may ask for.
pub const RETRY_MAX: u32 = 1000;
/// Datasets one job may mount.
pub const MOUNTS_MAX: usize = 16;
/// Bytes of a prediction job's answers together: they are in memory until they are all there.
pub const PREDICTIONS_BYTES_MAX: u64 = 1 << 30;
/// How long a model may take for one batch of a prediction job.
pub const PREDICTION_BATCH_TIME_MAX: Duration = Duration::from_secs(600);
/// Bytes of what a user says of a job.
pub const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// Bytes of a job's parameters as JSON.
pub const PARAMETERS_BYTES_MAX: usize = 64 << 10;
/// How long a worker may take to save its state after it was told to stop, before it is killed.
pub const STOP_GRACE: Duration = Duration::from_secs(30);
/// How long a worker may take to read a command.
pub const COMMAND_TIME_MAX: Duration = Duration::from_secs(30);
/// What is added to a worker's badness (proc_pid_oom_score_adj(5)), in thousandths of all memory: where memory is short the
/// system kills a worker before the server, and a compile child, which has the most, before a worker.
pub const WORKER_OOM_SCORE_ADJUSTMENT: u32 = 500;
/// How often a worker says that it runs, on a thread that does nothing else.
pub const WORKER_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// How long a worker whose device is lost may take to end by itself.
pub const LOST_DEVICE_GRACE: Duration = Duration::from_secs(10);
/// How long a worker may give no sign of life before it is killed and its attempt counts as lost.
pub const WORKER_SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long one of an attempt's worker processes may be silent while the others wait for it.
pub const RANK_SILENCE_MAX: Duration = Duration::from_secs(600);
/// Bytes of one message between them: a shard's gradients, or a checkpoint.
pub const RANK_MESSAGE_BYTES_MAX: u64 = 16 << 30;
/// Means over worker processes whose times wait to be reported together.
pub const ALL_REDUCE_TIMES_BUFFERED: usize = 64;
/// How often a worker reports its usage.
pub const USAGE_INTERVAL: Duration = Duration::from_millis(500);
/// How long the series of a finished job stay in `/metrics`.
pub const SERIES_RETENTION_TIME: Duration = Duration::from_secs(600);
/// When a training saves its first checkpoint, where nothing else was asked for.
pub const CHECKPOINT_FIRST: Duration = Duration::from_secs(1);
/// The shortest and the longest time between two checkpoints, where nothing else was asked for.
pub const CHECKPOINT_INTERVAL_MIN: Duration = Duration::from_secs(2);
/// See [`CHECKPOINT_INTERVAL_MIN`].
pub const CHECKPOINT_INTERVAL_MAX: Duration = Duration::from_secs(30);
/// The share of a training's time that saving checkpoints may take, in percent, within these intervals.
pub const CHECKPOINT_COST_PERCENT: u32 = 1;
/// The newest checkpoints that a job can ask to keep.
pub const CHECKPOINTS_KEPT_MAX: u32 = 10_000;
/// The highest priority.
pub const PRIORITY_MAX: u8 = 100;
/// Slots one job can take.
pub const SLOTS_MAX: f64 = 64.0;
/// How often a job's running time can be granted once more.
pub const EXTENSIONS_MAX: u32 = 1000;
/// Worker processes of one job, and parts of its batches.
pub const REPLICAS_MAX: u32 = 64;
/// Secrets that one job may read.
pub const SECRETS_MAX: usize = 32;
/// The longest time that an attempt waits after one that failed.
pub const BACKOFF_MAX: Duration = Duration::from_secs(60);

const _: () = assert!(LOG_LINE_BYTES_MAX < EVENT_BYTES_MAX);
const _: () = assert!(WORKER_SILENCE_MAX.as_secs() >= 10 * WORKER_HEARTBEAT_INTERVAL.as_secs());
