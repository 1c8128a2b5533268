//! Tests of what only SQLite does. `records/tests.rs` has those of every engine.

use std::sync::Barrier;

use super::*;
use crate::error::is_disk_full;
use crate::limits::{EVENT_TEXT_BYTES_MAX, EVENTS_OF_KIND_MAX};
use crate::records::queries::event;
use crate::records::tests::{claim, claim_next, new_job, point};
use crate::records::{JobLease, JobRecords, JobState, MetricPoint, NewJob, SchedulingRequest, StateReason, UsageTotal};

mod disk_space;
mod schemas;

fn records() -> (tempfile::TempDir, SqliteRecords) {
    let directory = tempfile::tempdir().unwrap();
    let records = SqliteRecords::open(&directory.path().join("saggar.db")).unwrap();
    (directory, records)
}

#[test]
fn every_connection_syncs_every_commit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("saggar.db");
    // The first opens a new database, the second the existing one, and the third opens it after another process
    // ended.
    let (first, second) = (SqliteRecords::open(&path).unwrap(), SqliteRecords::open(&path).unwrap());
    let check = |records: &SqliteRecords| {
        let connection = records.connection();
        let text = |name| connection.pragma_query_value(None, name, |row| row.get::<_, String>(0)).unwrap();
        let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!((text("journal_mode").as_str(), number("synchronous"), number("foreign_keys")), ("wal", 2, 1));
    };
    check(&first);
    check(&second);
    drop((first, second));
    check(&SqliteRecords::open(&path).unwrap());
}

#[test]
fn events_of_one_kind_are_limited_and_their_texts_truncated() {
    let directory = tempfile::tempdir().unwrap();
    let records = SqliteRecords::open(&directory.path().join("saggar.db")).unwrap();
    let (project, task, spec) = ("p".to_owned(), "t".to_owned(), "{}".to_owned());
    let id = records.submit(&NewJob { project, task, spec, ..NewJob::default() }, 1).unwrap().id;
    let many = |tx: &dyn SqlSession| (0..=EVENTS_OF_KIND_MAX).try_for_each(|_| event::record(tx, &id, "PHASE", "x", 1));
    records.write(many).unwrap();
    records.record_event(&id, "PHASE", &"é".repeat(EVENT_TEXT_BYTES_MAX), 1).unwrap();
    assert_eq!(records.count_events(&id, "PHASE").unwrap(), u64::from(EVENTS_OF_KIND_MAX));
    assert_eq!(records.count_events(&id, "SUBMITTED").unwrap(), 1);
    assert_eq!(records.newest_events(&id, 1).unwrap()[0].text.len(), EVENT_TEXT_BYTES_MAX);
}

#[test]
fn two_processes_never_claim_the_same_job() {
    let (directory, records) = records();
    let jobs = 40;
    for at in 0..jobs {
        records.submit(&new_job("p"), at).unwrap();
    }
    let path = directory.path().join("saggar.db");
    let barrier = Barrier::new(4);
    let mut claimed: Vec<String> = std::thread::scope(|scope| {
        let worker = || {
            let records = SqliteRecords::open(&path).unwrap();
            barrier.wait();
            std::iter::from_fn(|| claim_next(&records, 100))
                .map(|claim| {
                    assert_eq!((claim.lease.attempt, claim.lease.epoch), (1, 1));
                    claim.lease.job
                })
                .collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    claimed.sort();
    claimed.dedup();
    assert_eq!(claimed.len(), jobs as usize);
}

#[test]
fn records_are_reopened_and_newer_schemas_are_refused() {
    let (directory, records) = records();
    let path = directory.path().join("saggar.db");
    let job = records.submit(&new_job("p"), 1).unwrap();
    drop(records);
    let again = SqliteRecords::open(&path).unwrap();
    assert_eq!(again.get("p-1").unwrap(), job);
    drop(again);
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = SqliteRecords::open(&path).unwrap_err();
    assert!(matches!(error, RecordError::NewerSchema { found: 99, .. }), "{error}");
    std::fs::write(directory.path().join("garbage.db"), "not a database at all, but long enough to be one".repeat(99))
        .unwrap();
    let error = SqliteRecords::open(&directory.path().join("garbage.db")).unwrap_err();
    assert!(error.to_string().contains("garbage.db"), "{error}");
}

#[test]
fn a_full_database_is_reported_as_a_full_disk() {
    let (_directory, records) = records();
    records.submit(&new_job("p"), 1).unwrap();
    records.connection().pragma_update_and_check(None, "max_page_count", 1, |_| Ok(())).unwrap();
    let submitted = (0..1000).find_map(|at| records.submit(&new_job("p"), at).err());
    let error = submitted.expect("a database of limited size accepts no thousand jobs");
    assert!(is_disk_full(&error), "{error}");
}
