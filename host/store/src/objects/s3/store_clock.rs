//! The clock of a store, by the header `Date` of its answers. A store refuses requests whose time differs from its own by
//! more than some minutes, and its answers to those show the difference.

use std::time::{Duration, Instant};

use jiff::fmt::rfc2822::DateTimeParser;
use parking_lot::Mutex;
use saggar_clock::UnixMillis;

/// The time in the last answer.
#[derive(Debug, Default)]
pub(in crate::objects) struct StoreClock {
    last: Mutex<Option<(i64, Instant)>>,
}

impl StoreClock {
    /// Remembers the time in an answer that arrived now. A header that is not a date is ignored.
    pub(super) fn observe(&self, date: &str) {
        if let Ok(time) = DateTimeParser::new().parse_timestamp(date) {
            *self.last.lock() = Some((time.as_millisecond(), Instant::now()));
        }
    }

    /// Returns the store's clock minus that of this machine, to a second, or `None` if no answer had a time. `now_ms` is
    /// the time of this machine.
    pub(in crate::objects) fn skew(&self, now_ms: UnixMillis) -> Option<ClockSkew> {
        let (store_ms, at) = (*self.last.lock())?;
        let here_ms = i64::try_from(now_ms).ok()?.checked_sub(i64::try_from(at.elapsed().as_millis()).ok()?)?;
        // The header is a whole second: the store's time is in the second after it.
        Some(ClockSkew { ms: (store_ms + 500).saturating_sub(here_ms) })
    }
}

/// The clock of a store minus that of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSkew {
    ms: i64,
}

impl ClockSkew {
    /// Returns the difference, to a second, whichever clock is ahead.
    pub fn distance(self) -> Duration {
        Duration::from_millis(self.ms.unsigned_abs())
    }

    /// Returns whether the store's clock is ahead.
    pub fn is_store_ahead(self) -> bool {
        self.ms > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_skew_is_that_of_the_last_answer() {
        let clock = StoreClock::default();
        assert_eq!(clock.skew(0), None);
        clock.observe("Sun, 06 Nov 1994 08:49:37 GMT");
        clock.observe("not a date");
        let skew = clock.skew(784_111_777_000 + 60_000).unwrap();
        assert!(!skew.is_store_ahead() && skew.distance().as_secs().abs_diff(60) <= 1, "{skew:?}");
        let skew = clock.skew(784_111_777_000 - 60_000).unwrap();
        assert!(skew.is_store_ahead() && skew.distance().as_secs().abs_diff(60) <= 1, "{skew:?}");
    }
}
