//! Time as an argument: logic that needs the current time takes a [`Clock`], so that tests control it.
//!
//! Deliberately elsewhere: elapsed time, which [`std::time::Instant`] measures. It never jumps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970-01-01 UTC, leap seconds ignored.
pub type UnixMillis = u64;

/// A source of the current time. Called often, from any thread; never blocks.
pub trait Clock: std::fmt::Debug + Send + Sync {
    /// Returns the current time. It can jump, also backwards, so it must not order events.
    fn now_ms(&self) -> UnixMillis;
}

/// The machine's clock. A time before 1970 reads as 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> UnixMillis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A clock that changes only when a test sets it.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Returns a clock that shows `now_ms`.
    pub fn new(now_ms: UnixMillis) -> ManualClock {
        ManualClock(AtomicU64::new(now_ms))
    }

    /// Sets the time.
    pub fn set(&self, now_ms: UnixMillis) {
        self.0.store(now_ms, Ordering::SeqCst);
    }

    /// Moves the time forward.
    pub fn advance(&self, by_ms: UnixMillis) {
        self.0.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> UnixMillis {
        self.0.load(Ordering::SeqCst)
    }
}
