//! How long an attempt may run.

use std::time::Duration;

use tokio::time::Instant;

use crate::spec::JobSpec;

/// What an attempt's time says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// It may go on.
    Nothing,
    /// The job's time was up, and it is granted once more.
    Extend {
        /// Which extension this is, from 1.
        number: u32,
        /// How many there can be.
        of: u32,
    },
    /// The attempt's time is up: the job is queued again.
    Recycle,
    /// The job's time is up.
    TimeOut,
}

/// An attempt's deadlines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptClock {
    /// When the job's time is up, and what an extension adds.
    job: Option<(Instant, Duration)>,
    attempt: Option<Instant>,
    extensions: u32,
    extensions_max: u32,
}

impl AttemptClock {
    /// The clock of an attempt that starts now, at a job that ran for `used` seconds and was extended `extensions` times.
    pub(crate) fn start(spec: &JobSpec, used: f64, extensions: u32) -> AttemptClock {
        let now = Instant::now();
        let job = spec.max_runtime_seconds.map(|most| {
            let left = most.mul_add(1.0 + f64::from(extensions), -used).max(0.0);
            (after(now, left), duration(most))
        });
        let attempt = spec.max_attempt_runtime_seconds.map(|most| after(now, most));
        AttemptClock { job, attempt, extensions, extensions_max: spec.auto_extend }
    }

    /// What is due. An extension is due once.
    pub(crate) fn due(&mut self, now: Instant) -> Due {
        if let Some((deadline, more)) = self.job.filter(|(deadline, _)| now >= *deadline) {
            if self.extensions >= self.extensions_max {
                return Due::TimeOut;
            }
            self.extensions += 1;
            self.job = Some((deadline.checked_add(more).unwrap_or(deadline), more));
            return Due::Extend { number: self.extensions, of: self.extensions_max };
        }
        if self.attempt.is_some_and(|deadline| now >= deadline) { Due::Recycle } else { Due::Nothing }
    }
}

/// Seconds as a duration; more than a century is a century.
fn duration(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 3.2e9))
}

fn after(now: Instant, seconds: f64) -> Instant {
    now + duration(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> JobSpec {
        JobSpec::new("p", "0".repeat(64))
    }

    #[test]
    fn time_is_granted_as_often_as_it_may_and_then_ends() {
        let spec = JobSpec { max_runtime_seconds: Some(10.0), auto_extend: 2, ..spec() };
        let mut clock = AttemptClock::start(&spec, 4.0, 0);
        let at = |seconds| Instant::now() + Duration::from_secs(seconds);
        assert_eq!(clock.due(at(5)), Due::Nothing);
        assert_eq!(clock.due(at(7)), Due::Extend { number: 1, of: 2 });
        assert_eq!(clock.due(at(7)), Due::Nothing);
        assert_eq!(clock.due(at(17)), Due::Extend { number: 2, of: 2 });
        assert_eq!(clock.due(at(25)), Due::Nothing);
        assert_eq!(clock.due(at(27)), Due::TimeOut);
        // An attempt after an interruption knows what was granted before.
        let mut clock = AttemptClock::start(&spec, 15.0, 1);
        assert_eq!(clock.due(at(4)), Due::Nothing);
        assert_eq!(clock.due(at(6)), Due::Extend { number: 2, of: 2 });
    }

    #[test]
    fn an_attempt_has_a_time_of_its_own() {
        let spec = JobSpec { max_attempt_runtime_seconds: Some(5.0), ..spec() };
        let mut clock = AttemptClock::start(&spec, 100.0, 0);
        assert_eq!(clock.due(Instant::now()), Due::Nothing);
        assert_eq!(clock.due(Instant::now() + Duration::from_secs(6)), Due::Recycle);
        let both = JobSpec { max_runtime_seconds: Some(1.0), ..spec };
        assert_eq!(AttemptClock::start(&both, 1.0, 0).due(Instant::now()), Due::TimeOut);
        let endless = JobSpec { max_runtime_seconds: Some(f64::MAX), ..both };
        assert_eq!(AttemptClock::start(&endless, 1.0, 0).due(Instant::now()), Due::Nothing);
    }
}
