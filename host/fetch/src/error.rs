//! Errors of fetching. URLs in them have no query, which can contain a secret.

use saggar_store::{Digest, StoreError};
use thiserror::Error;

use crate::limits::{FETCHES_MAX, REDIRECTS_MAX};

/// Why a file was not fetched. Nothing of it is kept.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The operator allows no address.
    #[error("this server fetches nothing; `saggar serve --fetch-from {url}` lets it fetch from there")]
    Disabled {
        /// The URL.
        url: String,
    },
    /// The text is not a URL that can be fetched.
    #[error("{url:?}: {reason}")]
    BadUrl {
        /// The text.
        url: String,
        /// The reason.
        reason: String,
    },
    /// No allowed prefix matches the URL.
    #[error("{url}: this server fetches only from {allowed}; `saggar serve --fetch-from ADDRESS` allows more")]
    NotAllowed {
        /// The URL, or the target of a redirect.
        url: String,
        /// The allowed prefixes.
        allowed: String,
    },
    /// The host's name resolves to a private address.
    #[error(
        "{url}: its name resolves to the private address {address}; `saggar serve --fetch-private` allows such names, \
         and `--fetch-from` with the address itself allows that address"
    )]
    PrivateAddress {
        /// The URL, or the target of a redirect.
        url: String,
        /// The address.
        address: std::net::IpAddr,
    },
    /// Too many fetches run already.
    #[error("{FETCHES_MAX} files are being fetched already, which is the limit: try again later")]
    Busy,
    /// The server redirects too often.
    #[error("{url}: more than {REDIRECTS_MAX} redirects")]
    Redirects {
        /// The first URL.
        url: String,
    },
    /// The server answered with another status than 200.
    #[error("{url}: the server answered {status}, expected 200")]
    Status {
        /// The URL.
        url: String,
        /// The status.
        status: u16,
    },
    /// The connection failed or broke off, or the server was too slow.
    #[error("{url}: {reason}")]
    Connection {
        /// The URL.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The body is larger than the maximum.
    #[error("{url}: more than {bytes_max} bytes")]
    TooLarge {
        /// The URL.
        url: String,
        /// The maximum in bytes.
        bytes_max: u64,
    },
    /// The body has another digest.
    #[error("{url}: SHA-256 {found}, expected {expected}; the file has changed, or the digest is of another file")]
    WrongDigest {
        /// The URL.
        url: String,
        /// The digest of what was received.
        found: Digest,
        /// The given digest.
        expected: Digest,
    },
    /// The file could not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}
