//! The requests that clients made with each key, on all servers of shared records.

use std::fmt::Debug;

use saggar_clock::UnixMillis;

use crate::error::RecordError;

/// Requests of a key since the start of a day or month.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyRequests {
    /// The identifier of the key.
    pub key_id: String,
    /// The start of the day or month.
    pub since_ms: UnixMillis,
    /// The number of requests.
    pub requests: u64,
}

/// The records of the usage of keys. Each method is one transaction.
pub trait KeyUsageRecords: Debug + Send + Sync {
    /// Adds requests, and returns the sums of the same keys and periods on all servers, sorted. Adding 0 reads a sum. Sums of
    /// periods that began more than 70 days before the newest one are removed.
    ///
    /// # Errors
    /// Returns `Database`; nothing is added then.
    fn add_key_requests(&self, added: &[KeyRequests]) -> Result<Vec<KeyRequests>, RecordError>;
}
