//! When a value that is slow to read is read again.

use std::time::{Duration, Instant};

/// A value is read again after this multiple of the time that reading it took, so that at most a twentieth of the time is
/// spent on it.
const PAUSE_FACTOR: u32 = 20;

/// The pace of repeated reads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RefreshPace {
    /// When the last read ended, and how long it took.
    last: Option<(Instant, Duration)>,
}

impl RefreshPace {
    /// Returns whether it is time to read.
    pub(crate) fn is_due(&self) -> bool {
        self.age().is_none_or(|age| age >= self.pause())
    }

    /// Returns how long the last read took; zero before the first.
    pub(crate) fn cost(&self) -> Duration {
        self.last.map_or(Duration::ZERO, |(_, cost)| cost)
    }

    /// Returns how long after the last read the next one is due.
    pub(crate) fn pause(&self) -> Duration {
        self.cost() * PAUSE_FACTOR
    }

    /// Returns the time since the last read, or `None` before the first.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.last.map(|(ended, _)| ended.elapsed())
    }

    /// Waits for a read and measures it.
    pub(crate) async fn measure<T>(&mut self, read: impl Future<Output = T>) -> T {
        let started = Instant::now();
        let value = read.await;
        self.last = Some((Instant::now(), started.elapsed()));
        value
    }
}
