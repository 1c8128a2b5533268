//! Tests of the copy of all records.

use std::collections::BTreeSet;

use super::tables::{COPIED, EXCLUDED};
use super::*;
use crate::records::postgres::tests::test_server::TestServer;
use crate::records::tests::{claim, new_job, point};
use crate::records::{AnnotationChange, JobSchedule, JobState, NewJob, StateReason};
use crate::rights::AccessRights;

fn tables(database: &RecordsDatabase) -> BTreeSet<String> {
    let found = RefCell::new(BTreeSet::new());
    database
        .read(&|tx| {
            let sql = match tx.dialect() {
                SqlDialect::Sqlite => "SELECT name FROM sqlite_schema WHERE type = 'table'",
                SqlDialect::Postgres => "SELECT CAST(relname AS TEXT) FROM pg_class WHERE relkind = 'r' AND relnamespace = to_regnamespace('public')",
            };
            let names: Vec<String> = tx.query_all(sql, params![], |row| row.get(0))?;
            found.borrow_mut().extend(names);
            Ok(())
        })
        .unwrap();
    found.into_inner()
}

fn open_in(directory: &tempfile::TempDir, name: &str) -> RecordsDatabase {
    RecordsDatabase::open_file(&directory.path().join(name)).unwrap()
}

/// A new table is copied, or has a reason why it is not.
fn check_tables_are_listed(database: &RecordsDatabase) {
    let copied = COPIED.iter().map(|table| table.name);
    let listed: BTreeSet<String> = copied.chain(EXCLUDED.iter().map(|(name, _)| *name)).map(str::to_owned).collect();
    let unlisted: Vec<_> = tables(database).difference(&listed).cloned().collect();
    assert!(unlisted.is_empty(), "tables that are neither copied nor excluded: {unlisted:?}; add them to `tables.rs`");
    assert!(EXCLUDED.iter().all(|(_, reason)| !reason.is_empty()));
    // The key identifies a row, so that pages leave out none.
    database
        .read(&|tx| {
            for table in &COPIED {
                let columns = columns_of(tx, table)?;
                let constants = table.constants.iter().map(|(name, _)| *name);
                for name in table.key.iter().copied().chain(table.numbered).chain(constants) {
                    assert!(columns.iter().any(|column| column == name), "{}: no column {name}", table.name);
                }
            }
            Ok(())
        })
        .unwrap();
}

/// Makes records with every type of value: NULL, infinite numbers, NUL, and more rows than one page has.
fn fill(database: &RecordsDatabase) {
    let records = database.records();
    for at in 0..3 {
        let key = (at == 1).then(|| "key".to_owned());
        records.submit(&NewJob { idempotency_key: key, ..new_job("p") }, at).unwrap();
    }
    let lease = claim(records);
    for step in 0..(2 * ROWS_AT_ONCE as u64 + 7) {
        records.record_event(&lease.job, "NOTE", &format!("a\0ü {step}"), step).unwrap();
    }
    let points: Vec<_> = (0..500).map(|step| point(step, f64::from(step as u32) * 0.1)).collect();
    records.record_metrics(&lease, &points).unwrap();
    records.record_metrics(&lease, &[point(500, f64::INFINITY), point(501, f64::NAN)]).unwrap();
    let change = AnnotationChange { note: Some("a note".to_owned()), ..AnnotationChange::default() };
    records.annotate(&lease.job, &change).unwrap();
    records.finish_job(&lease, JobState::Succeeded, &StateReason::new("", "done"), 9).unwrap();
    let schedule = JobSchedule {
        name: "s".to_owned(),
        cron: "* * * * *".to_owned(),
        spec: r#"{"plugin":"p"}"#.to_owned(),
        owner: None,
        rights: AccessRights::default(),
        created_ms: 1,
        settled_ms: 2,
        last_job: None,
    };
    records.put_schedule(&schedule).unwrap();
    records.replace_document("keys", 0, "{}").unwrap();
}

/// The removal of the newest job leaves the number that the next one gets.
fn remove_newest(database: &RecordsDatabase) {
    let records = database.records();
    let newest = records.list(&Default::default()).unwrap().remove(0);
    records.request_stop(&newest.id, &StateReason::new("STOPPED", ""), 10).unwrap();
    records.remove(&newest.id).unwrap();
}

fn check_copy(source: &RecordsDatabase, target: &RecordsDatabase) -> Vec<TableDigest> {
    let copied = source.copy_to(target, &|_| ()).unwrap();
    assert_eq!(target.digests(&|_| ()).unwrap(), copied);
    assert_eq!(source.digests(&|_| ()).unwrap(), copied);
    copied
}

#[test]
fn every_table_is_copied_or_excluded_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    check_tables_are_listed(&open_in(&directory, "a.db"));
    let Some(server) = TestServer::start() else { return };
    check_tables_are_listed(&RecordsDatabase::open_url(&server.create_database()).unwrap());
}

#[test]
fn records_are_equal_after_a_copy_to_postgres_and_back() {
    let directory = tempfile::tempdir().unwrap();
    let first = open_in(&directory, "a.db");
    fill(&first);
    remove_newest(&first);
    // Of the same engine.
    let again = open_in(&directory, "b.db");
    let digests = check_copy(&first, &again);
    let rows = |name: &str| digests.iter().find(|it| it.table == name).unwrap().rows;
    assert_eq!((rows("jobs"), rows("metrics"), rows("schedules"), rows("annotations")), (2, 502, 1, 1));
    assert!(rows("events") > 2 * ROWS_AT_ONCE as u64);
    let Some(server) = TestServer::start() else { return };
    let shared = RecordsDatabase::open_url(&server.create_database()).unwrap();
    assert_eq!(check_copy(&first, &shared), digests);
    // Copying again replaces what is there.
    assert_eq!(check_copy(&first, &shared), digests);
    let back = open_in(&directory, "c.db");
    assert_eq!(check_copy(&shared, &back), digests);
    // The names of new jobs and the numbers of new events go on.
    let submit = |database: &RecordsDatabase| database.records().submit(&new_job("p"), 20).unwrap();
    let (one, two, three) = (submit(&first), submit(&shared), submit(&back));
    assert_eq!((two.name.as_str(), three.name.as_str()), (one.name.as_str(), one.name.as_str()));
    assert_eq!((two.cursor, three.cursor), (one.cursor, one.cursor));
    let newest = |database: &RecordsDatabase| database.records().newest_event_sequence().unwrap();
    assert_eq!((newest(&shared), newest(&back)), (newest(&first), newest(&first)));
}

#[test]
fn a_changed_value_changes_the_digest_of_its_table() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (open_in(&directory, "a.db"), open_in(&directory, "b.db"));
    fill(&first);
    check_copy(&first, &second);
    for (table, change) in [
        ("metrics", "UPDATE metrics SET value = value + 1e-9 WHERE step = 300"),
        ("events", "UPDATE events SET text = text || ' ' WHERE sequence = 7"),
        ("jobs", "UPDATE jobs SET finished_ms = NULL WHERE finished_ms IS NOT NULL"),
        ("trials", "INSERT INTO sqlite_sequence (name, seq) VALUES ('sweeps', 5)"),
    ] {
        let before = second.digests(&|_| ()).unwrap();
        second.write(&|tx| tx.execute(change, params![]).map(drop)).unwrap();
        let after = second.digests(&|_| ()).unwrap();
        let different: Vec<_> =
            before.iter().zip(&after).filter(|(a, b)| a != b).map(|(digest, _)| digest.table).collect();
        let expected = if table == "trials" { "sweeps" } else { table };
        assert_eq!(different, [expected], "{change}");
    }
}

#[test]
fn a_marked_database_is_refused_until_the_mark_is_removed() {
    let Some(server) = TestServer::start() else { return };
    let url = server.create_database();
    let database = RecordsDatabase::open_url(&url).unwrap();
    assert!(database.tables_with_rows().unwrap().is_empty());
    database.set_migration_mark(Some("{}")).unwrap();
    assert!(database.tables_with_rows().unwrap().is_empty(), "the mark is not data");
    let error = crate::records::open(&url).unwrap_err().to_string();
    assert!(error.contains("incomplete") && error.contains("saggar migrate"), "{error}");
    database.set_migration_mark(None).unwrap();
    crate::records::open(&url).unwrap().submit(&new_job("p"), 1).unwrap();
    let rows = database.tables_with_rows().unwrap();
    assert_eq!(rows[..2], [("projects", 1), ("jobs", 1)]);
}
