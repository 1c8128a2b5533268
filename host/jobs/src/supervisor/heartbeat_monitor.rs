//! Detects a worker that no longer runs. A worker sends a heartbeat every
//! [`WORKER_HEARTBEAT_INTERVAL`](crate::limits::WORKER_HEARTBEAT_INTERVAL) on a thread that does nothing else, whatever
//! its plugin does. A worker that is silent for too long was stopped or hangs in the system: it will not end on its
//! own, and its slots are needed.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum time that one poll counts. If more time passed, the supervisor itself did not run, and could not receive
/// heartbeats.
const POLL_STEP_MAX: Duration = Duration::from_secs(1);

/// The silence of a worker.
#[derive(Debug)]
pub(super) struct HeartbeatMonitor {
    max: Duration,
    silent: Duration,
    last_poll: Instant,
    is_timed_out: bool,
}

impl HeartbeatMonitor {
    pub(super) fn new(max: Duration) -> HeartbeatMonitor {
        HeartbeatMonitor { max, silent: Duration::ZERO, last_poll: Instant::now(), is_timed_out: false }
    }

    /// Records that the worker sent something.
    pub(super) fn reset(&mut self) {
        self.silent = Duration::ZERO;
    }

    /// Adds the time since the last poll. Returns `true` once, when the worker has been silent for too long.
    pub(super) fn poll(&mut self, now: Instant) -> bool {
        self.silent += now.saturating_duration_since(self.last_poll).min(POLL_STEP_MAX);
        self.last_poll = now;
        let first = self.silent >= self.max && !self.is_timed_out;
        self.is_timed_out |= first;
        first
    }

    /// Returns a sentence about a worker that was silent for too long, or `None` if it was not.
    pub(super) fn timeout_message(&self) -> Option<String> {
        let seconds = self.max.as_secs();
        self.is_timed_out.then(|| format!("the worker gave no sign of life for {seconds} s and was killed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_silent_worker_is_reported_once_after_the_heartbeat_timeout() {
        let mut silence = HeartbeatMonitor::new(3 * SECOND);
        let began = silence.last_poll;
        assert_eq!([1, 2].map(|at| silence.poll(began + at * SECOND)), [false, false]);
        silence.reset();
        let looks = [3, 4, 5, 6].map(|at| silence.poll(began + at * SECOND));
        assert_eq!(looks, [false, false, true, false]);
        assert!(silence.timeout_message().is_some_and(|sentence| sentence.contains("for 3 s")));
    }

    #[test]
    fn time_in_which_the_supervisor_did_not_run_does_not_count_as_silence() {
        let mut silence = HeartbeatMonitor::new(3 * SECOND);
        let began = silence.last_poll;
        assert!(!silence.poll(began + 3600 * SECOND));
        assert_eq!(silence.timeout_message(), None);
    }
}
