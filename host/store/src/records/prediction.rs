//! Predictions that clients can query on any server of shared records.
//!
//! The process that computes a prediction creates its row, renews it, and ends it once. A row that was not renewed for
//! [`PREDICTION_LOST_MS`] belongs to a process that is gone. The first that ends a row decides how the prediction ended:
//! the process with a result, another server with a cancellation, or a reader that finds that the process is gone.

use std::fmt::Debug;

use crate::error::RecordError;

/// Milliseconds without a renewal after which the process that computes a prediction is gone, by the clock of leases.
pub(super) const PREDICTION_LOST_MS: u64 = 15_000;

/// The owner and the identifier of a prediction. The owner is the identifier of a key, or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PredictionKey {
    /// The owner.
    pub owner: String,
    /// The identifier, which is unique for the owner.
    pub id: String,
}

/// A prediction that begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewPrediction {
    /// Its owner and identifier.
    pub key: PredictionKey,
    /// The identifier of the process that computes it.
    pub process: String,
    /// The name of that process's server.
    pub server: String,
    /// The digest of the request, or empty if the server chose the identifier.
    pub digest: String,
    /// What clients see of it.
    pub content: String,
}

/// A prediction as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedPrediction {
    /// The identifier of the process that computes it.
    pub process: String,
    /// The name of that process's server.
    pub server: String,
    /// The digest of the request, or empty.
    pub digest: String,
    /// What clients see of it, or empty if that is in an object.
    pub content: String,
    /// The name of the object with what clients see of it, or empty.
    pub object: String,
    /// Whether it has ended.
    pub is_over: bool,
    /// Whether it has not ended, and the process that computes it is gone.
    pub is_lost: bool,
}

/// The records of predictions. Each method is one transaction.
pub trait PredictionRecords: Debug + Send + Sync {
    /// Records a prediction that begins. Returns `false` and changes nothing if the owner has one of this identifier.
    ///
    /// # Errors
    /// Returns `Database`.
    fn create_prediction(&self, new: &NewPrediction) -> Result<bool, RecordError>;

    /// Returns a prediction, or `None`.
    ///
    /// # Errors
    /// Returns `Database`.
    fn prediction(&self, key: &PredictionKey) -> Result<Option<RecordedPrediction>, RecordError>;

    /// Records that a process still computes its predictions. Returns those that have not ended.
    ///
    /// # Errors
    /// Returns `Database`.
    fn renew_predictions(&self, process: &str) -> Result<Vec<PredictionKey>, RecordError>;

    /// Ends a prediction of this process, unless it has ended. Either `content` or `object` is empty. Returns whether it did.
    ///
    /// # Errors
    /// Returns `Database`.
    fn finish_prediction(
        &self,
        key: &PredictionKey,
        process: &str,
        content: &str,
        object: &str,
    ) -> Result<bool, RecordError>;

    /// Removes predictions that ended more than `age_ms` ago, and the oldest of those that ended, down to `count_max`. Returns
    /// the names of their objects.
    ///
    /// # Errors
    /// Returns `Database`.
    fn remove_old_predictions(&self, age_ms: u64, count_max: u64) -> Result<Vec<String>, RecordError>;
}
