//! Records whose leases end by a clock that the test sets.

use std::any::Any;
use std::sync::Arc;

use saggar_clock::ManualClock;

use crate::records::postgres::PostgresRecords;
use crate::records::postgres::tests::test_server::TestServer;
use crate::records::session::{RecordsEngine, params};
use crate::records::sqlite::SqliteRecords;
use crate::records::{JobRecords, LEASE_MS};

/// The time at which the clock of a test begins.
const BEGIN_MS: u64 = 1_700_000_000_000;

/// The clock of leases in a test.
pub(super) enum LeaseTestClock {
    Manual(Arc<ManualClock>),
    /// The database's functions read a table.
    Table(Box<PostgresRecords>),
}

impl LeaseTestClock {
    pub(super) fn advance(&self, by_ms: u64) {
        match self {
            LeaseTestClock::Manual(clock) => clock.advance(by_ms),
            LeaseTestClock::Table(records) => {
                let sql = "UPDATE test_clock SET now_ms = now_ms + ?1";
                records.write(|tx| tx.execute(sql, params![by_ms])).unwrap();
            }
        }
    }

    /// Lets the database's server begin now. SQLite has none.
    pub(super) fn restart_database(&self) {
        if let LeaseTestClock::Table(records) = self {
            records.write(|tx| tx.execute("UPDATE test_clock SET started_ms = now_ms", &[])).unwrap();
        }
    }
}

/// Records, their clock, and what they need until the end of the test.
pub(super) struct LeaseFixture {
    pub(super) records: Arc<dyn JobRecords>,
    pub(super) clock: LeaseTestClock,
    _engine: Box<dyn Any>,
}

impl LeaseFixture {
    pub(super) fn sqlite() -> LeaseFixture {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(BEGIN_MS));
        let records = SqliteRecords::open(&directory.path().join("saggar.db")).unwrap();
        let records = Arc::new(records.with_clock(Arc::<ManualClock>::clone(&clock)));
        LeaseFixture { records, clock: LeaseTestClock::Manual(clock), _engine: Box::new(directory) }
    }

    pub(super) fn sqlite_in_memory() -> LeaseFixture {
        let clock = Arc::new(ManualClock::new(BEGIN_MS));
        let records = Arc::new(SqliteRecords::open_in_memory().with_clock(Arc::<ManualClock>::clone(&clock)));
        LeaseFixture { records, clock: LeaseTestClock::Manual(clock), _engine: Box::new(()) }
    }

    /// Returns `None` if PostgreSQL is not installed and not required.
    pub(super) fn postgres() -> Option<LeaseFixture> {
        let server = TestServer::start()?;
        let url = server.create_database();
        let records = PostgresRecords::open(&url).unwrap();
        let run = |sql: &str| records.write(|tx| tx.execute(sql, &[])).unwrap();
        run("CREATE TABLE test_clock (now_ms BIGINT NOT NULL, started_ms BIGINT NOT NULL)");
        run(&format!("INSERT INTO test_clock VALUES ({BEGIN_MS}, {})", BEGIN_MS - LEASE_MS));
        for (function, column) in [("lease_clock_ms", "now_ms"), ("lease_clock_start_ms", "started_ms")] {
            run(&format!(
                "CREATE OR REPLACE FUNCTION {function}() RETURNS BIGINT LANGUAGE SQL VOLATILE \
                 AS 'SELECT {column} FROM test_clock'"
            ));
        }
        let clock = LeaseTestClock::Table(Box::new(PostgresRecords::open(&url).unwrap()));
        Some(LeaseFixture { records: Arc::new(records), clock, _engine: Box::new(server) })
    }
}

/// Runs each test of leases on both engines, with a clock that the test sets.
macro_rules! lease_suite {
    ($sqlite:ident $postgres:ident: $($test:ident)*) => {
        mod $sqlite {
            $(#[test]
            fn $test() {
                super::$test(&crate::records::tests::lease_clock::LeaseFixture::sqlite());
            })*
        }
        mod $postgres {
            $(#[test]
            fn $test() {
                if let Some(fixture) = crate::records::tests::lease_clock::LeaseFixture::postgres() {
                    super::$test(&fixture);
                }
            })*
        }
    };
}
pub(super) use lease_suite;
