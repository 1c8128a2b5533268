//! Tests of what only PostgreSQL does. `records/tests.rs` has those of every engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::error::is_disk_full;
use crate::records::tests::{claim, leases, new_job, point};
use crate::records::{
    JobFilter, JobRecords, JobState, LeaseRecords, LeaseRenewal, NewJob, ServerIdentity, StateReason,
};

mod answer_cutter;
#[allow(unreachable_pub, dead_code, reason = "the tests of whole servers include this file too, and export it")]
pub(in crate::records) mod test_server;
mod unanswered_writes;

use answer_cutter::AnswerCutter;
use test_server::TestServer;

/// Opens records in a new database.
fn open_records(server: &TestServer) -> PostgresRecords {
    PostgresRecords::open(&server.create_database()).unwrap()
}

/// Returns the names of all jobs.
fn job_names(records: &dyn JobRecords) -> BTreeSet<String> {
    records.list(&JobFilter::default()).unwrap().into_iter().map(|job| job.name).collect()
}

#[test]
fn servers_that_start_at_once_create_one_schema_and_newer_schemas_are_refused() {
    let Some(server) = TestServer::start() else { return };
    let url = server.create_database();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| PostgresRecords::open(&url).unwrap());
        }
    });
    let records = PostgresRecords::open(&url).unwrap();
    assert_eq!(records.submit(&new_job("p"), 1).unwrap().name, "p-1");
    records.write(|tx| tx.execute("UPDATE schema_version SET version = 99", &[])).unwrap();
    let error = PostgresRecords::open(&url).unwrap_err();
    assert!(matches!(error, RecordError::NewerSchema { found: 99, .. }), "{error}");
}

#[test]
fn an_unreachable_database_is_named_without_its_password() {
    // Port 1 of this host has no server.
    let error = PostgresRecords::open("postgres://ci:secret@127.0.0.1:1/saggar").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("postgres://ci@127.0.0.1:1/saggar") && text.contains("refused"), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn a_database_of_another_encoding_is_refused_and_inspected() {
    let Some(server) = TestServer::start() else { return };
    let good = server.create_database();
    server.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
    let latin = format!("{}/latin", good.rsplit_once('/').unwrap().0);
    let error = PostgresRecords::open(&latin).unwrap_err().to_string();
    assert!(error.contains("encoding LATIN1") && error.contains("createdb -E UTF8"), "{error}");
    let found = inspect_database(&latin).unwrap();
    assert_eq!(
        (found.encoding.as_str(), found.is_encoding_supported, found.is_version_supported),
        ("LATIN1", false, true)
    );
    let found = inspect_database(&good).unwrap();
    assert_eq!((found.schema, found.is_encoding_supported), (None, true));
    assert!(found.clock_skew_ms.abs() < 1_000 && found.latency < Duration::from_secs(1), "{found:?}");
    drop(PostgresRecords::open(&good).unwrap());
    assert_eq!(inspect_database(&good).unwrap().schema, Some(found.schema_newest));
}

#[test]
fn texts_with_nul_are_stored_with_a_replacement() {
    let Some(server) = TestServer::start() else { return };
    let records = open_records(&server);
    let id = records.submit(&new_job("p"), 1).unwrap().id;
    records.record_event(&id, "NOTE", "a\0b", 2).unwrap();
    assert_eq!(records.events_of_kinds(&id, &["NOTE"]).unwrap()[0].text, "a\u{fffd}b");
}

#[test]
fn a_full_disk_is_reported_as_one() {
    let Some(server) = TestServer::start() else { return };
    let records = open_records(&server);
    let statement = "SELECT raise_disk_full()";
    let function = "CREATE FUNCTION raise_disk_full() RETURNS VOID LANGUAGE plpgsql AS \
        $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = '53100'; END $$";
    records.write(|tx| tx.execute(function, &[])).unwrap();
    let error = records.write(|tx| tx.execute(statement, &[])).unwrap_err();
    assert!(is_disk_full(&error), "{error}");
}

/// A call from a task of a runtime blocks the task's thread, and does not panic.
#[test]
fn records_can_be_read_in_a_task() {
    let Some(server) = TestServer::start() else { return };
    let records = open_records(&server);
    records.submit(&new_job("p"), 1).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let names = runtime.block_on(async {
        let names = job_names(&records);
        drop(records);
        names
    });
    assert_eq!(names.len(), 1);
}

/// Two transactions that wait for each other: the server ends one, which is repeated.
#[test]
fn a_transaction_that_ended_in_a_deadlock_is_repeated() {
    let Some(server) = TestServer::start() else { return };
    let records = open_records(&server);
    let ids = [0, 1].map(|at| records.submit(&new_job("p"), at).unwrap().id);
    let barrier = std::sync::Barrier::new(2);
    let touch = |order: [&str; 2]| {
        let is_first_attempt = AtomicBool::new(true);
        records.write(|tx| {
            tx.execute("UPDATE jobs SET step = step + 1 WHERE id = ?1", crate::records::session::params![order[0]])?;
            if is_first_attempt.swap(false, Ordering::Relaxed) {
                barrier.wait();
            }
            tx.execute("UPDATE jobs SET step = step + 1 WHERE id = ?1", crate::records::session::params![order[1]])
        })
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| touch([&ids[1], &ids[0]]));
        touch([&ids[0], &ids[1]]).unwrap();
        other.join().unwrap().unwrap();
    });
    assert_eq!(ids.map(|id| records.get(&id).unwrap().step), [2, 2]);
}

/// Eight threads record events while one follows them with the newest sequence as its cursor, which passes over none.
/// `SAGGAR_EVENT_SECONDS` is the time of a long form.
#[test]
fn a_reader_of_events_misses_none_of_eight_writers() {
    const WRITERS: u64 = 8;
    const EVENTS: u64 = 60;
    let Some(server) = TestServer::start() else { return };
    let records = open_records(&server);
    let seconds = std::env::var("SAGGAR_EVENT_SECONDS").map(|text| text.parse().expect("a number of seconds"));
    let end = seconds.map_or_else(|_| Instant::now(), |seconds| Instant::now() + Duration::from_secs(seconds));
    let ids: Vec<_> = (0..WRITERS).map(|at| records.submit(&new_job("p"), at).unwrap().id).collect();
    let mut cursor = records.newest_event_sequence().unwrap();
    let mut read: BTreeMap<String, u64> = BTreeMap::new();
    // Events of each writer come in its order, so that one that was passed over is noticed at the next.
    let mut follow = |cursor: u64| {
        let events = records.events(None, cursor, 0).unwrap();
        for event in &events {
            let next = read.entry(event.job.clone()).or_default();
            assert_eq!(event.text, next.to_string(), "{event:?}");
            *next += 1;
        }
        events.last().map_or(cursor, |last| last.sequence)
    };
    let write = |id: &str| {
        let numbers = (0..).take_while(|at| *at < EVENTS || Instant::now() < end);
        numbers.map(|at: u64| records.record_event(id, "NOTE", &at.to_string(), at).unwrap()).count() as u64
    };
    let write = &write;
    let written: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = ids.iter().map(|id| scope.spawn(move || write(id))).collect();
        while !writers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            cursor = follow(cursor);
        }
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    follow(cursor);
    println!("{} events of {WRITERS} writers", written.iter().sum::<u64>());
    assert_eq!(ids.iter().map(|id| read[id]).collect::<Vec<_>>(), written);
}

/// What was recorded stays, and writers continue after the server is back.
#[test]
fn a_killed_server_loses_no_acknowledged_write() {
    let Some(server) = TestServer::start() else { return };
    let records = open_records(&server);
    let acknowledged = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let records = &records;
                scope.spawn(move || {
                    let submit = |at: u64| {
                        let key = format!("{writer}-{at}");
                        let job = NewJob { idempotency_key: Some(key.clone()), ..new_job("p") };
                        (key, records.submit(&job, at).unwrap().id)
                    };
                    (0..60).map(submit).collect::<Vec<_>>()
                })
            })
            .collect();
        for _ in 0..2 {
            let before = job_names(&records).len();
            while job_names(&records).len() < before + 20 {
                std::thread::yield_now();
            }
            server.kill_and_restart();
        }
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    for (key, id) in &acknowledged {
        assert_eq!(&records.find_by_idempotency_key(key).unwrap().expect("it was acknowledged").id, id);
    }
    assert_eq!(acknowledged.len(), 240);
    assert_eq!(records.count_by_state().unwrap(), [(JobState::Queued, 240)], "none was recorded twice");
}

/// The connection ends after COMMIT was sent, so its answer is lost. Each write happens once.
#[test]
fn a_write_whose_answer_is_lost_happens_once() {
    let Some(server) = TestServer::start() else { return };
    let url = server.create_database();
    let direct = PostgresRecords::open(&url).unwrap();
    let cutter = AnswerCutter::start(server.port());
    let records = PostgresRecords::open(&server.url_through(&url, cutter.port())).unwrap();
    let keyed = NewJob { idempotency_key: Some("k".to_owned()), ..new_job("p") };
    cutter.cut_next_commit();
    let submitted = records.submit(&keyed, 1).unwrap();
    assert_eq!(cutter.cuts(), 1);
    assert_eq!((submitted.name.as_str(), records.submit(&keyed, 2).unwrap()), ("p-1", submitted.clone()));
    // Without a key.
    cutter.cut_next_commit();
    assert_eq!(records.submit(&new_job("p"), 3).unwrap().name, "p-2");
    assert_eq!((cutter.cuts(), job_names(&direct).len()), (2, 2));
    cutter.cut_next_commit();
    let claimed = records.claim(&submitted.id, "pool", 4).unwrap().expect("it is queued");
    assert_eq!((cutter.cuts(), claimed.lease.attempt, claimed.lease.epoch), (3, 1, 1));
    assert_eq!(direct.attempts(&submitted.id).unwrap().len(), 1);
    assert_eq!(direct.claim(&submitted.id, "pool", 5).unwrap(), None);
    // The lease ends with the write, so a repetition would be refused.
    cutter.cut_next_commit();
    let queued = records.requeue(&claimed.lease, &StateReason::new("PREEMPTED", ""), 0, 6).unwrap();
    assert_eq!((cutter.cuts(), queued.state, queued.epoch), (4, JobState::Queued, 2));
    assert_eq!(direct.count_events(&submitted.id, "QUEUED").unwrap(), 1);
}

/// So do a claim for a server, a renewal, a job that is taken away, and the end of a job.
#[test]
fn a_write_of_a_lease_whose_answer_is_lost_happens_once() {
    let Some(server) = TestServer::start() else { return };
    let url = server.create_database();
    let direct = PostgresRecords::open(&url).unwrap();
    let cutter = AnswerCutter::start(server.port());
    let records = PostgresRecords::open(&server.url_through(&url, cutter.port())).unwrap();
    let id = direct.submit(&new_job("p"), 1).unwrap().id;
    let claim = || {
        cutter.cut_next_commit();
        let identity = ServerIdentity { name: "a".to_owned(), ..ServerIdentity::default() };
        records.claim_placed(&leases::query(&identity, 2), &leases::place_all).unwrap().remove(0).claim.lease
    };
    let first = claim();
    assert_eq!((cutter.cuts(), first.attempt, direct.attempts(&id).unwrap().len()), (1, 1, 1));
    cutter.cut_next_commit();
    let renewed = records.renew_leases(std::slice::from_ref(&first)).unwrap();
    assert!(matches!(renewed[0], LeaseRenewal::Renewed { .. }));
    // The lease is over, and the database has run for longer than one.
    let function =
        "CREATE OR REPLACE FUNCTION lease_clock_start_ms() RETURNS BIGINT LANGUAGE SQL AS 'SELECT 0::BIGINT'";
    direct.write(|tx| tx.execute(function, &[])).unwrap();
    direct.write(|tx| tx.execute("UPDATE jobs SET lease_until = 0", &[])).unwrap();
    cutter.cut_next_commit();
    let reaped = records.reap_expired(&leases::host_lost, 3).unwrap();
    assert_eq!((cutter.cuts(), reaped.len(), reaped[0].epoch), (3, 1, 2));
    assert_eq!(direct.count_events(&id, "LEASE_EXPIRED").unwrap(), 1);
    let second = claim();
    cutter.cut_next_commit();
    let done = records.finish_job(&second, JobState::Succeeded, &StateReason::default(), 4).unwrap();
    assert_eq!((cutter.cuts(), done.state, done.attempts), (5, JobState::Succeeded, 2));
    assert_eq!(direct.count_events(&id, "SUCCEEDED").unwrap(), 1);
    let spent = direct.usage_totals().unwrap();
    assert_eq!(spent.len(), 1, "the usage is added once: {spent:?}");
}

/// The connection ends before COMMIT reaches the server, so nothing was recorded: the write is repeated.
#[test]
fn a_write_whose_commit_is_lost_is_repeated() {
    let Some(server) = TestServer::start() else { return };
    let url = server.create_database();
    let cutter = AnswerCutter::start(server.port());
    let records = PostgresRecords::open(&server.url_through(&url, cutter.port())).unwrap();
    cutter.lose_next_commit();
    let job = records.submit(&new_job("p"), 1).unwrap();
    assert_eq!((cutter.cuts(), job.name.as_str()), (1, "p-1"));
    let lease = claim(&records);
    cutter.lose_next_commit();
    records.record_metrics(&lease, &[point(1, 0.5)]).unwrap();
    assert_eq!((cutter.cuts(), records.series(&job.id, "loss", 0, 0).unwrap().len()), (2, 1));
}

/// A client that is stopped in the middle of a transaction holds its locks for a few seconds only, and repeats the
/// transaction.
#[test]
fn a_client_that_stops_in_a_transaction_blocks_others_for_seconds_only() {
    let Some(server) = TestServer::start() else { return };
    let records = open_records(&server);
    let id = records.submit(&new_job("p"), 1).unwrap().id;
    let (locked, is_first) = (std::sync::Barrier::new(2), AtomicBool::new(true));
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| {
            let is_done = std::sync::Mutex::new(is_done);
            records.write(|tx| {
                crate::records::queries::event::record(tx, &id, "STOPPED", "", 2)?;
                if is_first.swap(false, Ordering::Relaxed) {
                    locked.wait();
                    is_done.lock().unwrap().recv().unwrap();
                }
                Ok(())
            })
        });
        locked.wait();
        let began = Instant::now();
        records.record_event(&id, "OTHER", "", 3).unwrap();
        let most = Duration::from_millis(3 * u64::from(crate::limits::POSTGRES_IDLE_TRANSACTION_MS_MAX));
        assert!(began.elapsed() < most, "{:?}", began.elapsed());
        done.send(()).unwrap();
        stopped.join().unwrap().unwrap();
    });
    assert_eq!((records.count_events(&id, "STOPPED").unwrap(), records.count_events(&id, "OTHER").unwrap()), (1, 1));
}

#[test]
fn more_threads_than_connections_share_them() {
    let Some(server) = TestServer::start() else { return };
    let records = Arc::new(open_records(&server));
    let id = records.submit(&new_job("p"), 1).unwrap().id;
    std::thread::scope(|scope| {
        for _ in 0..3 * crate::limits::POSTGRES_CONNECTIONS_MAX {
            scope.spawn(|| assert_eq!(records.get(&id).unwrap().name, "p-1"));
        }
    });
}
