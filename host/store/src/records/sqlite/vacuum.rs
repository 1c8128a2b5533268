//! Returns disk space of removed rows and of the write-ahead log to the file system.

use std::path::Path;

use rusqlite::Connection;

use crate::durable;
use crate::limits::{RECORDS_LOG_BYTES_MAX, RECORDS_REMOVAL_BATCH, RECORDS_REWRITTEN_BYTES_MAX};

/// SQLite's constant for incremental vacuum, which can cut free pages off the end of the file.
const INCREMENTAL: i64 = 2;

fn pragma_number(connection: &Connection, pragma: &str) -> rusqlite::Result<u64> {
    connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
}

/// Enables incremental vacuum for a new file. Call before anything is written.
pub(super) fn enable_incremental_vacuum(connection: &Connection) -> rusqlite::Result<()> {
    if pragma_number(connection, "page_count")? == 0 {
        connection.pragma_update(None, "auto_vacuum", INCREMENTAL)?;
    }
    Ok(())
}

/// Limits the write-ahead log, and rewrites an earlier build's file if that is quick.
pub(super) fn configure_existing(connection: &Connection, path: &Path) -> rusqlite::Result<()> {
    // SQLite returns the limit as a row.
    connection.pragma_update_and_check(None, "journal_size_limit", RECORDS_LOG_BYTES_MAX as i64, |_| Ok(()))?;
    if database_bytes(connection)? <= RECORDS_REWRITTEN_BYTES_MAX && rewrite(connection, path)? {
        truncate_log(connection)?;
    }
    Ok(())
}

/// Returns all free space to the file system.
pub(super) fn reclaim(connection: &Connection, path: &Path) -> rusqlite::Result<()> {
    rewrite(connection, path)?;
    truncate_log(connection)?;
    let mut free = pragma_number(connection, "freelist_count")?;
    while free > 0 {
        // SQLite returns a row for each page that it cuts off.
        let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({RECORDS_REMOVAL_BATCH})"))?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
        drop(rows);
        truncate_log(connection)?;
        let left = pragma_number(connection, "freelist_count")?;
        if left >= free {
            break;
        }
        free = left;
    }
    Ok(())
}

/// Copies the log into the database file and truncates it, unless another process is reading it.
pub(super) fn truncate_log(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

fn database_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    Ok(pragma_number(connection, "page_count")?.saturating_mul(pragma_number(connection, "page_size")?))
}

/// Rewrites the file of an earlier build, which cannot be vacuumed incrementally, if the disk has space for two copies.
fn rewrite(connection: &Connection, path: &Path) -> rusqlite::Result<bool> {
    let is_done = pragma_number(connection, "auto_vacuum")? == INCREMENTAL as u64;
    let needed = database_bytes(connection)?.saturating_mul(3);
    let directory = path.parent().unwrap_or(Path::new("."));
    if is_done || needed == 0 || durable::free_bytes(directory).is_ok_and(|free| free < needed) {
        return Ok(false);
    }
    connection.pragma_update(None, "auto_vacuum", INCREMENTAL)?;
    connection.execute_batch("VACUUM")?;
    Ok(true)
}
