//! The phases of a job, each with a state separate from the job's state.
//!
//! A job begins in the phase `train`, and its plugin can begin others. Phases are derived from the job's events, so
//! they are not recorded separately.

use saggar_clock::UnixMillis;
use saggar_store::records::{JobEvent, JobRecord, JobState};

/// The first phase of every job.
const FIRST_PHASE: &str = "train";
/// The kind of the event that begins another phase; its text is the phase's name.
pub(crate) const PHASE_EVENT: &str = "PHASE";
/// The kind of the event that begins an attempt.
const ATTEMPT_EVENT: &str = "CLAIMED";
/// The kinds of the events that [`job_phases`] reads.
pub const EVENT_KINDS: [&str; 2] = [PHASE_EVENT, ATTEMPT_EVENT];

/// A phase of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPhase {
    /// The name: `train`, `post`.
    pub name: String,
    /// `Succeeded` if another phase began after it, else the job's state.
    pub state: JobState,
    /// The start time; `None` while the job waits for its first attempt.
    pub started_ms: Option<UnixMillis>,
    /// The end time; `None` while the phase runs.
    pub ended_ms: Option<UnixMillis>,
}

/// Returns the phases of `job`, first one first. `events` must contain all of its events of [`EVENT_KINDS`], oldest
/// first; other events are ignored.
///
/// An attempt after an interruption goes through the phases again: a phase that begins again keeps its position, and
/// the phases after it are dropped until they begin again.
pub fn job_phases(job: &JobRecord, events: &[JobEvent]) -> Vec<JobPhase> {
    let first = JobPhase { name: FIRST_PHASE.to_owned(), state: job.state, started_ms: job.started_ms, ended_ms: None };
    let mut phases = vec![first];
    for event in events {
        match event.kind.as_str() {
            PHASE_EVENT => begin_phase(&mut phases, job, event),
            // Every attempt begins in the first phase.
            ATTEMPT_EVENT => phases.truncate(1),
            _ => {}
        }
    }
    if let Some(last) = phases.last_mut() {
        last.state = job.state;
        last.ended_ms = job.finished_ms;
    }
    phases
}

fn begin_phase(phases: &mut Vec<JobPhase>, job: &JobRecord, event: &JobEvent) {
    if let Some(place) = phases.iter().position(|phase| phase.name == event.text) {
        phases.truncate(place + 1);
        return;
    }
    if let Some(before) = phases.last_mut() {
        before.state = JobState::Succeeded;
        before.ended_ms = Some(event.at_ms);
    }
    let (name, started_ms) = (event.text.clone(), Some(event.at_ms));
    phases.push(JobPhase { name, state: job.state, started_ms, ended_ms: None });
}

#[cfg(test)]
mod tests {
    use saggar_store::records::StateReason;

    use super::*;

    fn job(state: JobState) -> JobRecord {
        JobRecord {
            id: String::new(),
            name: "a-1".to_owned(),
            project: "a".to_owned(),
            number: 1,
            task: String::new(),
            spec: String::new(),
            demand: saggar_store::records::SchedulingRequest::default(),
            experiment: None,
            owner: None,
            rights: saggar_store::AccessRights::default(),
            state,
            reason: StateReason::default(),
            stop: None,
            pause: None,
            is_paused: false,
            created_ms: 0,
            started_ms: Some(1),
            finished_ms: state.is_final().then_some(99),
            not_before_ms: 0,
            step: 0,
            steps_target: 0,
            epoch: 1,
            attempts: 1,
            server: String::new(),
            server_id: String::new(),
            claim: String::new(),
            orders: saggar_store::records::JobOrders::default(),
            cursor: 1,
        }
    }

    fn check(state: JobState, events: &[(&str, &str)], expected: &str) {
        let event = |(at, (kind, text)): (usize, &(&str, &str))| JobEvent {
            sequence: at as u64,
            job: String::new(),
            at_ms: 10 * (at as u64 + 1),
            kind: (*kind).to_owned(),
            text: (*text).to_owned(),
        };
        let events: Vec<JobEvent> = events.iter().enumerate().map(event).collect();
        let show = |phase: &JobPhase| {
            let time = |time: Option<UnixMillis>| time.map_or("-".to_owned(), |time| time.to_string());
            format!("{} {} {}..{}", phase.name, phase.state, time(phase.started_ms), time(phase.ended_ms))
        };
        assert_eq!(job_phases(&job(state), &events).iter().map(show).collect::<Vec<_>>().join(", "), expected);
    }

    #[test]
    fn a_job_is_one_phase_until_it_begins_another() {
        check(JobState::Running, &[("CLAIMED", "")], "train RUNNING 1..-");
        check(JobState::Succeeded, &[("CLAIMED", ""), ("PUBLISHED", "m@1")], "train SUCCEEDED 1..99");
        check(JobState::Failed, &[("CLAIMED", "")], "train FAILED 1..99");
        check(JobState::Running, &[("CLAIMED", ""), ("PHASE", "post")], "train SUCCEEDED 1..20, post RUNNING 20..-");
    }

    #[test]
    fn a_failed_later_phase_leaves_the_earlier_ones_succeeded() {
        let events = [("CLAIMED", ""), ("PUBLISHED", "m@1"), ("PHASE", "post")];
        check(JobState::Failed, &events, "train SUCCEEDED 1..30, post FAILED 30..99");
    }

    #[test]
    fn another_attempt_begins_with_the_first_phase_again() {
        let interrupted = [("CLAIMED", ""), ("PHASE", "post"), ("CLAIMED", "")];
        check(JobState::Running, &interrupted, "train RUNNING 1..-");
        let again = [("CLAIMED", ""), ("PHASE", "post"), ("CLAIMED", ""), ("PHASE", "post"), ("PHASE", "score")];
        check(JobState::Succeeded, &again, "train SUCCEEDED 1..40, post SUCCEEDED 40..50, score SUCCEEDED 50..99");
    }
}
