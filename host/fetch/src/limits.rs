//! Named maxima of fetching.

use std::time::Duration;

/// Maximum time of a fetch with all its redirects.
pub const FETCH_TIME_MAX: Duration = Duration::from_secs(600);
/// Maximum time for connecting to a server.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum time until the head of a response has arrived.
pub(crate) const RESPONSE_TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum fetches that run at once.
pub const FETCHES_MAX: usize = 4;
/// Maximum redirects of a fetch.
pub const REDIRECTS_MAX: u32 = 5;
/// Maximum bytes of a URL.
pub(crate) const URL_BYTES_MAX: usize = 2048;
/// Bytes that are read at once.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
