//! Limits on a job's series, and waits of requeued jobs.

use super::*;
use crate::limits::SERIES_NAME_BYTES_MAX;

pub(crate) fn named_point(name: &str, step: u64, value: f64) -> MetricPoint {
    MetricPoint { name: name.to_owned(), ..point(step, value) }
}

pub(super) fn the_length_of_series_names_is_limited(records: &dyn JobRecords) {
    records.submit(&new_job("p"), 1).unwrap();
    let lease = claim(records);
    let name = "n".repeat(SERIES_NAME_BYTES_MAX + 1);
    let refused = records.record_metrics(&lease, &[named_point(&name, 1, 0.0)]);
    assert!(matches!(refused, Err(RecordError::Invalid { field: "metric", .. })));
}

pub(super) fn a_backward_clock_jump_does_not_delay_a_requeued_job(records: &dyn JobRecords) {
    let id = records.submit(&new_job("p"), 1).unwrap().id;
    let lease = records.claim(&id, "any", 10_000).unwrap().unwrap().lease;
    records.requeue(&lease, &reason("PREEMPTED"), 12_000, 10_000).unwrap();
    assert_eq!(records.claim(&id, "any", 10_000).unwrap(), None);
    assert_eq!(records.claim(&id, "any", 11_999).unwrap(), None);
    assert!(records.claim(&id, "any", 9_999).unwrap().is_some(), "an hour back, or a millisecond");
}

pub(super) fn invalid_jobs_are_refused(records: &dyn JobRecords) {
    let spec = |spec: &str| NewJob { spec: spec.to_owned(), ..new_job("p") };
    let refused = [
        new_job("../p"),
        NewJob { task: String::new(), ..new_job("p") },
        spec("[]"),
        spec("{"),
        spec(&format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20))),
        NewJob { idempotency_key: Some(String::new()), ..new_job("p") },
    ];
    for job in refused {
        let error = records.submit(&job, 0).unwrap_err();
        assert!(matches!(error, RecordError::Invalid { .. }), "{error}");
    }
    assert!(records.list(&JobFilter::default()).unwrap().is_empty());
}
