//! What becomes of a job when an attempt ends: decided from the worker's last words and its exit, without side effects.

use std::time::Duration;

use saggar_store::records::{JobState, Reason};

use crate::limits::BACKOFF_MAX;
use crate::protocol::{EXIT_BROKEN, EXIT_DONE, EXIT_FAILED, EXIT_OUT_OF_MEMORY};
use crate::spec::{Cause, HOST_SHUTDOWN, WORKER_LOST};

/// How an attempt ended, as far as its supervisor can know.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// The plugin's training returned.
    Finished {
        /// Because it was told to stop.
        stopped: bool,
    },
    /// The plugin failed.
    Failed(Reason),
    /// The job cannot run as it is configured: another attempt would end the same way.
    Broken(Reason),
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
    /// Whether the system killed a process for want of memory while it ran.
    pub memory_ran_out: bool,
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
    Again {
        /// What ended this one.
        reason: Reason,
        /// How long it waits at least.
        after: Duration,
    },
    /// It is over.
    Over(JobState, Reason),
}

/// What a supervisor knows when it decides.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    /// Somebody asked the job to stop, and why.
    pub stop: Option<Reason>,
    /// The job's time is used up.
    pub timed_out: bool,
    /// The attempt was told to save its state and make room, and why.
    pub requeue: Option<Reason>,
    /// Earlier attempts that ended for a cause that counts.
    pub interruptions: u32,
    /// How many such causes the job may meet.
    pub retry: u32,
    /// Which causes another attempt follows.
    pub retry_on: &'a [Cause],
}

/// The signal that nothing can catch.
const SIGKILL: i32 = 9;

/// Reads how the attempt ended. A worker that says it finished but does not exit accordingly is not believed.
pub fn ending(last_word: LastWord, exit: Exit) -> Ending {
    match (last_word, exit.code) {
        (LastWord::Finished { stopped }, Some(EXIT_DONE)) => Ending::Finished { stopped },
        (LastWord::Failed(reason), Some(EXIT_FAILED | EXIT_OUT_OF_MEMORY)) => Ending::Failed(reason),
        (LastWord::Failed(reason), Some(EXIT_BROKEN)) => Ending::Broken(reason),
        (LastWord::Failed(reason), Some(_)) => Ending::Interrupted(reason),
        // A worker whose device is lost says so and kills itself (`worker::lost_device`).
        (LastWord::Failed(reason), None) if Cause::of(&reason.code) == Some(Cause::DeviceLost) => {
            Ending::Interrupted(reason)
        }
        (_, code) => {
            let sentence = match (code, exit.signal) {
                (_, Some(SIGKILL)) if exit.memory_ran_out => format!(
                    "the worker was killed by signal {SIGKILL}: memory ran out, on the machine or in its control group"
                ),
                (_, Some(signal)) => format!("the worker was killed by signal {signal}"),
                (Some(code), None) => format!("the worker exited with code {code} without saying why"),
                (None, None) => "the worker is gone".to_owned(),
            };
            Ending::Interrupted(Reason::new(WORKER_LOST, sentence))
        }
    }
}

/// Decides. A job asked to stop is over however its attempt ended; an interrupted one is tried again as long as it may. One
/// whose time is used up has timed out even where it came to its end before it was killed.
pub fn next(ending: Ending, situation: &Situation<'_>) -> Next {
    match ending {
        Ending::Finished { stopped: false } if !situation.timed_out => {
            Next::Over(JobState::Succeeded, Reason::default())
        }
        Ending::Broken(reason) if situation.stop.is_none() => Next::Over(JobState::Failed, reason),
        Ending::Failed(reason) if situation.stop.is_none() => again(reason, situation),
        _ if situation.timed_out => {
            Next::Over(JobState::TimedOut, Reason::new("MAX_RUNTIME", "the job's running time is used up"))
        }
        Ending::Finished { .. } | Ending::Broken(_) | Ending::Failed(_) | Ending::Interrupted(_) => {
            match (&situation.stop, &situation.requeue, ending) {
                (Some(stop), _, _) => Next::Over(JobState::Cancelled, stop.clone()),
                // It did not come to a step boundary: it would not the next time, and must not go round for ever.
                (None, Some(requeue), Ending::Interrupted(reason)) if Cause::of(&requeue.code).is_none() => {
                    again(reason, situation)
                }
                (None, Some(requeue), _) => again(requeue.clone(), situation),
                (None, None, Ending::Interrupted(reason)) => again(reason, situation),
                (None, None, _) => {
                    again(Reason::new(HOST_SHUTDOWN, "the server shut down; the state was saved"), situation)
                }
            }
        }
    }
}

/// What follows an attempt that ended for this reason: another one, where the job's retries allow it.
pub fn again(reason: Reason, situation: &Situation<'_>) -> Next {
    let Some(cause) = Cause::of(&reason.code) else { return Next::Again { reason, after: Duration::ZERO } };
    if !situation.retry_on.contains(&cause) {
        return Next::Over(JobState::Failed, reason);
    }
    let interruptions = situation.interruptions + u32::from(cause.counts());
    if cause.counts() && interruptions > situation.retry {
        // What the plugin said is of more use than that it said so too often.
        if matches!(cause, Cause::Error | Cause::NonFinite) {
            return Next::Over(JobState::Failed, reason);
        }
        let sentence = format!("{interruptions} attempts were interrupted, the last one: {}", reason.sentence);
        return Next::Over(JobState::Failed, Reason::new("RETRIES_EXHAUSTED", sentence));
    }
    let after = match cause {
        // What failed a moment ago would fail again: once more after 1, 2, 4, ... seconds.
        Cause::Error | Cause::NonFinite | Cause::DeviceLost => {
            Duration::from_secs(1 << interruptions.saturating_sub(1).min(16)).min(BACKOFF_MAX)
        }
        Cause::Preempted | Cause::WorkerLost | Cause::HostRestart => Duration::ZERO,
    };
    Next::Again { reason, after }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{OVER_BUDGET, PREEMPTED, RECYCLED};

    const KILLED: Exit = Exit { code: None, signal: Some(9), memory_ran_out: false };

    fn situation(interruptions: u32) -> Situation<'static> {
        let retry_on = &Cause::NOT_THE_PLUGINS;
        Situation { stop: None, timed_out: false, requeue: None, interruptions, retry: 5, retry_on }
    }

    fn exit(code: i32) -> Exit {
        Exit { code: Some(code), signal: None, memory_ran_out: false }
    }

    fn stopped() -> Ending {
        ending(LastWord::Finished { stopped: true }, exit(0))
    }

    /// The code of an attempt that another one follows.
    fn followed(next: Next) -> String {
        match next {
            Next::Again { reason, .. } => reason.code,
            Next::Over(state, reason) => panic!("{state} {reason:?}"),
        }
    }

    #[test]
    fn five_retries_are_six_attempts() {
        let killed = || ending(LastWord::Silence, KILLED);
        for before in 0..5 {
            assert_eq!(followed(next(killed(), &situation(before))), WORKER_LOST, "{before}");
        }
        let Next::Over(JobState::Failed, reason) = next(killed(), &situation(5)) else { panic!() };
        assert_eq!(reason.code, "RETRIES_EXHAUSTED");
    }

    #[test]
    fn a_plugin_error_is_tried_again_only_where_that_is_asked_for() {
        let failed = || ending(LastWord::Failed(Reason::new("TRAP", "unreachable")), exit(EXIT_FAILED));
        let over = Next::Over(JobState::Failed, Reason::new("TRAP", "unreachable"));
        assert_eq!(next(failed(), &situation(0)), over);
        let on_error = Situation { retry_on: &Cause::ALL, ..situation(0) };
        let again = |interruptions| match next(failed(), &Situation { interruptions, ..on_error.clone() }) {
            Next::Again { after, .. } => after.as_secs(),
            over => panic!("{over:?}"),
        };
        assert_eq!([0, 1, 2].map(again), [1, 2, 4]);
        assert_eq!(next(failed(), &Situation { interruptions: 5, ..on_error.clone() }), over);
        let lost = ending(LastWord::Failed(Reason::new("DEVICE_LOST", "gone")), exit(75));
        assert_eq!(followed(next(lost, &situation(0))), "DEVICE_LOST");
        let broken = ending(LastWord::Failed(Reason::new("NO_DEVICE", "none")), exit(EXIT_BROKEN));
        assert!(matches!(next(broken, &on_error), Next::Over(JobState::Failed, _)));
    }

    #[test]
    fn fault_13_numbers_that_are_none_roll_back_where_that_is_asked_for() {
        let failed = || ending(LastWord::Failed(Reason::new("NON_FINITE", "a loss")), exit(EXIT_FAILED));
        let over = Next::Over(JobState::Failed, Reason::new("NON_FINITE", "a loss"));
        assert_eq!(next(failed(), &situation(0)), over);
        // An error is another cause.
        assert_eq!(next(failed(), &Situation { retry_on: &[Cause::Error], ..situation(0) }), over);
        let rolls_back = Situation { retry_on: &[Cause::NonFinite], ..situation(0) };
        assert_eq!(followed(next(failed(), &rolls_back)), "NON_FINITE");
        assert_eq!(next(failed(), &Situation { interruptions: 5, ..rolls_back }), over);
    }

    #[test]
    fn a_worker_that_kills_itself_for_a_lost_device_is_believed_and_no_other() {
        let killed = |code: &str| ending(LastWord::Failed(Reason::new(code, "why")), KILLED);
        assert_eq!(followed(next(killed("DEVICE_LOST"), &situation(0))), "DEVICE_LOST");
        assert_eq!(followed(next(killed("TRAP"), &situation(0))), WORKER_LOST);
    }

    #[test]
    fn killed_after_its_last_word_is_not_finished() {
        let said = LastWord::Finished { stopped: false };
        assert!(matches!(ending(said.clone(), KILLED), Ending::Interrupted(_)));
        assert_eq!(next(ending(said, exit(0)), &situation(1)), Next::Over(JobState::Succeeded, Reason::default()));
    }

    #[test]
    fn fault_16_a_worker_that_is_killed_for_memory_is_told_from_others() {
        let sentence = |exit| match ending(LastWord::Silence, exit) {
            Ending::Interrupted(reason) => reason.sentence,
            ended => panic!("{ended:?}"),
        };
        let told = "the worker was killed by signal 9: memory ran out, on the machine or in its control group";
        assert_eq!(sentence(Exit { memory_ran_out: true, ..KILLED }), told);
        assert_eq!(sentence(KILLED), "the worker was killed by signal 9");
        // Memory that ran out for another process has nothing to do with it.
        let aborted = Exit { code: None, signal: Some(6), memory_ran_out: true };
        assert_eq!(sentence(aborted), "the worker was killed by signal 6");
    }

    #[test]
    fn a_stop_that_was_asked_for_cancels() {
        let stop = Some(Reason::new("USER", "stopped by a user"));
        let asked = Situation { stop: stop.clone(), ..situation(0) };
        let failed = ending(LastWord::Failed(Reason::new("TRAP", "unreachable")), exit(EXIT_FAILED));
        for ended in [stopped(), failed, ending(LastWord::Silence, KILLED)] {
            assert_eq!(next(ended, &asked), Next::Over(JobState::Cancelled, stop.clone().unwrap()));
        }
        let finished = ending(LastWord::Finished { stopped: false }, exit(0));
        assert_eq!(next(finished, &asked), Next::Over(JobState::Succeeded, Reason::default()));
    }

    #[test]
    fn a_shutdown_queues_again_and_a_time_out_ends() {
        assert_eq!(followed(next(stopped(), &situation(99))), HOST_SHUTDOWN);
        let late = Situation { timed_out: true, ..situation(0) };
        assert!(matches!(next(stopped(), &late), Next::Over(JobState::TimedOut, _)));
        let finished = ending(LastWord::Finished { stopped: false }, exit(0));
        assert!(matches!(next(finished, &late), Next::Over(JobState::TimedOut, _)), "it was over before");
        let never = Situation { retry_on: &[], ..situation(0) };
        assert!(matches!(next(stopped(), &never), Next::Over(JobState::Failed, _)));
    }

    #[test]
    fn who_makes_room_is_queued_again() {
        for (code, counts) in [(PREEMPTED, true), (RECYCLED, false), (OVER_BUDGET, false)] {
            let room = |interruptions| {
                let requeue = Some(Reason::new(code, "for another"));
                Situation { requeue, ..situation(interruptions) }
            };
            assert_eq!(followed(next(stopped(), &room(0))), code);
            assert_eq!(matches!(next(stopped(), &room(5)), Next::Over(JobState::Failed, _)), counts, "{code}");
            // Who is killed for not making room has lost its work; without an end to that, it would for ever.
            let killed = || ending(LastWord::Silence, KILLED);
            assert_eq!(followed(next(killed(), &room(0))), if counts { code } else { WORKER_LOST });
            assert!(matches!(next(killed(), &room(5)), Next::Over(JobState::Failed, _)), "{code}");
        }
    }
}
