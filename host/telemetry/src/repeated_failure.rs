//! Work that is repeated at intervals and can fail for a long time, for example because a store does not answer. The log
//! says so when it fails first, then once a minute, and when it succeeds again.

use std::fmt::Display;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Time between two lines about work that goes on failing.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// What the log says about one kind of work.
#[derive(Debug)]
pub struct RepeatedFailure {
    /// What the failure means, as a sentence without a full stop.
    meaning: &'static str,
    failing: Mutex<Option<FailureTimes>>,
}

#[derive(Clone, Copy, Debug)]
struct FailureTimes {
    began: Instant,
    logged: Instant,
}

/// A line of the log.
#[derive(Debug, PartialEq, Eq)]
enum FailureLine {
    /// It fails, for this long.
    Fails(Duration),
    /// It succeeds again, after this long.
    Over(Duration),
}

impl RepeatedFailure {
    /// Returns the log of work whose failure has this meaning.
    pub const fn new(meaning: &'static str) -> RepeatedFailure {
        RepeatedFailure { meaning, failing: Mutex::new(None) }
    }

    /// Logs what is new about the work.
    pub fn log<E: Display>(&self, outcome: Result<(), E>) {
        let meaning = self.meaning;
        match (self.line(outcome.is_err(), Instant::now()), outcome) {
            (Some(FailureLine::Fails(time)), Err(error)) => {
                tracing::warn!(%error, seconds = time.as_secs(), "{meaning}; trying again");
            }
            (Some(FailureLine::Over(time)), _) => {
                tracing::info!(seconds = time.as_secs(), "this is over: {meaning}");
            }
            _ => {}
        }
    }

    fn line(&self, is_failed: bool, now: Instant) -> Option<FailureLine> {
        let mut failing = self.failing.lock();
        match (*failing, is_failed) {
            (None, false) => None,
            (Some(times), false) => {
                *failing = None;
                Some(FailureLine::Over(now - times.began))
            }
            (Some(times), true) if now - times.logged < LINE_INTERVAL => None,
            (times, true) => {
                let began = times.map_or(now, |times| times.began);
                *failing = Some(FailureTimes { began, logged: now });
                Some(FailureLine::Fails(now - began))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_failure_is_logged_when_it_begins_each_minute_and_when_it_is_over() {
        let (failure, begin) = (RepeatedFailure::new("nothing is synchronized"), Instant::now());
        let at = |seconds: u64, is_failed| failure.line(is_failed, begin + Duration::from_secs(seconds));
        assert_eq!(at(0, false), None);
        let fails = |seconds| Some(FailureLine::Fails(Duration::from_secs(seconds)));
        let lines: Vec<_> = (10..150).step_by(2).map(|seconds| at(seconds, true)).collect();
        assert_eq!(lines.iter().flatten().count(), 3);
        assert_eq!((&lines[0], &lines[30], &lines[60]), (&fails(0), &fails(60), &fails(120)));
        assert_eq!(at(160, false), Some(FailureLine::Over(Duration::from_secs(150))));
        assert_eq!((at(162, false), at(164, true)), (None, fails(0)));
    }
}
