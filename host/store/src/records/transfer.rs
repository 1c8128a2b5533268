//! Copies all records from one database to another one, of any engine, and proves that both are equal.
//!
//! A table's digest is the SHA-256 of its rows in the order of its key, each value with its type, so that it is the same for
//! both engines. Booleans are integers, as in SQLite, and NUL in a text is U+FFFD, as PostgreSQL stores it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;

use super::postgres::PostgresRecords;
use super::session::{
    RecordsEngine, SqlDialect, SqlRow, SqlSession, SqlValue, TransactionError, TransactionResult, params,
};
use super::sqlite::SqliteRecords;
use crate::digest::{Digest, Sha256Hasher};
use crate::error::RecordError;

mod tables;
#[cfg(test)]
mod tests;

use tables::{COPIED, CopiedTable};

/// The document that says that a migration into the database is not complete.
pub(crate) const MIGRATION_DOCUMENT: &str = "migration";
/// Rows that are read, and written by one statement.
const ROWS_AT_ONCE: usize = 200;

/// The records in one database, of any engine.
#[derive(Debug)]
pub(crate) struct RecordsDatabase(DatabaseEngine);

#[derive(Debug)]
enum DatabaseEngine {
    Sqlite(SqliteRecords),
    Postgres(Box<PostgresRecords>),
}

/// What a table has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDigest {
    /// The table.
    pub table: &'static str,
    /// Number of its rows.
    pub rows: u64,
    /// The digest of its rows.
    pub sha256: Digest,
    /// The newest number that the database gave to a row; 0 without any, or if the rows have no numbers.
    pub newest_number: i64,
}

/// Pieces of a log: the first byte and the text of each.
type LogPieces = Vec<(u64, String)>;

type ReadBody<'a> = dyn Fn(&dyn SqlSession) -> TransactionResult<()> + 'a;

/// The rows of a page, value by value.
type RowPage = Vec<Vec<OwnedValue>>;

impl RecordsDatabase {
    /// Opens the database in a file, creating it.
    ///
    /// # Errors
    /// Returns `NewerSchema`; `Database`.
    pub(crate) fn open_file(path: &Path) -> Result<RecordsDatabase, RecordError> {
        Ok(RecordsDatabase(DatabaseEngine::Sqlite(SqliteRecords::open(path)?)))
    }

    /// Opens the database of PostgreSQL at a URL, creating the schema.
    ///
    /// # Errors
    /// Returns `NewerSchema`; `Database`.
    pub(crate) fn open_url(url: &str) -> Result<RecordsDatabase, RecordError> {
        Ok(RecordsDatabase(DatabaseEngine::Postgres(Box::new(PostgresRecords::open(url)?))))
    }

    /// Returns the records with their usual methods.
    pub(crate) fn records(&self) -> &dyn super::JobRecords {
        match &self.0 {
            DatabaseEngine::Sqlite(records) => records,
            DatabaseEngine::Postgres(records) => &**records,
        }
    }

    fn read(&self, body: &ReadBody<'_>) -> Result<(), RecordError> {
        match &self.0 {
            DatabaseEngine::Sqlite(records) => records.read(|tx| body(tx)),
            DatabaseEngine::Postgres(records) => records.read(|tx| body(tx)),
        }
    }

    fn write(&self, body: &ReadBody<'_>) -> Result<(), RecordError> {
        match &self.0 {
            DatabaseEngine::Sqlite(records) => records.write(|tx| body(tx)),
            DatabaseEngine::Postgres(records) => records.write(|tx| body(tx)),
        }
    }

    /// Returns the tables that have rows, each with the number of them. `documents` counts, the migration's own does not.
    ///
    /// # Errors
    /// Returns `Database`.
    pub(crate) fn tables_with_rows(&self) -> Result<Vec<(&'static str, u64)>, RecordError> {
        let found = RefCell::new(Vec::new());
        self.read(&|tx| {
            found.borrow_mut().clear();
            for name in COPIED.iter().map(|table| table.name).chain(["documents"]) {
                let own =
                    if name == "documents" { format!(" WHERE name <> '{MIGRATION_DOCUMENT}'") } else { String::new() };
                let rows: u64 =
                    tx.query_one(&format!("SELECT count(*) FROM {name}{own}"), params![], |row| row.get(0))?;
                if rows > 0 {
                    found.borrow_mut().push((name, rows));
                }
            }
            Ok(())
        })?;
        Ok(found.into_inner())
    }

    /// Returns the lines of logs that are in the records, with the first byte of each piece, by job and attempt.
    ///
    /// # Errors
    /// Returns `Database`.
    pub(crate) fn recorded_logs(&self) -> Result<BTreeMap<(String, u32), LogPieces>, RecordError> {
        let found = RefCell::new(BTreeMap::<_, Vec<_>>::new());
        self.read(&|tx| {
            found.borrow_mut().clear();
            let sql = "SELECT job, attempt, first_byte, content FROM log_chunks ORDER BY job, attempt, first_byte";
            tx.query(sql, params![], &mut |row| {
                let log = (row.get(0)?, row.get(1)?);
                found.borrow_mut().entry(log).or_default().push((row.get(2)?, row.get(3)?));
                Ok(())
            })
        })?;
        Ok(found.into_inner())
    }

    /// Sets or removes the mark of an incomplete migration.
    ///
    /// # Errors
    /// Returns `Database`.
    pub(crate) fn set_migration_mark(&self, text: Option<&str>) -> Result<(), RecordError> {
        self.write(&|tx| {
            tx.execute("DELETE FROM documents WHERE name = ?1", params![MIGRATION_DOCUMENT])?;
            if let Some(text) = text {
                let sql = "INSERT INTO documents (name, revision, content) VALUES (?1, 1, ?2)";
                tx.execute(sql, params![MIGRATION_DOCUMENT, text])?;
            }
            Ok(())
        })
    }

    /// Removes all rows of the tables that are copied, and all documents but the mark of a migration.
    fn clear(&self) -> Result<(), RecordError> {
        self.write(&|tx| {
            for table in COPIED.iter().rev() {
                tx.execute(&format!("DELETE FROM {}", table.name), params![])?;
            }
            tx.execute("DELETE FROM documents WHERE name <> ?1", params![MIGRATION_DOCUMENT]).map(drop)
        })
    }

    /// Replaces everything in `target` by the records of this database as of one instant. Returns what was read.
    ///
    /// # Errors
    /// Returns `Database`.
    pub(crate) fn copy_to(
        &self,
        target: &RecordsDatabase,
        copied: &dyn Fn(u64),
    ) -> Result<Vec<TableDigest>, RecordError> {
        let found = RefCell::new(Vec::new());
        // Repeated from the beginning if the connection ends.
        self.read(&|source| {
            found.borrow_mut().clear();
            target.clear().map_err(TransactionError::Record)?;
            for table in &COPIED {
                let columns = columns_of(source, table)?;
                target.check_columns(table, &columns)?;
                let digest = read_table(source, table, &columns, &mut |page| {
                    target.insert(table, &columns, &page).map_err(TransactionError::Record)?;
                    copied(page.len() as u64);
                    Ok(())
                })?;
                target.set_newest_number(table, digest.newest_number).map_err(TransactionError::Record)?;
                found.borrow_mut().push(digest);
            }
            Ok(())
        })?;
        Ok(found.into_inner())
    }

    /// Returns the digests of all tables that are copied, as of one instant.
    ///
    /// # Errors
    /// Returns `Database`.
    pub(crate) fn digests(&self, read: &dyn Fn(u64)) -> Result<Vec<TableDigest>, RecordError> {
        let found = RefCell::new(Vec::new());
        self.read(&|tx| {
            found.borrow_mut().clear();
            for table in &COPIED {
                let columns = columns_of(tx, table)?;
                let digest = read_table(tx, table, &columns, &mut |page| {
                    read(page.len() as u64);
                    Ok(())
                })?;
                found.borrow_mut().push(digest);
            }
            Ok(())
        })?;
        Ok(found.into_inner())
    }

    fn check_columns(&self, table: &CopiedTable, columns: &[String]) -> TransactionResult<()> {
        let own = RefCell::new(Vec::new());
        let read = self.read(&|tx| {
            *own.borrow_mut() = columns_of(tx, table)?;
            Ok(())
        });
        read.map_err(TransactionError::Record)?;
        if own.into_inner() == columns {
            return Ok(());
        }
        Err(TransactionError::Engine(format!("the table {} has other columns in the two databases", table.name).into()))
    }

    fn insert(&self, table: &CopiedTable, columns: &[String], page: &RowPage) -> Result<(), RecordError> {
        self.write(&|tx| {
            let row = |at: usize| {
                let marks: Vec<String> = (1..=columns.len()).map(|n| format!("?{}", at * columns.len() + n)).collect();
                format!("({})", marks.join(", "))
            };
            let rows: Vec<String> = (0..page.len()).map(row).collect();
            let overriding = match (tx.dialect(), table.numbered) {
                (SqlDialect::Postgres, Some(_)) => " OVERRIDING SYSTEM VALUE",
                (SqlDialect::Postgres, None) | (SqlDialect::Sqlite, _) => "",
            };
            let (name, columns, rows) = (table.name, columns.join(", "), rows.join(", "));
            let values: Vec<SqlValue<'_>> = page.iter().flatten().map(OwnedValue::as_sql).collect();
            tx.execute(&format!("INSERT INTO {name} ({columns}){overriding} VALUES {rows}"), &values).map(drop)
        })
    }

    /// Makes the database number the next row of a table higher than this.
    fn set_newest_number(&self, table: &CopiedTable, newest: i64) -> Result<(), RecordError> {
        let Some(column) = table.numbered.filter(|_| newest > 0) else { return Ok(()) };
        let name = table.name;
        self.write(&|tx| match tx.dialect() {
            SqlDialect::Postgres => {
                let sql = format!("SELECT setval('{name}_{column}_seq', ?1)");
                tx.query(&sql, params![newest], &mut |_| Ok(()))
            }
            SqlDialect::Sqlite => {
                tx.execute("DELETE FROM sqlite_sequence WHERE name = ?1", params![name])?;
                tx.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)", params![name, newest]).map(drop)
            }
        })
    }
}

/// Returns the names of a table's columns, sorted.
fn columns_of(tx: &dyn SqlSession, table: &CopiedTable) -> TransactionResult<Vec<String>> {
    let sql = match tx.dialect() {
        SqlDialect::Sqlite => "SELECT name FROM pragma_table_info(?1)",
        SqlDialect::Postgres => {
            "SELECT CAST(attname AS TEXT) FROM pg_attribute \
             WHERE attrelid = to_regclass(?1) AND attnum > 0 AND NOT attisdropped"
        }
    };
    let mut columns: Vec<String> = tx.query_all(sql, params![table.name], |row| row.get(0))?;
    columns.sort();
    Ok(columns)
}

/// Reads a table in pages, in the order of its key, and returns its digest.
fn read_table(
    tx: &dyn SqlSession,
    table: &CopiedTable,
    columns: &[String],
    each: &mut dyn FnMut(RowPage) -> TransactionResult<()>,
) -> TransactionResult<TableDigest> {
    let constant = |column: &String| table.constants.iter().find(|(name, _)| name == column).map(|(_, value)| *value);
    let selected: Vec<&str> = columns.iter().map(|column| constant(column).unwrap_or(column)).collect();
    let position = |name: &&str| columns.iter().position(|column| column == name);
    let key: Vec<usize> = table.key.iter().filter_map(position).collect();
    let (names, marks) =
        (table.key.join(", "), (1..=key.len()).map(|n| format!("?{n}")).collect::<Vec<_>>().join(", "));
    let (name, selected) = (table.name, selected.join(", "));
    let page_sql = |after: &str| format!("SELECT {selected} FROM {name}{after} ORDER BY {names} LIMIT {ROWS_AT_ONCE}");
    let (first, next) = (page_sql(""), page_sql(&format!(" WHERE ({names}) > ({marks})")));
    let (mut hasher, mut rows) = (Sha256Hasher::new(), 0);
    let mut last: Option<Vec<OwnedValue>> = None;
    loop {
        let after: Vec<SqlValue<'_>> = last.iter().flatten().map(OwnedValue::as_sql).collect();
        let sql = if last.is_some() { &next } else { &first };
        let page: RowPage = tx.query_all(sql, &after, |row| read_row(row, columns.len()))?;
        page.iter().flatten().for_each(|value| value.hash_into(&mut hasher));
        rows += page.len() as u64;
        let is_last = page.len() < ROWS_AT_ONCE;
        last = page.last().map(|row| key.iter().map(|at| row[*at].clone()).collect());
        if !page.is_empty() {
            each(page)?;
        }
        if is_last {
            break;
        }
    }
    let newest_number = table.numbered.map_or(Ok(0), |column| newest_number(tx, name, column))?;
    Ok(TableDigest { table: name, rows, sha256: hasher.finish(), newest_number })
}

fn newest_number(tx: &dyn SqlSession, name: &str, column: &str) -> TransactionResult<i64> {
    let found = Cell::new(0);
    let sql = match tx.dialect() {
        SqlDialect::Sqlite => format!("SELECT seq FROM sqlite_sequence WHERE name = '{name}'"),
        SqlDialect::Postgres => {
            format!("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {name}_{column}_seq")
        }
    };
    tx.query(&sql, params![], &mut |row| {
        found.set(row.get(0)?);
        Ok(())
    })?;
    Ok(found.get())
}

fn read_row(row: &dyn SqlRow, columns: usize) -> TransactionResult<Vec<OwnedValue>> {
    (0..columns).map(|column| Ok(OwnedValue::from_sql(row.value(column)?))).collect()
}

/// A value of a row, in the form that both engines have in common.
#[derive(Clone, Debug, PartialEq)]
enum OwnedValue {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
}

impl OwnedValue {
    fn from_sql(value: SqlValue<'_>) -> OwnedValue {
        match value {
            SqlValue::Null => OwnedValue::Null,
            SqlValue::Bool(value) => OwnedValue::Integer(value.into()),
            SqlValue::Integer(value) => OwnedValue::Integer(value),
            SqlValue::Real(value) => OwnedValue::Real(value),
            SqlValue::Text(text) => OwnedValue::Text(text.replace('\0', "\u{fffd}")),
        }
    }

    fn as_sql(&self) -> SqlValue<'_> {
        match self {
            OwnedValue::Null => SqlValue::Null,
            OwnedValue::Integer(value) => SqlValue::Integer(*value),
            OwnedValue::Real(value) => SqlValue::Real(*value),
            OwnedValue::Text(text) => SqlValue::Text(text),
        }
    }

    /// Adds the type, the length and the bytes.
    fn hash_into(&self, hasher: &mut Sha256Hasher) {
        match self {
            OwnedValue::Null => hasher.update(b"n"),
            OwnedValue::Integer(value) => {
                hasher.update(b"i");
                hasher.update(&value.to_le_bytes());
            }
            OwnedValue::Real(value) => {
                hasher.update(b"r");
                hasher.update(&value.to_bits().to_le_bytes());
            }
            OwnedValue::Text(text) => {
                hasher.update(b"t");
                hasher.update(&(text.len() as u64).to_le_bytes());
                hasher.update(text.as_bytes());
            }
        }
    }
}
