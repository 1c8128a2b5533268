//! Pausing jobs.

use super::*;

fn at_step(step: u64) -> PausePoint {
    PausePoint { at: PauseStep::Step(step), metric: None }
}

/// Runs the job's next attempt to `step` of 100 steps and pauses it at `point`.
fn run_and_pause(records: &dyn JobRecords, step: u64, point: &PausePoint) -> JobRecord {
    let lease = claim(records);
    let usage = AttemptUsage { last_step: step, ..AttemptUsage::default() };
    records.record_progress(&lease, step, 100, &usage).unwrap();
    records.pause_at_point(&lease, point, &usage, 9).unwrap()
}

pub(super) fn a_paused_job_is_not_claimed_until_it_is_to_continue(records: &dyn JobRecords) {
    let job = records.submit(&NewJob { pause: Some(at_step(10)), ..new_job("p") }, 1).unwrap();
    assert_eq!((job.pause.clone(), job.is_paused), (Some(at_step(10)), false));
    let paused = run_and_pause(records, 12, &at_step(10));
    assert_eq!((paused.state, paused.is_paused, paused.step), (JobState::Queued, true, 12));
    assert_eq!((paused.reason.code.as_str(), paused.reason.sentence.contains("step 12")), (PAUSED, true));
    assert_eq!(records.attempts(&job.id).unwrap()[0].reason.code, PAUSED);
    assert!(records.queued_jobs().unwrap().is_empty() && records.active_jobs().unwrap().is_empty());
    assert_eq!(records.claim(&job.id, "any", 99).unwrap(), None);
    // An earlier point leaves it paused, and a later one lets it run to there.
    assert!(records.set_pause(&job.id, Some(&at_step(12)), 10).unwrap().is_paused);
    assert!(!records.set_pause(&job.id, Some(&at_step(13)), 10).unwrap().is_paused);
    let third = PausePoint { at: PauseStep::Share { part: 1, of: 3 }, metric: Some("loss".to_owned()) };
    records.set_pause(&job.id, Some(&third), 10).unwrap();
    assert!(run_and_pause(records, 34, &third).is_paused);
    let resumed = records.set_pause(&job.id, None, 11).unwrap();
    assert_eq!((resumed.is_paused, resumed.pause, resumed.reason), (false, None, StateReason::default()));
    assert_eq!(claim(records).attempt, 3);
    let kinds = ["PAUSED", "RESUMED"].map(|kind| records.count_events(&job.id, kind).unwrap());
    assert_eq!(kinds, [2, 2]);
}

pub(super) fn a_worker_that_saved_for_an_outdated_pause_is_followed_by_another(records: &dyn JobRecords) {
    let job = records.submit(&new_job("p"), 1).unwrap();
    let lease = claim(records);
    records.set_pause(&job.id, Some(&PausePoint::now()), 2).unwrap();
    assert!(!records.get(&job.id).unwrap().is_paused, "its worker has not saved its state yet");
    records.set_pause(&job.id, None, 3).unwrap();
    let queued = records.pause_at_point(&lease, &PausePoint::now(), &AttemptUsage::default(), 4).unwrap();
    assert_eq!((queued.state, queued.is_paused), (JobState::Queued, false));
    let stale = records.pause_at_point(&lease, &PausePoint::now(), &AttemptUsage::default(), 5);
    assert!(matches!(stale, Err(RecordError::Fenced { .. })), "{stale:?}");
    assert_eq!(claim(records).attempt, 2);
}

pub(super) fn a_queued_job_is_paused_at_once_and_can_be_stopped(records: &dyn JobRecords) {
    let job = records.submit(&new_job("p"), 1).unwrap();
    assert!(!records.set_pause(&job.id, Some(&at_step(5)), 2).unwrap().is_paused, "it has not done five steps");
    assert!(records.set_pause(&job.id, Some(&PausePoint::now()), 2).unwrap().is_paused);
    let stopped = records.request_stop(&job.id, &reason("STOPPED"), 3).unwrap();
    assert_eq!((stopped.state, stopped.is_paused), (JobState::Cancelled, false));
    assert!(matches!(records.set_pause(&job.id, None, 4), Err(RecordError::Finished { .. })));
    // A stop that was requested before the worker paused wins.
    let other = records.submit(&NewJob { pause: Some(at_step(1)), ..new_job("p") }, 5).unwrap();
    let lease = claim(records);
    records.request_stop(&other.id, &reason("STOPPED"), 6).unwrap();
    assert!(matches!(records.set_pause(&other.id, None, 6), Err(RecordError::Invalid { .. })));
    let ended = records.pause_at_point(&lease, &at_step(1), &AttemptUsage::default(), 7).unwrap();
    assert_eq!(ended.state, JobState::Cancelled);
}

pub(super) fn an_invalid_pause_is_refused(records: &dyn JobRecords) {
    let job = records.submit(&new_job("p"), 1).unwrap();
    let share = |part, of| PausePoint { at: PauseStep::Share { part, of }, metric: None };
    let metric = |name: &str| PausePoint { metric: Some(name.to_owned()), ..at_step(1) };
    for point in [share(1, 0), share(2, 1), metric(""), metric(&"n".repeat(300))] {
        let refused = records.set_pause(&job.id, Some(&point), 2);
        assert!(matches!(refused, Err(RecordError::Invalid { .. })), "{refused:?}");
        let refused = records.submit(&NewJob { pause: Some(point), ..new_job("p") }, 2);
        assert!(matches!(refused, Err(RecordError::Invalid { .. })), "{refused:?}");
    }
}
