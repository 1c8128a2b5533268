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
/// Bytes of a job's parameters as JSON.
pub const PARAMETERS_BYTES_MAX: usize = 64 << 10;
/// How long a worker may take to save its state after it was told to stop, before it is killed.
pub const STOP_GRACE: Duration = Duration::from_secs(30);
/// How often a worker reports its usage.
pub const USAGE_INTERVAL: Duration = Duration::from_millis(500);
/// How long the series of a finished job stay in `/metrics`.
pub const SERIES_LINGER: Duration = Duration::from_secs(600);
/// Checkpoints kept for a job.
pub const CHECKPOINTS_KEPT: usize = 3;

const _: () = assert!(LOG_LINE_BYTES_MAX < EVENT_BYTES_MAX);
