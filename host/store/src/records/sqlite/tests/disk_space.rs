//! Disk space of the database file.

use super::*;
use crate::limits::POINTS_MAX;
use crate::records::tests::bounds::named_point;

/// Returns the size in bytes of the database and the files beside it.
fn database_bytes(path: &std::path::Path) -> u64 {
    let of = |suffix: &str| {
        let mut file = path.to_owned().into_os_string();
        file.push(suffix);
        std::fs::metadata(file).map_or(0, |data| data.len())
    };
    of("") + of("-wal")
}

#[test]
fn points_past_the_limit_are_thinned_and_removal_frees_their_disk_space() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("saggar.db");
    let records = SqliteRecords::open(&path).unwrap();
    let empty = database_bytes(&path);
    let id = records.submit(&new_job("p"), 1).unwrap().id;
    let lease = claim(&records);
    let short: Vec<_> = (0..100).map(|step| named_point("short", step, 0.0)).collect();
    records.record_metrics(&lease, &short).unwrap();
    let last = POINTS_MAX * 2;
    for first in (0..last).step_by(10_000) {
        let value = |step| match step {
            77_777 => -1.0,
            99_999 => 9.0,
            _ => 1.0,
        };
        let points: Vec<_> = (first..first + 10_000).map(|step| named_point("long", step, value(step))).collect();
        records.record_metrics(&lease, &points).unwrap();
    }
    let mut steps = Vec::new();
    let mut values = Vec::new();
    while steps.last().is_none_or(|step| *step < last - 1) {
        let from = steps.last().map_or(0, |step| step + 1);
        let more = records.series(&id, "long", from, 0).unwrap();
        assert!(!more.is_empty(), "the last point is shown");
        steps.extend(more.iter().map(|point| point.step));
        values.extend(more.iter().map(|point| point.value));
    }
    assert!(steps.len() as u64 <= POINTS_MAX && steps.len() as u64 >= POINTS_MAX / 4, "{} points", steps.len());
    assert!(steps[0] == 0 && values.contains(&-1.0) && values.contains(&9.0));
    let gap = steps.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(gap.is_some_and(|gap| gap <= 8), "{gap:?}");
    assert_eq!(records.series(&id, "short", 0, 0).unwrap().len(), 100, "short series stay whole");
    assert_eq!(records.count_events(&id, "SERIES_THINNED").unwrap(), 1);
    let full = database_bytes(&path);
    records.finish_job(&lease, JobState::Succeeded, &StateReason::default(), 3).unwrap();
    records.remove(&id).unwrap();
    assert!(full > 8 << 20 && database_bytes(&path) < empty + (1 << 20), "{empty}, {full}, {}", database_bytes(&path));
}

#[test]
fn databases_of_earlier_builds_are_vacuumed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("saggar.db");
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch("PRAGMA journal_mode = WAL; PRAGMA auto_vacuum = NONE;").unwrap();
    old.execute_batch(include_str!("../schema.sql")).unwrap();
    old.execute_batch(
        "PRAGMA user_version = 1; INSERT INTO projects VALUES ('p', 1); \
         INSERT INTO jobs (id, name, project, number, task, spec, priority, state, created_ms) \
         VALUES ('old', 'p-1', 'p', 1, 'train', '{}', 0, 'SUCCEEDED', 1); \
         WITH RECURSIVE steps (step) AS (SELECT 1 UNION ALL SELECT step + 1 FROM steps WHERE step < 60000) \
         INSERT INTO metrics (job, name, step, attempt, value, at_ms) SELECT 'old', 'loss', step, 1, 0.5, 1 FROM steps;",
    )
    .unwrap();
    drop(old);
    let full = database_bytes(&path);
    let records = SqliteRecords::open(&path).unwrap();
    assert_eq!(records.series("old", "loss", 59_999, 0).unwrap().len(), 2);
    records.remove("old").unwrap();
    assert!(full > 1 << 20 && database_bytes(&path) < 1 << 20, "{full}, then {}", database_bytes(&path));
    records.compact().unwrap();
}
