//! Migration of state directories of earlier builds.

use super::*;
use crate::records::{SweepDecision, SweepRecords, TrialParent, TrialRecord};

/// A database of the first schema is migrated with its content.
#[test]
fn a_database_of_the_first_schema_is_migrated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("saggar.db");
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch(include_str!("../schema.sql")).unwrap();
    old.execute_batch(
        "PRAGMA user_version = 1; INSERT INTO projects VALUES ('p', 3); \
         INSERT INTO jobs (id, name, project, number, task, spec, priority, state, created_ms) \
         VALUES ('old', 'p-3', 'p', 3, 'train', '{}', 0, 'QUEUED', 1);",
    )
    .unwrap();
    drop(old);
    let records = SqliteRecords::open(&path).unwrap();
    assert_eq!(records.get("p-3").unwrap().demand, SchedulingRequest::default());
    assert_eq!(claim(&records).job, "old");
    assert_eq!(records.submit(&new_job("p"), 2).unwrap().name, "p-4");
}

/// A database of the second schema gets the additional fields of the third.
#[test]
fn a_database_of_the_second_schema_is_migrated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("saggar.db");
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch(include_str!("../schema.sql")).unwrap();
    old.execute_batch(include_str!("../demand.sql")).unwrap();
    old.execute_batch(
        "PRAGMA user_version = 2; INSERT INTO projects VALUES ('p', 4); \
         INSERT INTO jobs (id, name, project, number, task, spec, priority, state, created_ms, epoch, attempts, owner) \
         VALUES ('a', 'p-1', 'p', 1, 't', '{}', 0, 'SUCCEEDED', 1, 1, 2, NULL), \
         ('b', 'p-2', 'p', 2, 't', '{}', 0, 'RUNNING', 1, 1, 1, 'ci'), \
         ('c', 'p-3', 'p', 3, 't', '{}', 0, 'CANCELLED', 1, 1, 1, 'ci'), \
         ('d', 'p-4', 'p', 4, 't', '{}', 0, 'QUEUED', 1, 0, 0, NULL); \
         INSERT INTO attempts (job, number, state, started_ms, gpu_seconds, wall_seconds) \
         VALUES ('a', 1, 'QUEUED', 1, 1, 2), ('a', 2, 'SUCCEEDED', 1, 4, 8), ('b', 1, 'RUNNING', 1, 16, 32), \
         ('c', 1, 'CANCELLED', 1, 64, 128); \
         INSERT INTO spent VALUES ('p', '', 256, 512), ('q', 'ci', 1024, 2048); \
         INSERT INTO metrics (job, name, step, attempt, value, at_ms) \
         VALUES ('a', 'loss', 1, 1, 0.9, 1), ('a', 'loss', 9, 1, 0.8, 2), ('a', 'loss', 3, 2, 0.7, 3), \
         ('a', 'loss', 4, 2, NULL, 4), ('a', 'early', 5, 1, 0.5, 5), ('b', 'loss', 10, 1, 0.25, 6); \
         INSERT INTO events (job, at_ms, kind, text) VALUES ('a', 1, 'CLAIMED', ''), ('b', 1, 'CLAIMED', '');",
    )
    .unwrap();
    drop(old);
    for _ in 0..2 {
        let records = SqliteRecords::open(&path).unwrap();
        let details = records.job_details(&["a", "b", "c", "none"].map(str::to_owned)).unwrap();
        let events_of = |id: &str| -> Vec<String> {
            let show = |point: &MetricPoint| format!("{} {} {} {}", point.name, point.step, point.value, point.at_ms);
            details[id].latest.iter().map(show).collect()
        };
        assert_eq!(
            (events_of("a"), events_of("b")),
            (vec!["early 5 0.5 5".into(), "loss 4 NaN 4".into()], vec!["loss 10 0.25 6".into()])
        );
        assert!(events_of("c").is_empty() && !details.contains_key("none"));
        assert_eq!(details["a"].attempts, records.attempts("a").unwrap());
        assert_eq!(records.series_names("a").unwrap(), ["early", "loss"]);
        assert_eq!(records.events_of_kinds("a", &["CLAIMED"]).unwrap().len(), 1);
        let spent = |project: &str, owner: Option<&str>, gpu_seconds, wall_seconds| {
            let (project, owner) = (project.to_owned(), owner.map(str::to_owned));
            UsageTotal { project, owner, gpu_seconds, wall_seconds }
        };
        let expected = [
            spent("p", None, 261.0, 522.0),
            spent("p", Some("ci"), 80.0, 160.0),
            spent("q", Some("ci"), 1024.0, 2048.0),
        ];
        assert_eq!(records.usage_totals().unwrap(), expected);
    }
    let records = SqliteRecords::open(&path).unwrap();
    let lease = JobLease { job: "b".to_owned(), attempt: 1, epoch: 1, claim: String::new() };
    records.record_metrics(&lease, &[point(9, 0.5), point(11, 0.125)]).unwrap();
    let latest = records.job_details(&["b".to_owned()]).unwrap().remove("b").unwrap().latest;
    assert_eq!((latest.len(), latest[0].step), (1, 11));
    records.finish_job(&lease, JobState::Failed, &StateReason::default(), 9).unwrap();
    for job in ["a", "b", "c"] {
        records.remove(job).unwrap();
    }
    let sums: f64 = records.usage_totals().unwrap().iter().map(|spent| spent.gpu_seconds).sum();
    assert_eq!(sums, 1365.0, "removing changes nothing");
}

/// The trials of a database of the eleventh schema have no parents, and copies can be added.
#[test]
fn sweeps_of_the_eleventh_schema_are_migrated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("saggar.db");
    let old = rusqlite::Connection::open(&path).unwrap();
    SCHEMAS[..11].iter().for_each(|schema| old.execute_batch(schema).unwrap());
    old.execute_batch(
        "PRAGMA user_version = 11; \
         INSERT INTO sweeps (id, name, project, number, spec, state, created_ms) \
         VALUES ('s', 'p-sweep-1', 'p', 1, '{}', 'RUNNING', 1); \
         INSERT INTO trials VALUES ('s', 1, '{}', 'j', 'PAUSED', 1, '0.5 -', 'PAUSED', 'waits');",
    )
    .unwrap();
    drop(old);
    let records = SqliteRecords::open(&path).unwrap();
    let first = records.trials("s").unwrap().remove(0);
    assert_eq!((&first.parent, &first.rung_values, first.member()), (&None, &vec![Some(0.5), None], 1));
    let parent = Some(TrialParent { member: 2, trial: 1, rung: 1 });
    let copy = TrialRecord { number: 3, job: None, parent, ..first.clone() };
    let decision = SweepDecision { trials: vec![copy.clone()], end: None };
    assert!(records.record_decision("s", 0, &decision, 2).unwrap());
    assert_eq!(records.trials("s").unwrap(), [first, copy]);
}
