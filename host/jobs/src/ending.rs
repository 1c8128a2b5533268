//! What becomes of a job when an attempt ends: decided from the worker's last words and its exit, without side effects.

use saggar_store::records::{JobState, Reason};

use crate::protocol::{EXIT_BROKEN, EXIT_DONE, EXIT_FAILED, EXIT_OUT_OF_MEMORY};

/// How an attempt ended, as far as its supervisor can know.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// The plugin's training returned.
    Finished {
        /// Because it was told to stop.
        stopped: bool,
    },
    /// The plugin or the configuration is at fault: another attempt would end the same way.
    Failed(Reason),
    /// Something else ended it: another attempt may do better.
    Interrupted(Reason),
}

/// How a worker process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code, if it exited.
    pub code: Option<i32>,
    /// The signal that killed it, if one did.
    pub signal: Option<i32>,
}

/// The worker's last words.
#[derive(Clone, Debug, PartialEq)]
pub enum LastWord {
    /// None.
    Silence,
    /// `Event::Finished`.
    Finished {
        /// Because it was told to stop.
        stopped: bool,
    },
    /// `Event::Failed`.
    Failed(Reason),
}

/// What to do with the job.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Another attempt, from the newest checkpoint.
    Again(Reason),
    /// It is over.
    Over(JobState, Reason),
}

/// What a supervisor knows when it decides.
#[derive(Clone, Debug)]
pub struct Situation {
    /// Somebody asked the job to stop, and why.
    pub stop: Option<Reason>,
    /// The job's time is used up.
    pub timed_out: bool,
    /// Attempts made, this one included.
    pub attempts: u32,
    /// Extra attempts allowed.
    pub retry: u32,
}

/// Reads how the attempt ended. A worker that says it finished but does not exit accordingly is not believed.
pub fn ending(last_word: LastWord, exit: Exit) -> Ending {
    match (last_word, exit.code) {
        (LastWord::Finished { stopped }, Some(EXIT_DONE)) => Ending::Finished { stopped },
        (LastWord::Failed(reason), Some(EXIT_FAILED | EXIT_OUT_OF_MEMORY | EXIT_BROKEN)) => Ending::Failed(reason),
        (LastWord::Failed(reason), Some(_)) => Ending::Interrupted(reason),
        (_, code) => {
            let sentence = match (code, exit.signal) {
                (_, Some(signal)) => format!("the worker was killed by signal {signal}"),
                (Some(code), None) => format!("the worker exited with code {code} without saying why"),
                (None, None) => "the worker is gone".to_owned(),
            };
            Ending::Interrupted(Reason::new("WORKER_LOST", sentence))
        }
    }
}

/// Decides. A job asked to stop is over however its attempt ended; an interrupted one is tried again as long as it may.
pub fn next(ending: Ending, situation: &Situation) -> Next {
    match ending {
        Ending::Finished { stopped: false } => Next::Over(JobState::Succeeded, Reason::default()),
        Ending::Failed(reason) if situation.stop.is_none() => Next::Over(JobState::Failed, reason),
        Ending::Finished { stopped: true } | Ending::Failed(_) | Ending::Interrupted(_) if situation.timed_out => {
            Next::Over(JobState::TimedOut, Reason::new("MAX_RUNTIME", "the job's running time is used up"))
        }
        Ending::Finished { stopped: true } => match &situation.stop {
            Some(reason) => Next::Over(JobState::Cancelled, reason.clone()),
            None => Next::Again(Reason::new("HOST_SHUTDOWN", "the server shut down; the state was saved")),
        },
        Ending::Failed(_) | Ending::Interrupted(_) if situation.stop.is_some() => {
            Next::Over(JobState::Cancelled, situation.stop.clone().unwrap_or_default())
        }
        Ending::Interrupted(reason) if situation.attempts > situation.retry => {
            let sentence =
                format!("{} attempts were interrupted, the last one: {}", situation.attempts, reason.sentence);
            Next::Over(JobState::Failed, Reason::new("RETRIES_EXHAUSTED", sentence))
        }
        Ending::Failed(reason) | Ending::Interrupted(reason) => Next::Again(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: Exit = Exit { code: None, signal: Some(9) };

    fn situation(attempts: u32) -> Situation {
        Situation { stop: None, timed_out: false, attempts, retry: 5 }
    }

    fn exit(code: i32) -> Exit {
        Exit { code: Some(code), signal: None }
    }

    #[test]
    fn five_retries_are_six_attempts() {
        let killed = || ending(LastWord::Silence, KILLED);
        for attempts in 1..=5 {
            assert!(matches!(next(killed(), &situation(attempts)), Next::Again(_)), "{attempts}");
        }
        let Next::Over(JobState::Failed, reason) = next(killed(), &situation(6)) else { panic!() };
        assert_eq!(reason.code, "RETRIES_EXHAUSTED");
    }

    #[test]
    fn a_plugin_error_is_not_tried_again() {
        let failed = LastWord::Failed(Reason::new("TRAP", "unreachable"));
        let over = next(ending(failed.clone(), exit(EXIT_FAILED)), &situation(1));
        assert_eq!(over, Next::Over(JobState::Failed, Reason::new("TRAP", "unreachable")));
        assert!(matches!(next(ending(failed, exit(75)), &situation(1)), Next::Again(_)));
    }

    #[test]
    fn killed_after_its_last_word_is_not_finished() {
        let said = LastWord::Finished { stopped: false };
        assert!(matches!(ending(said.clone(), KILLED), Ending::Interrupted(_)));
        assert_eq!(next(ending(said, exit(0)), &situation(1)), Next::Over(JobState::Succeeded, Reason::default()));
    }

    #[test]
    fn a_stop_that_was_asked_for_cancels() {
        let stop = Some(Reason::new("USER", "stopped by a user"));
        let asked = Situation { stop: stop.clone(), ..situation(1) };
        for ended in [ending(LastWord::Finished { stopped: true }, exit(0)), ending(LastWord::Silence, KILLED)] {
            assert_eq!(next(ended, &asked), Next::Over(JobState::Cancelled, stop.clone().unwrap()));
        }
        let finished = ending(LastWord::Finished { stopped: false }, exit(0));
        assert_eq!(next(finished, &asked), Next::Over(JobState::Succeeded, Reason::default()));
    }

    #[test]
    fn a_shutdown_queues_again_and_a_time_out_ends() {
        let stopped = || ending(LastWord::Finished { stopped: true }, exit(0));
        assert!(matches!(next(stopped(), &situation(6)), Next::Again(_)));
        let late = Situation { timed_out: true, ..situation(1) };
        assert!(matches!(next(stopped(), &late), Next::Over(JobState::TimedOut, _)));
    }
}
