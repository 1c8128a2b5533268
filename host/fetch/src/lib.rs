//! Fetches a file of another server whose SHA-256 is known.
//!
//! A request must not make this machine call arbitrary hosts, so an operator lists the URLs that can be fetched
//! ([`FetchPolicy`]). The rule holds for the first URL and for every redirect:
//!
//! 1. The URL continues one of the allowed prefixes, with the same scheme, host and port.
//! 2. A host name does not resolve to a private address, unless the policy allows it: loopback, private, link-local,
//!    shared (RFC 6598), multicast and unspecified addresses, also when they are embedded in IPv6. A prefix that names
//!    such an address itself, or `localhost`, allows that address. The address that was checked is the one that is
//!    connected to.
//!
//! No proxy is used and no credentials are sent. The body is bounded in bytes and time, and a file exists under its
//! final name only once its digest was verified.

mod address_rule;
mod error;
mod fetcher;
mod limits;
mod url_prefix;

pub use error::FetchError;
pub use fetcher::{FetchPolicy, FetchRequest, FetchedFile, RemoteFetcher};
pub use limits::{FETCH_TIME_MAX, FETCHES_MAX, REDIRECTS_MAX};
pub use url_prefix::{UrlPrefix, UrlPrefixError, file_name_of_url};
