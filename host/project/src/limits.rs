//! Limits of project files.

/// Bytes of a project file.
pub const MANIFEST_BYTES_MAX: usize = 1 << 20;
/// Mistakes that are reported at once. A file with more is probably of another kind.
pub const DIAGNOSTICS_MAX: usize = 64;
/// Extra attempts of a task.
pub const RETRY_MAX: u32 = 1000;
/// Automatic extensions of a job's `max_runtime`.
pub const AUTO_EXTEND_MAX: u32 = 1000;
/// Checkpoints that a task keeps.
pub const KEEP_LAST_MAX: u32 = 10_000;
/// The highest priority of a job.
pub const PRIORITY_MAX: u32 = 100;
/// Worker processes that train one job together.
pub const REPLICAS_MAX: u32 = 64;
/// Labels of a job, a pool or a host.
pub const LABELS_MAX: usize = 32;
/// Slots of a pool, and slots of one job.
pub const SLOTS_MAX: u32 = 64;
/// Concurrent jobs of a queue or a project.
pub const RUNNING_JOBS_MAX: u32 = 1024;
/// Characters of a name.
pub const NAME_LETTERS_MAX: usize = 63;
/// Steps of a pipeline, with those of nested pipelines.
pub const PIPELINE_STEPS_MAX: usize = 500;
/// Items of a step's `for_each`, and of a parameter that is a list.
pub const PIPELINE_ITEMS_MAX: usize = 256;
/// Steps of a run, with each item of a step counted.
pub const PIPELINE_INSTANCES_MAX: usize = 2000;
/// Parameters of a pipeline.
pub const PIPELINE_PARAMS_MAX: usize = 100;
/// Bytes of a parameter that is a text.
pub const PIPELINE_TEXT_BYTES_MAX: usize = 16 << 10;
/// Depth of pipelines in pipelines.
pub const PIPELINE_DEPTH_MAX: usize = 8;
/// Devices of one kind in a job of an engine.
pub const ENGINE_LIMIT_MAX: u32 = 64;
