//! Documents: small texts that are replaced as a whole, and that all servers of the records have in common.

use std::collections::BTreeMap;

use crate::error::RecordError;

/// A document as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedDocument {
    /// Increases with each replacement, from 1.
    pub revision: u64,
    /// The text.
    pub text: String,
}

/// The records of documents. Each method is one transaction.
pub trait DocumentRecords: std::fmt::Debug + Send + Sync {
    /// Returns a document if its revision is higher than `after`, else `None`. With 0, returns any that was created.
    ///
    /// # Errors
    /// Returns `Database`.
    fn document(&self, name: &str, after: u64) -> Result<Option<RecordedDocument>, RecordError>;

    /// Returns the revision of each document whose name begins with `prefix`, by name.
    ///
    /// # Errors
    /// Returns `Database`.
    fn document_revisions(&self, prefix: &str) -> Result<BTreeMap<String, u64>, RecordError>;

    /// Replaces a document if it still has this revision, where 0 means that it does not exist. Returns whether it did. Its
    /// name is one or more names, separated by `/`.
    ///
    /// # Errors
    /// Returns `Invalid` if the name or the text is not valid; `Database`.
    fn replace_document(&self, name: &str, revision: u64, text: &str) -> Result<bool, RecordError>;
}
