//! Totals of usage.

use super::*;

pub(super) fn a_removed_job_still_counts_in_the_usage_totals(records: &dyn JobRecords) {
    let id = records.submit(&NewJob { owner: Some("ci".to_owned()), ..new_job("p") }, 1).unwrap().id;
    assert!(matches!(records.remove(&id), Err(RecordError::Invalid { .. })));
    let lease = claim(records);
    records.record_metrics(&lease, &[point(1, 1.0)]).unwrap();
    let usage = AttemptUsage { gpu_seconds: 1.5, wall_seconds: 2.5, ..AttemptUsage::default() };
    records.record_progress(&lease, 1, 1, &usage).unwrap();
    assert!(matches!(records.remove(&id), Err(RecordError::Invalid { .. })));
    records.finish_job(&lease, JobState::Succeeded, &StateReason::default(), 3).unwrap();
    let spent = records.usage_totals().unwrap();
    let expected =
        UsageTotal { project: "p".to_owned(), owner: Some("ci".to_owned()), gpu_seconds: 1.5, wall_seconds: 2.5 };
    assert_eq!(spent, std::slice::from_ref(&expected));
    assert_eq!(records.remove(&id).unwrap().name, "p-1");
    assert!(matches!(records.get("p-1"), Err(RecordError::NoSuchJob { .. })));
    assert!(records.events(None, 0, 0).unwrap().is_empty());
    assert_eq!(records.usage_totals().unwrap(), [expected]);
    assert_eq!(records.submit(&new_job("p"), 4).unwrap().name, "p-2");
}

/// A job's usage is counted once, however the job ends.
pub(super) fn usage_totals_do_not_change_when_a_job_finishes(records: &dyn JobRecords) {
    let wall = || records.usage_totals().unwrap().iter().map(|spent| spent.wall_seconds).sum::<f64>();
    let usage = |wall_seconds| AttemptUsage { wall_seconds, ..AttemptUsage::default() };
    let submit = || records.submit(&new_job("p"), 1).unwrap().id;
    let cancelled = submit();
    records.request_stop(&cancelled, &reason("USER"), 2).unwrap();
    assert!(records.usage_totals().unwrap().is_empty(), "it never ran");
    // Two attempts, then stopped in the queue.
    let id = submit();
    for seconds in [1.0, 2.0] {
        let lease = claim(records);
        records.record_progress(&lease, 1, 9, &usage(seconds)).unwrap();
        records.requeue(&lease, &reason("PREEMPTED"), 0, 3).unwrap();
    }
    assert_eq!(wall(), 3.0);
    records.request_stop(&id, &reason("USER"), 4).unwrap();
    assert_eq!(wall(), 3.0);
    assert!(records.request_stop(&id, &reason("USER"), 5).is_err());
    // Stopped while running.
    let id = submit();
    let lease = claim(records);
    records.request_stop(&id, &reason("USER"), 6).unwrap();
    records.finish_attempt(&lease, JobState::Cancelled, &reason("USER"), &usage(4.0), 7).unwrap();
    records.requeue(&lease, &reason("PREEMPTED"), 0, 8).unwrap();
    assert_eq!(wall(), 7.0);
    assert!(records.finish_job(&lease, JobState::Cancelled, &reason("USER"), 9).is_err());
    assert!(records.requeue(&lease, &reason("PREEMPTED"), 0, 9).is_err());
    assert_eq!(wall(), 7.0);
    records.remove(&id).unwrap();
    assert_eq!((wall(), records.usage_totals().unwrap().len()), (7.0, 1));
}
