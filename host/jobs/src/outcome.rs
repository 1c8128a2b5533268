//! Decides what happens to a job when an attempt ends, from the worker's final event and exit, without side effects.

use std::time::Duration;

use saggar_store::records::{JobState, PausePoint, StateReason};

use crate::limits::BACKOFF_MAX;
use crate::protocol::{EXIT_BROKEN, EXIT_DONE, EXIT_FAILED, EXIT_OUT_OF_MEMORY};
use crate::spec::{HOST_SHUTDOWN, RetryCause, WORKER_LOST};

/// The reason code of a job that was interrupted more often than its retries allow.
pub const RETRIES_EXHAUSTED: &str = "RETRIES_EXHAUSTED";

/// How an attempt ended, as far as its supervisor can know.
#[derive(Clone, Debug, PartialEq)]
pub enum AttemptOutcome {
    /// The plugin's training returned.
    Finished {
        /// Whether it returned because of a stop request.
        stopped: bool,
    },
    /// The state is saved where the job pauses.
    Paused(PausePoint),
    /// The plugin failed.
    Failed(StateReason),
    /// The job cannot run as it is configured: another attempt would end the same way.
    Broken(StateReason),
    /// Something else ended the attempt: another one can succeed.
    Interrupted(StateReason),
}

/// How a worker process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerExit {
    /// Its exit code, if it exited.
    pub code: Option<i32>,
    /// The signal that killed it, if one did.
    pub signal: Option<i32>,
    /// Whether the system killed a process for lack of memory while the worker ran.
    pub memory_ran_out: bool,
}

/// The worker's final event.
#[derive(Clone, Debug, PartialEq)]
pub enum FinalEvent {
    /// The worker sent none.
    Missing,
    /// `WorkerEvent::Finished`.
    Finished {
        /// Whether it returned because of a stop request.
        stopped: bool,
    },
    /// `WorkerEvent::Paused`.
    Paused(PausePoint),
    /// `WorkerEvent::Failed`.
    Failed(StateReason),
}

/// What to do with the job.
#[derive(Clone, Debug, PartialEq)]
pub enum RetryDecision {
    /// Start another attempt, from the newest checkpoint.
    Retry {
        /// The reason that ended this one.
        reason: StateReason,
        /// The minimum delay before it.
        delay: Duration,
    },
    /// Pause the job at this point, if it is still to pause there.
    Pause(PausePoint),
    /// The job is over, with this state and reason.
    Finish(JobState, StateReason),
}

/// The supervisor's information for the decision.
#[derive(Clone, Debug)]
pub struct OutcomeContext<'a> {
    /// The reason of a request to stop the job, or `None`.
    pub stop_reason: Option<StateReason>,
    /// Whether the job's running time is used up.
    pub timed_out: bool,
    /// The reason of a request to save and requeue, or `None`.
    pub requeue_reason: Option<StateReason>,
    /// Earlier attempts whose cause counts against the retries.
    pub interruptions: u32,
    /// The number of such causes that the job allows.
    pub retry: u32,
    /// The causes that are retried.
    pub retry_on: &'a [RetryCause],
}

/// The signal that a process cannot catch.
const SIGKILL: i32 = 9;

/// Returns how the attempt ended. A worker's claim that it finished is ignored if its exit code contradicts it.
pub fn attempt_outcome(last_word: FinalEvent, exit: WorkerExit) -> AttemptOutcome {
    match (last_word, exit.code) {
        (FinalEvent::Finished { stopped }, Some(EXIT_DONE)) => AttemptOutcome::Finished { stopped },
        (FinalEvent::Paused(point), Some(EXIT_DONE)) => AttemptOutcome::Paused(point),
        (FinalEvent::Failed(reason), Some(EXIT_FAILED | EXIT_OUT_OF_MEMORY)) => AttemptOutcome::Failed(reason),
        (FinalEvent::Failed(reason), Some(EXIT_BROKEN)) => AttemptOutcome::Broken(reason),
        (FinalEvent::Failed(reason), Some(_)) => AttemptOutcome::Interrupted(reason),
        // A worker whose device is lost reports it and kills itself (`worker::lost_device`).
        (FinalEvent::Failed(reason), None) if RetryCause::from_code(&reason.code) == Some(RetryCause::DeviceLost) => {
            AttemptOutcome::Interrupted(reason)
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
            AttemptOutcome::Interrupted(StateReason::new(WORKER_LOST, sentence))
        }
    }
}

/// Decides what to do with the job. A job that was asked to stop is over however its attempt ended; an interrupted one
/// is retried as long as its limits allow. A job whose time is used up has timed out, even if it finished before it was
/// killed.
pub fn decide_retry(ending: AttemptOutcome, situation: &OutcomeContext<'_>) -> RetryDecision {
    match ending {
        AttemptOutcome::Finished { stopped: false } if !situation.timed_out => {
            RetryDecision::Finish(JobState::Succeeded, StateReason::default())
        }
        AttemptOutcome::Paused(point) if situation.stop_reason.is_none() && !situation.timed_out => {
            RetryDecision::Pause(point)
        }
        AttemptOutcome::Broken(reason) if situation.stop_reason.is_none() => {
            RetryDecision::Finish(JobState::Failed, reason)
        }
        AttemptOutcome::Failed(reason) if situation.stop_reason.is_none() => retry_or_fail(reason, situation),
        _ if situation.timed_out => RetryDecision::Finish(
            JobState::TimedOut,
            StateReason::new("MAX_RUNTIME", "the job's running time is used up"),
        ),
        AttemptOutcome::Finished { .. }
        | AttemptOutcome::Paused(_)
        | AttemptOutcome::Broken(_)
        | AttemptOutcome::Failed(_)
        | AttemptOutcome::Interrupted(_) => {
            match (&situation.stop_reason, &situation.requeue_reason, ending) {
                (Some(stop), _, _) => RetryDecision::Finish(JobState::Cancelled, stop.clone()),
                // The attempt reached no step boundary in time. The next one would not either, so it must not be
                // requeued forever.
                (None, Some(requeue), AttemptOutcome::Interrupted(reason))
                    if RetryCause::from_code(&requeue.code).is_none() =>
                {
                    retry_or_fail(reason, situation)
                }
                (None, Some(requeue), _) => retry_or_fail(requeue.clone(), situation),
                (None, None, AttemptOutcome::Interrupted(reason)) => retry_or_fail(reason, situation),
                (None, None, _) => retry_or_fail(
                    StateReason::new(HOST_SHUTDOWN, "the server shut down; the state was saved"),
                    situation,
                ),
            }
        }
    }
}

/// Retries after an attempt that ended for this reason if the job's retries allow it, else fails the job.
pub fn retry_or_fail(reason: StateReason, situation: &OutcomeContext<'_>) -> RetryDecision {
    let Some(cause) = RetryCause::from_code(&reason.code) else {
        return RetryDecision::Retry { reason, delay: Duration::ZERO };
    };
    if !situation.retry_on.contains(&cause) {
        return RetryDecision::Finish(JobState::Failed, reason);
    }
    let interruptions = situation.interruptions + u32::from(cause.counts_against_retries());
    if cause.counts_against_retries() && interruptions > situation.retry {
        // The plugin's own message is more useful than the number of attempts.
        if matches!(cause, RetryCause::Error | RetryCause::NonFinite) {
            return RetryDecision::Finish(JobState::Failed, reason);
        }
        let sentence = format!("{interruptions} attempts were interrupted, the last one: {}", reason.sentence);
        return RetryDecision::Finish(JobState::Failed, StateReason::new(RETRIES_EXHAUSTED, sentence));
    }
    let after = match cause {
        // A recent failure would repeat at once: the retry waits 1, 2, 4, ... seconds.
        RetryCause::Error | RetryCause::NonFinite | RetryCause::DeviceLost => {
            Duration::from_secs(1 << interruptions.saturating_sub(1).min(16)).min(BACKOFF_MAX)
        }
        RetryCause::Preempted | RetryCause::WorkerLost | RetryCause::HostRestart => Duration::ZERO,
    };
    RetryDecision::Retry { reason, delay: after }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{OVER_BUDGET, PREEMPTED, RECYCLED};

    const KILLED: WorkerExit = WorkerExit { code: None, signal: Some(9), memory_ran_out: false };

    fn situation(interruptions: u32) -> OutcomeContext<'static> {
        let retry_on = &RetryCause::INFRASTRUCTURE;
        OutcomeContext { stop_reason: None, timed_out: false, requeue_reason: None, interruptions, retry: 5, retry_on }
    }

    fn exit(code: i32) -> WorkerExit {
        WorkerExit { code: Some(code), signal: None, memory_ran_out: false }
    }

    fn stopped() -> AttemptOutcome {
        attempt_outcome(FinalEvent::Finished { stopped: true }, exit(0))
    }

    /// Returns the code of an attempt that is followed by another.
    fn retry_reason_code(next: RetryDecision) -> String {
        match next {
            RetryDecision::Retry { reason, .. } => reason.code,
            over => panic!("{over:?}"),
        }
    }

    #[test]
    fn retry_limit_5_allows_six_attempts() {
        let killed = || attempt_outcome(FinalEvent::Missing, KILLED);
        for before in 0..5 {
            assert_eq!(retry_reason_code(decide_retry(killed(), &situation(before))), WORKER_LOST, "{before}");
        }
        let RetryDecision::Finish(JobState::Failed, reason) = decide_retry(killed(), &situation(5)) else { panic!() };
        assert_eq!(reason.code, "RETRIES_EXHAUSTED");
    }

    #[test]
    fn a_plugin_error_is_retried_only_if_retry_on_has_it() {
        let failed = || attempt_outcome(FinalEvent::Failed(StateReason::new("TRAP", "unreachable")), exit(EXIT_FAILED));
        let over = RetryDecision::Finish(JobState::Failed, StateReason::new("TRAP", "unreachable"));
        assert_eq!(decide_retry(failed(), &situation(0)), over);
        let on_error = OutcomeContext { retry_on: &RetryCause::ALL, ..situation(0) };
        let again = |interruptions| match decide_retry(failed(), &OutcomeContext { interruptions, ..on_error.clone() })
        {
            RetryDecision::Retry { delay: after, .. } => after.as_secs(),
            over => panic!("{over:?}"),
        };
        assert_eq!([0, 1, 2].map(again), [1, 2, 4]);
        assert_eq!(decide_retry(failed(), &OutcomeContext { interruptions: 5, ..on_error.clone() }), over);
        let lost = attempt_outcome(FinalEvent::Failed(StateReason::new("DEVICE_LOST", "gone")), exit(75));
        assert_eq!(retry_reason_code(decide_retry(lost, &situation(0))), "DEVICE_LOST");
        let broken = attempt_outcome(FinalEvent::Failed(StateReason::new("NO_DEVICE", "none")), exit(EXIT_BROKEN));
        assert!(matches!(decide_retry(broken, &on_error), RetryDecision::Finish(JobState::Failed, _)));
    }

    #[test]
    fn non_finite_values_are_retried_only_if_retry_on_has_them() {
        let failed =
            || attempt_outcome(FinalEvent::Failed(StateReason::new("NON_FINITE", "a loss")), exit(EXIT_FAILED));
        let over = RetryDecision::Finish(JobState::Failed, StateReason::new("NON_FINITE", "a loss"));
        assert_eq!(decide_retry(failed(), &situation(0)), over);
        // An error is another cause.
        assert_eq!(decide_retry(failed(), &OutcomeContext { retry_on: &[RetryCause::Error], ..situation(0) }), over);
        let rolls_back = OutcomeContext { retry_on: &[RetryCause::NonFinite], ..situation(0) };
        assert_eq!(retry_reason_code(decide_retry(failed(), &rolls_back)), "NON_FINITE");
        assert_eq!(decide_retry(failed(), &OutcomeContext { interruptions: 5, ..rolls_back }), over);
    }

    #[test]
    fn a_killed_worker_is_believed_only_about_a_lost_device() {
        let killed = |code: &str| attempt_outcome(FinalEvent::Failed(StateReason::new(code, "why")), KILLED);
        assert_eq!(retry_reason_code(decide_retry(killed("DEVICE_LOST"), &situation(0))), "DEVICE_LOST");
        assert_eq!(retry_reason_code(decide_retry(killed("TRAP"), &situation(0))), WORKER_LOST);
    }

    #[test]
    fn a_worker_killed_after_its_finished_event_is_interrupted() {
        let said = FinalEvent::Finished { stopped: false };
        assert!(matches!(attempt_outcome(said.clone(), KILLED), AttemptOutcome::Interrupted(_)));
        assert_eq!(
            decide_retry(attempt_outcome(said, exit(0)), &situation(1)),
            RetryDecision::Finish(JobState::Succeeded, StateReason::default())
        );
    }

    #[test]
    fn an_oom_killed_worker_is_named_as_such() {
        let sentence = |exit| match attempt_outcome(FinalEvent::Missing, exit) {
            AttemptOutcome::Interrupted(reason) => reason.sentence,
            ended => panic!("{ended:?}"),
        };
        let expected = "the worker was killed by signal 9: memory ran out, on the machine or in its control group";
        assert_eq!(sentence(WorkerExit { memory_ran_out: true, ..KILLED }), expected);
        assert_eq!(sentence(KILLED), "the worker was killed by signal 9");
        // Memory that ran out for another process is unrelated.
        let aborted = WorkerExit { code: None, signal: Some(6), memory_ran_out: true };
        assert_eq!(sentence(aborted), "the worker was killed by signal 6");
    }

    #[test]
    fn a_pause_costs_no_retry_and_yields_to_a_stop_and_a_timeout() {
        let paused = || attempt_outcome(FinalEvent::Paused(PausePoint::now()), exit(0));
        for interruptions in [0, 99] {
            let next = decide_retry(paused(), &situation(interruptions));
            assert_eq!(next, RetryDecision::Pause(PausePoint::now()));
        }
        let requeued = OutcomeContext { requeue_reason: Some(StateReason::new(PREEMPTED, "room")), ..situation(0) };
        assert_eq!(decide_retry(paused(), &requeued), RetryDecision::Pause(PausePoint::now()));
        let stopped = OutcomeContext { stop_reason: Some(StateReason::new("USER", "by a user")), ..situation(0) };
        assert!(matches!(decide_retry(paused(), &stopped), RetryDecision::Finish(JobState::Cancelled, _)));
        let late = OutcomeContext { timed_out: true, ..situation(0) };
        assert!(matches!(decide_retry(paused(), &late), RetryDecision::Finish(JobState::TimedOut, _)));
        let killed = attempt_outcome(FinalEvent::Paused(PausePoint::now()), KILLED);
        assert_eq!(retry_reason_code(decide_retry(killed, &situation(0))), WORKER_LOST);
    }

    #[test]
    fn a_requested_stop_cancels_the_job() {
        let stop = Some(StateReason::new("USER", "stopped by a user"));
        let asked = OutcomeContext { stop_reason: stop.clone(), ..situation(0) };
        let failed = attempt_outcome(FinalEvent::Failed(StateReason::new("TRAP", "unreachable")), exit(EXIT_FAILED));
        for ended in [stopped(), failed, attempt_outcome(FinalEvent::Missing, KILLED)] {
            assert_eq!(decide_retry(ended, &asked), RetryDecision::Finish(JobState::Cancelled, stop.clone().unwrap()));
        }
        let finished = attempt_outcome(FinalEvent::Finished { stopped: false }, exit(0));
        assert_eq!(decide_retry(finished, &asked), RetryDecision::Finish(JobState::Succeeded, StateReason::default()));
    }

    #[test]
    fn a_shutdown_requeues_the_job_and_a_timeout_finishes_it() {
        assert_eq!(retry_reason_code(decide_retry(stopped(), &situation(99))), HOST_SHUTDOWN);
        let late = OutcomeContext { timed_out: true, ..situation(0) };
        assert!(matches!(decide_retry(stopped(), &late), RetryDecision::Finish(JobState::TimedOut, _)));
        let finished = attempt_outcome(FinalEvent::Finished { stopped: false }, exit(0));
        assert!(
            matches!(decide_retry(finished, &late), RetryDecision::Finish(JobState::TimedOut, _)),
            "it was over before"
        );
        let never = OutcomeContext { retry_on: &[], ..situation(0) };
        assert!(matches!(decide_retry(stopped(), &never), RetryDecision::Finish(JobState::Failed, _)));
    }

    #[test]
    fn a_preempted_attempt_is_requeued_until_its_retries_are_exhausted() {
        for (code, counts) in [(PREEMPTED, true), (RECYCLED, false), (OVER_BUDGET, false)] {
            let room = |interruptions| {
                let requeue = Some(StateReason::new(code, "for another"));
                OutcomeContext { requeue_reason: requeue, ..situation(interruptions) }
            };
            assert_eq!(retry_reason_code(decide_retry(stopped(), &room(0))), code);
            assert_eq!(
                matches!(decide_retry(stopped(), &room(5)), RetryDecision::Finish(JobState::Failed, _)),
                counts,
                "{code}"
            );
            // An attempt that is killed because it did not save in time has lost its work; without a limit this would
            // repeat forever.
            let killed = || attempt_outcome(FinalEvent::Missing, KILLED);
            assert_eq!(retry_reason_code(decide_retry(killed(), &room(0))), if counts { code } else { WORKER_LOST });
            assert!(matches!(decide_retry(killed(), &room(5)), RetryDecision::Finish(JobState::Failed, _)), "{code}");
        }
    }
}
