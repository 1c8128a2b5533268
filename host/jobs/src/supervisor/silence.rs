//! Whether the worker still runs. It says so every [`WORKER_BEAT_INTERVAL`](crate::limits::WORKER_BEAT_INTERVAL) on a
//! thread that does nothing else, whatever its plugin does. One that is silent for too long was stopped, or hangs in the
//! system: it will not end by itself, and its slots are wanted.

use std::time::Duration;

use tokio::time::Instant;

/// Time that one look is counted for at most: in more of it the supervisor itself did not run, and heard nothing.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// How long a worker has been silent.
#[derive(Debug)]
pub(super) struct WorkerSilence {
    max: Duration,
    silent: Duration,
    looked: Instant,
    is_over: bool,
}

impl WorkerSilence {
    pub(super) fn new(max: Duration) -> WorkerSilence {
        WorkerSilence { max, silent: Duration::ZERO, looked: Instant::now(), is_over: false }
    }

    /// The worker said something.
    pub(super) fn heard(&mut self) {
        self.silent = Duration::ZERO;
    }

    /// Looks at the clock. True once, when the worker has been silent for too long.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        self.silent += now.saturating_duration_since(self.looked).min(LOOK_MAX);
        self.looked = now;
        let first = self.silent >= self.max && !self.is_over;
        self.is_over |= first;
        first
    }

    /// What became of a worker that was silent for too long, in a sentence.
    pub(super) fn sentence(&self) -> Option<String> {
        let seconds = self.max.as_secs();
        self.is_over.then(|| format!("the worker gave no sign of life for {seconds} s and was killed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_worker_is_lost_once_it_was_silent_for_too_long() {
        let mut silence = WorkerSilence::new(3 * SECOND);
        let began = silence.looked;
        assert_eq!([1, 2].map(|at| silence.look(began + at * SECOND)), [false, false]);
        silence.heard();
        let looks = [3, 4, 5, 6].map(|at| silence.look(began + at * SECOND));
        assert_eq!(looks, [false, false, true, false]);
        assert!(silence.sentence().is_some_and(|sentence| sentence.contains("for 3 s")));
    }

    #[test]
    fn a_supervisor_that_did_not_run_blames_nobody() {
        let mut silence = WorkerSilence::new(3 * SECOND);
        let began = silence.looked;
        assert!(!silence.look(began + 3600 * SECOND));
        assert_eq!(silence.sentence(), None);
    }
}
