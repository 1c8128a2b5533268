//! What `saggar doctor` says about a database, without changing it.

use std::time::{Duration, Instant};

use saggar_clock::{Clock, SystemClock};

use super::failure::record_error;
use super::pool::ConnectionPool;
use super::schema;
use super::settings::ConnectionSettings;
use crate::error::RecordError;
use crate::records::session::{SqlSession, TransactionError, TransactionResult, params};

/// The oldest version of PostgreSQL that the records are tested with, as the server numbers it.
const VERSION_MIN: u64 = 130_000;
/// The encoding of the database, without which texts could not be stored.
const ENCODING: &str = "UTF8";

/// The properties of a database.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseInspection {
    /// The database, without its password.
    pub database: String,
    /// The version of PostgreSQL as text: `15.14`.
    pub version: String,
    /// Whether that version is new enough.
    pub is_version_supported: bool,
    /// The encoding of texts.
    pub encoding: String,
    /// Whether that encoding can store every text.
    pub is_encoding_supported: bool,
    /// The version of the records' schema, or `None` if there are no records yet.
    pub schema: Option<i64>,
    /// The newest version that this program knows.
    pub schema_newest: i64,
    /// The time of the fastest of several answers.
    pub latency: Duration,
    /// How far the database's clock is ahead of this machine's, in milliseconds; negative if it is behind.
    pub clock_skew_ms: i64,
}

/// Connects to the database at a URL and inspects it.
///
/// # Errors
/// Returns `Database` if it cannot be reached or refuses.
pub fn inspect_database(url: &str) -> Result<DatabaseInspection, RecordError> {
    let settings = ConnectionSettings::parse(url)?;
    let database = settings.name.clone();
    let failed = |source| RecordError::Database { database: database.clone(), source };
    let pool = ConnectionPool::new(settings).map_err(failed)?;
    let connection = pool.open().map_err(|error| error.into_record_error(&database))?;
    inspect(&connection, &database).map_err(|error| record_error(error, &database))
}

/// Version, number of the version, and encoding.
fn read_settings(session: &dyn SqlSession) -> TransactionResult<(String, u64, String)> {
    let text = |name: &str| {
        let sql = format!("SELECT current_setting('{name}')");
        session.query_one(&sql, params![], |row| row.get::<String>(0))
    };
    let version = text("server_version")?.split(' ').next().unwrap_or_default().to_owned();
    Ok((version, text("server_version_num")?.parse().unwrap_or(0), text("server_encoding")?))
}

/// Checks that the records can be stored in the database of a pool.
///
/// # Errors
/// Returns `Database`.
pub(super) fn check_support(pool: &ConnectionPool) -> Result<(), RecordError> {
    let database = &pool.settings().name;
    let connection = pool.open().map_err(|error| error.into_record_error(database))?;
    check_settings(&connection).map_err(|error| record_error(error, database))
}

fn check_settings(session: &dyn SqlSession) -> TransactionResult<()> {
    let (version, number, encoding) = read_settings(session)?;
    let reason = if number < VERSION_MIN {
        format!("it is of PostgreSQL {version}, and version 13 or newer is needed")
    } else if encoding != ENCODING {
        format!("it has the encoding {encoding}, and UTF8 is needed: `createdb -E UTF8 -T template0 NAME` creates one")
    } else {
        return Ok(());
    };
    Err(TransactionError::Engine(reason.into()))
}

fn inspect(session: &dyn SqlSession, database: &str) -> TransactionResult<DatabaseInspection> {
    let (version, number, encoding) = read_settings(session)?;
    let has_schema = "SELECT to_regclass('schema_version') IS NOT NULL";
    let schema = match session.query_one(has_schema, params![], |row| row.get::<bool>(0))? {
        true => session.query_optional("SELECT version FROM schema_version", params![], |row| row.get(0))?,
        false => None,
    };
    let clock = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)";
    let (mut latency, mut clock_skew_ms) = (Duration::MAX, 0);
    for _ in 0..5 {
        let (before_ms, began) = (SystemClock.now_ms(), Instant::now());
        let there_ms: i64 = session.query_one(clock, params![], |row| row.get(0))?;
        let took = began.elapsed();
        if took < latency {
            let middle_ms = before_ms.saturating_add(u64::try_from(took.as_millis() / 2).unwrap_or(u64::MAX));
            (latency, clock_skew_ms) = (took, there_ms.saturating_sub_unsigned(middle_ms));
        }
    }
    Ok(DatabaseInspection {
        database: database.to_owned(),
        version,
        is_version_supported: number >= VERSION_MIN,
        is_encoding_supported: encoding == ENCODING,
        encoding,
        schema,
        schema_newest: schema::SCHEMAS.len() as i64,
        latency,
        clock_skew_ms,
    })
}
