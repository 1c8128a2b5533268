//! Named maxima of project files.

/// Bytes of a project file.
pub const MANIFEST_BYTES_MAX: usize = 1 << 20;
/// Mistakes that are told at once; a file with more is another kind of file.
pub const DIAGNOSTICS_MAX: usize = 64;
/// Extra attempts that a task may ask for.
pub const RETRY_MAX: u32 = 1000;
/// Times that a job's `max_runtime` may be extended by itself.
pub const AUTO_EXTEND_MAX: u32 = 1000;
/// Checkpoints that a task may keep.
pub const KEEP_LAST_MAX: u32 = 10_000;
/// The highest priority of a job.
pub const PRIORITY_MAX: u32 = 100;
/// Workers that train one job together.
pub const REPLICAS_MAX: u32 = 64;
/// Slots of a pool, and slots that a job may take.
pub const SLOTS_MAX: u32 = 64;
/// Jobs that a queue or a project may run at once.
pub const RUNNING_JOBS_MAX: u32 = 1024;
/// Steps of one pipeline.
pub const STEPS_MAX: usize = 256;
/// Letters of a name.
pub const NAME_LETTERS_MAX: usize = 63;
