//! The decision whether a version that was sent may become visible.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use crate::error::StoreError;

/// A publication that was registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingPublication {
    /// The identifier, which no other publication has.
    pub id: String,
    /// The model.
    pub model: String,
    /// The number of the version.
    pub version: u64,
}

/// Decides whether a version that was sent may become visible. Called after all its files are stored, and just before it
/// becomes visible.
pub trait PublicationFence: Debug + Send + Sync {
    /// Registers a publication, or the next number of its version if another version has this one. Can wait for the database.
    ///
    /// # Errors
    /// Returns `Io` if the publisher may not publish any more.
    fn register(&self, publication: &PendingPublication) -> Result<(), StoreError>;
}
