//! One connection and its transactions.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::mpsc;

// A runtime's function of this name panics in a task; this one makes the task slow.
use futures::executor::block_on;
use tokio::runtime::Handle;
use tokio_postgres::{Client, Statement};

use super::deferred_events::DeferredEvents;
use super::settings::ConnectionSettings;
use super::tls::TlsSetup;
use super::{PostgresError, values};
use crate::limits::{EVENTS_OF_KIND_MAX, POSTGRES_IDLE_TRANSACTION_MS_MAX, RECORDS_BUSY_MS};
use crate::records::session::{
    LeaseClock, NewEvent, RecordLock, SqlDialect, SqlRow, SqlSession, SqlValue, TransactionResult, params,
};

/// The numbers of advisory locks. All are released at the end of a transaction, so that a pooler that gives a connection
/// to another client after each transaction can stand in between.
pub(super) mod advisory_locks {
    pub(in super::super) const CLAIM: i64 = 1;
    pub(in super::super) const EVENT_SEQUENCE: i64 = 2;
    pub(in super::super) const SCHEMA: i64 = 3;
    pub(in super::super) const CREATION: i64 = 4;
}

/// A connection to the database.
#[derive(Debug)]
pub(super) struct PostgresConnection {
    client: Client,
    statements: RefCell<HashMap<String, Statement>>,
    /// Identifies the connection in `write_markers`.
    id: String,
    /// Number of writes that this connection began.
    writes: i64,
    /// Events of the open transaction that are recorded at its end.
    events: DeferredEvents,
}

/// A write of a connection, which its marker names after it is committed.
#[derive(Clone, Debug)]
pub(super) struct WriteMarker {
    connection: String,
    write: i64,
}

impl PostgresConnection {
    /// Connects. `runtime` transfers the bytes.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached or refuses.
    pub(super) fn open(
        settings: &ConnectionSettings,
        tls: &TlsSetup,
        runtime: &Handle,
        id: String,
    ) -> Result<Self, PostgresError> {
        let (config, tls) = (settings.config.clone(), tls.clone());
        let (send, receive) = mpsc::sync_channel(1);
        runtime.spawn(async move {
            match config.connect(tls).await {
                Ok((client, connection)) => {
                    let _ = send.send(Ok(client));
                    // The client's calls return its errors.
                    let _ = connection.await;
                }
                Err(error) => {
                    let _ = send.send(Err(error));
                }
            }
        });
        let client = receive.recv().map_err(|_| PostgresError::Internal("the runtime has ended"))??;
        Ok(PostgresConnection {
            client,
            statements: RefCell::default(),
            id,
            writes: 0,
            events: DeferredEvents::default(),
        })
    }

    /// Returns whether the connection is known to have ended.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs statements without parameters.
    pub(super) fn run(&self, statements: &str) -> Result<(), PostgresError> {
        Ok(block_on(self.client.batch_execute(statements))?)
    }

    /// Begins a transaction that reads one state of the database.
    pub(super) fn begin_read(&self) -> Result<(), PostgresError> {
        self.run(&format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {PLANNER_SETTINGS}"))
    }

    /// Begins a transaction that writes. Its first statement is the write's marker, in the same message.
    pub(super) fn begin_write(&mut self) -> Result<WriteMarker, PostgresError> {
        self.writes += 1;
        self.events.clear();
        let (id, write) = (&self.id, self.writes);
        self.run(&format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; {}; {PLANNER_SETTINGS}; \
             INSERT INTO write_markers (connection, newest) VALUES ('{id}', {write}) \
             ON CONFLICT (connection) DO UPDATE SET newest = {write}, written_at = now()",
            transaction_timeouts()
        ))?;
        Ok(WriteMarker { connection: id.clone(), write })
    }

    /// Returns whether a write of another connection was committed. Waits until its transaction has ended: the marker's
    /// row is locked until then.
    pub(super) fn was_committed(&self, marker: &WriteMarker) -> Result<bool, PostgresError> {
        let id = &marker.connection;
        self.run(&format!("BEGIN; {}", transaction_timeouts()))?;
        let sql = format!(
            "INSERT INTO write_markers (connection, newest) VALUES ('{id}', 0) \
             ON CONFLICT (connection) DO UPDATE SET written_at = now() RETURNING newest"
        );
        let row = block_on(self.client.query_one(&sql, &[]))?;
        self.run("COMMIT")?;
        Ok(row.try_get::<_, i64>(0)? == marker.write)
    }

    fn prepare(&self, sql: &str) -> Result<Statement, PostgresError> {
        if let Some(statement) = self.statements.borrow().get(sql) {
            return Ok(statement.clone());
        }
        let statement = block_on(self.client.prepare(&values::translate(sql)))?;
        self.statements.borrow_mut().insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn execute_statement(&self, sql: &str, params: &[SqlValue<'_>]) -> Result<usize, PostgresError> {
        let statement = self.prepare(sql)?;
        let changed = block_on(self.client.execute_raw(&statement, params.iter().copied()))?;
        Ok(usize::try_from(changed).unwrap_or(usize::MAX))
    }
}

/// Every query has an index. The statistics of a table that grows fast are up to a minute old, and the planner would then read
/// all of it, for as long as it keeps that plan. Without an index, a scan has a cost for which the planner would compile it.
const PLANNER_SETTINGS: &str = "SET LOCAL enable_seqscan = off; SET LOCAL jit = off";

/// A transaction that waits too long for another one, or whose client is gone, ends.
fn transaction_timeouts() -> String {
    format!(
        "SET LOCAL lock_timeout = {RECORDS_BUSY_MS}; \
         SET LOCAL idle_in_transaction_session_timeout = {POSTGRES_IDLE_TRANSACTION_MS_MAX}"
    )
}

impl SqlSession for PostgresConnection {
    fn execute(&self, sql: &str, params: &[SqlValue<'_>]) -> TransactionResult<usize> {
        Ok(self.execute_statement(sql, params)?)
    }

    fn query(
        &self,
        sql: &str,
        params: &[SqlValue<'_>],
        each: &mut dyn FnMut(&dyn SqlRow) -> TransactionResult<()>,
    ) -> TransactionResult<()> {
        let statement = self.prepare(sql)?;
        let params: Vec<_> = params.iter().map(|value| value as &(dyn tokio_postgres::types::ToSql + Sync)).collect();
        let rows = block_on(self.client.query(&statement, &params)).map_err(PostgresError::from)?;
        rows.iter().try_for_each(|row| each(row))
    }

    fn lock(&self, lock: RecordLock<'_>) -> TransactionResult<()> {
        // Rows that refer to a locked row can be inserted meanwhile.
        let run = "SELECT id FROM pipeline_runs WHERE id = ?1 FOR NO KEY UPDATE";
        let number = |number| self.execute_statement("SELECT pg_advisory_xact_lock(?1)", &[SqlValue::Integer(number)]);
        match lock {
            RecordLock::Claim => number(advisory_locks::CLAIM),
            RecordLock::Creation => number(advisory_locks::CREATION),
            RecordLock::PipelineRun(id) => self.execute_statement(run, &[SqlValue::Text(id)]),
        }?;
        Ok(())
    }

    fn defer_event(&self, event: &NewEvent<'_>) -> bool {
        self.events.add(event);
        true
    }

    fn record_deferred_events(&self) -> TransactionResult<()> {
        let Some(events) = self.events.take() else { return Ok(()) };
        let session: &dyn SqlSession = self;
        let (max, lock) = (EVENTS_OF_KIND_MAX, advisory_locks::EVENT_SEQUENCE);
        session.query_one("SELECT record_events(?1, ?2, ?3)", params![events, max, lock], |_| Ok(()))
    }

    fn lease_clock(&self) -> TransactionResult<LeaseClock> {
        let session: &dyn SqlSession = self;
        session.query_one("SELECT lease_clock_ms(), lease_clock_start_ms()", &[], |row| {
            Ok(LeaseClock { now_ms: row.get(0)?, started_ms: row.get(1)? })
        })
    }

    fn dialect(&self) -> SqlDialect {
        SqlDialect::Postgres
    }
}
