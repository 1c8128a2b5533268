//! Sampled predictions become datasets: those of the model `digits` the dataset `recorded-digits`.
//!
//! Requests only copy what is drawn ([`sampler`]), into a bounded queue. A thread collects rows in a window for each model
//! ([`window`]) and publishes the window as a version when it is due ([`publisher`]). What does not fit or cannot be
//! stored is dropped and counted, and no request waits or fails.

mod npy_writer;
mod publisher;
mod sampler;
mod window;

use std::time::Duration;

pub use publisher::PredictionRecorder;

/// The prefix of the datasets' names.
pub const RECORDED_PREFIX: &str = "recorded-";

/// How the predictions of a model are recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordingPolicy {
    /// The share of predictions that is recorded, above 0 and at most 1.
    pub share: f64,
    /// The time after which recorded rows become a version.
    pub every: Duration,
    /// The most rows of a version, and the number of new rows that become a version at once.
    pub rows_max: usize,
    /// The most bytes of a version.
    pub bytes_max: usize,
}
