//! The schema of the database and its migrations.

use super::connection::{PostgresConnection, advisory_locks};
use super::failure::record_error;
use super::pool::ConnectionPool;
use crate::error::RecordError;
use crate::records::session::{SqlSession, SqlValue, TransactionResult, params};

/// The migrations of the schema, oldest first. Each upgrades a database from the previous version.
pub(super) const SCHEMAS: [&str; 10] = [
    include_str!("schema.sql"),
    include_str!("leases.sql"),
    include_str!("documents.sql"),
    include_str!("groups.sql"),
    include_str!("log_chunks.sql"),
    include_str!("workers.sql"),
    include_str!("shared_rows.sql"),
    include_str!("attempt_hosts.sql"),
    include_str!("scheduling_order.sql"),
    include_str!("record_events.sql"),
];

/// Creates the schema or migrates it to the newest version. Servers that start at the same time wait for each other.
///
/// # Errors
/// Returns `NewerSchema`; `Database`.
pub(super) fn migrate(pool: &ConnectionPool) -> Result<(), RecordError> {
    let database = &pool.settings().name;
    let failed = |error| record_error(error, database);
    let connection = pool.open().map_err(|error| failed(error.into()))?;
    migrate_on(&connection, database).map_err(failed)
}

fn migrate_on(connection: &PostgresConnection, database: &str) -> TransactionResult<()> {
    let session: &dyn SqlSession = connection;
    connection.run("BEGIN")?;
    session.execute("SELECT pg_advisory_xact_lock(?1)", &[SqlValue::Integer(advisory_locks::SCHEMA)])?;
    connection.run("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")?;
    let found = session.query_optional("SELECT version FROM schema_version", params![], |row| row.get::<i64>(0))?;
    let newest = SCHEMAS.len() as i64;
    let done = usize::try_from(found.unwrap_or(0)).ok().filter(|done| *done <= SCHEMAS.len());
    let Some(done) = done else {
        let found = found.unwrap_or(0);
        return Err(RecordError::NewerSchema { database: database.to_owned(), found, newest }.into());
    };
    for schema in &SCHEMAS[done..] {
        connection.run(schema)?;
    }
    match found {
        None => session.execute("INSERT INTO schema_version (version) VALUES (?1)", params![newest])?,
        Some(_) => session.execute("UPDATE schema_version SET version = ?1", params![newest])?,
    };
    // Connections that ended long ago.
    session.execute("DELETE FROM write_markers WHERE written_at < now() - INTERVAL '7 days'", params![])?;
    Ok(connection.run("COMMIT")?)
}
