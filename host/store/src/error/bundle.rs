//! Errors of bundles, the files in which model versions are copied.

use thiserror::Error;

use crate::digest::Digest;

/// The reason for which a bundle is refused. Nothing of it was stored.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The file is not a bundle.
    #[error("the file is not a bundle: {reason}; `saggar models export` writes one")]
    NotBundle {
        /// What was found instead.
        reason: String,
    },
    /// It has another version of the format.
    #[error("{what} has format {found}, and this build reads format {expected}")]
    OtherFormat {
        /// The entry.
        what: &'static str,
        /// Its format.
        found: u64,
        /// The format that this build reads.
        expected: u64,
    },
    /// It ends too early.
    #[error("{name} is cut off: {expected} bytes are expected, and {found} follow; copy the bundle again")]
    Truncated {
        /// The entry.
        name: String,
        /// Bytes that are expected.
        expected: u64,
        /// Bytes that follow.
        found: u64,
    },
    /// It lacks an entry.
    #[error("{name} is missing")]
    Missing {
        /// The entry.
        name: &'static str,
    },
    /// An entry has another size than the manifest says.
    #[error("{name} has {found} bytes, and manifest.json says {expected}")]
    WrongSize {
        /// The entry.
        name: String,
        /// Bytes according to the manifest.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// An entry has another content than its digest says.
    #[error("{name} has SHA-256 {found}, and the bundle says {expected}: it was changed or damaged")]
    WrongDigest {
        /// The entry.
        name: String,
        /// Digest according to the bundle.
        expected: Digest,
        /// Digest found.
        found: Digest,
    },
    /// An entry is malformed, or does not belong into a bundle.
    #[error("{name}: {reason}")]
    Entry {
        /// The entry.
        name: String,
        /// The reason.
        reason: String,
    },
    /// Bytes follow the end of the archive.
    #[error("{bytes} bytes follow the end of the archive, or its last two blocks are not empty")]
    Trailing {
        /// Their number.
        bytes: u64,
    },
}
