//! Limits of external runs. Those of a run are MLflow's where it has one.

/// Experiments.
pub const EXPERIMENTS_MAX: u64 = 10_000;
/// Runs.
pub const RUNS_MAX: u64 = 100_000;
/// Parameters of a run, and tags of it.
pub const TEXTS_MAX: u64 = 1000;
/// Bytes of all parameters and tags of a run.
pub const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Metrics of a run.
pub const METRIC_KEYS_MAX: u64 = 1000;
/// Values of all metrics of a run.
pub const POINTS_MAX: u64 = 1_000_000;
/// Characters of the name of a metric, parameter or tag.
pub const KEY_CHARS_MAX: usize = 250;
/// Characters of the value of a parameter or tag.
pub const VALUE_CHARS_MAX: usize = 8000;
/// Characters of the name of an experiment or run.
pub const NAME_CHARS_MAX: usize = 250;
