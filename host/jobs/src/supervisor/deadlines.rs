//! The time limits of an attempt.

use std::time::Duration;

use tokio::time::Instant;

use crate::spec::JobSpec;

/// The action that a time limit requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DueAction {
    /// No limit is reached.
    Nothing,
    /// The job's time is up, and it is extended.
    Extend {
        /// The number of this extension, from 1.
        number: u32,
        /// The maximum number of extensions.
        of: u32,
    },
    /// The attempt's time is up: the job is queued again.
    Recycle,
    /// The job's time is up.
    TimeOut,
}

/// An attempt's deadlines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptDeadlines {
    /// The end of the job's time, and the length of an extension.
    job: Option<(Instant, Duration)>,
    attempt: Option<Instant>,
    extensions: u32,
    extensions_max: u32,
}

impl AttemptDeadlines {
    /// Starts the limits of an attempt, for a job that ran for `used` seconds before and was extended `extensions`
    /// times.
    pub(crate) fn start(spec: &JobSpec, used: f64, extensions: u32) -> AttemptDeadlines {
        let now = Instant::now();
        let job = spec.max_runtime_seconds.map(|most| {
            let left = most.mul_add(1.0 + f64::from(extensions), -used).max(0.0);
            (after(now, left), duration_from_seconds(most))
        });
        let attempt = spec.max_attempt_runtime_seconds.map(|most| after(now, most));
        AttemptDeadlines { job, attempt, extensions, extensions_max: spec.auto_extend }
    }

    /// Returns the action that is due. An extension is returned once.
    pub(crate) fn next_action(&mut self, now: Instant) -> DueAction {
        if let Some((deadline, more)) = self.job.filter(|(deadline, _)| now >= *deadline) {
            if self.extensions >= self.extensions_max {
                return DueAction::TimeOut;
            }
            self.extensions += 1;
            self.job = Some((deadline.checked_add(more).unwrap_or(deadline), more));
            return DueAction::Extend { number: self.extensions, of: self.extensions_max };
        }
        if self.attempt.is_some_and(|deadline| now >= deadline) { DueAction::Recycle } else { DueAction::Nothing }
    }
}

/// Converts seconds to a duration of at most a century.
fn duration_from_seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 3.2e9))
}

fn after(now: Instant, seconds: f64) -> Instant {
    now + duration_from_seconds(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> JobSpec {
        JobSpec::new("p", "0".repeat(64))
    }

    #[test]
    fn auto_extend_grants_the_runtime_that_often_and_then_times_out() {
        let spec = JobSpec { max_runtime_seconds: Some(10.0), auto_extend: 2, ..spec() };
        let mut clock = AttemptDeadlines::start(&spec, 4.0, 0);
        let at = |seconds| Instant::now() + Duration::from_secs(seconds);
        assert_eq!(clock.next_action(at(5)), DueAction::Nothing);
        assert_eq!(clock.next_action(at(7)), DueAction::Extend { number: 1, of: 2 });
        assert_eq!(clock.next_action(at(7)), DueAction::Nothing);
        assert_eq!(clock.next_action(at(17)), DueAction::Extend { number: 2, of: 2 });
        assert_eq!(clock.next_action(at(25)), DueAction::Nothing);
        assert_eq!(clock.next_action(at(27)), DueAction::TimeOut);
        // An attempt after an interruption knows the earlier extensions.
        let mut clock = AttemptDeadlines::start(&spec, 15.0, 1);
        assert_eq!(clock.next_action(at(4)), DueAction::Nothing);
        assert_eq!(clock.next_action(at(6)), DueAction::Extend { number: 2, of: 2 });
    }

    #[test]
    fn an_attempt_is_recycled_after_its_own_runtime_limit() {
        let spec = JobSpec { max_attempt_runtime_seconds: Some(5.0), ..spec() };
        let mut clock = AttemptDeadlines::start(&spec, 100.0, 0);
        assert_eq!(clock.next_action(Instant::now()), DueAction::Nothing);
        assert_eq!(clock.next_action(Instant::now() + Duration::from_secs(6)), DueAction::Recycle);
        let both = JobSpec { max_runtime_seconds: Some(1.0), ..spec };
        assert_eq!(AttemptDeadlines::start(&both, 1.0, 0).next_action(Instant::now()), DueAction::TimeOut);
        let endless = JobSpec { max_runtime_seconds: Some(f64::MAX), ..both };
        assert_eq!(AttemptDeadlines::start(&endless, 1.0, 0).next_action(Instant::now()), DueAction::Nothing);
    }
}
