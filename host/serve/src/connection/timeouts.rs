//! How long the server waits for clients.

use std::time::Duration;

use crate::limits::{ANSWER_IDLE_MAX, DRAIN_TIME_MAX, HANDSHAKE_TIME_MAX, HEAD_TIME_MAX};

/// How long the server waits for clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionTimeouts {
    /// The time for a request's head, and between requests.
    pub(crate) head: Duration,
    /// The time for a TLS handshake.
    pub(crate) handshake: Duration,
    /// The time a client may block a response, in addition to the time that the bytes it takes allow.
    pub(crate) response: Duration,
    /// The time for requests in flight once the server stops.
    pub(crate) drain: Duration,
}

impl Default for ConnectionTimeouts {
    fn default() -> ConnectionTimeouts {
        ConnectionTimeouts {
            head: HEAD_TIME_MAX,
            handshake: HANDSHAKE_TIME_MAX,
            response: ANSWER_IDLE_MAX,
            drain: DRAIN_TIME_MAX,
        }
    }
}
