//! Reads external runs.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{
    ExternalExperiment, ExternalPoint, ExternalRun, ExternalRunError, ExternalRunStatus, ExternalRunStore, StoreResult,
};

const RUN_COLUMNS: &str = "number, id, experiment, name, owner, status, started_ms, ended_ms, is_deleted";

impl ExternalRunStore {
    fn read<T: Default>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> StoreResult<T> {
        match self.open(false)? {
            Some(connection) => work(&connection).map_err(|error| self.database_error(error)),
            None => Ok(T::default()),
        }
    }

    /// Returns the experiments that clients created, by name.
    ///
    /// # Errors
    /// `Database`.
    pub fn experiments(&self) -> StoreResult<Vec<ExternalExperiment>> {
        self.read(|connection| {
            let sql = "SELECT name, created_ms, updated_ms FROM experiments ORDER BY name";
            let mut statement = connection.prepare(sql)?;
            let ms = |row: &Row<'_>, at| row.get::<_, i64>(at).map(|ms| u64::try_from(ms).unwrap_or(0));
            let rows = statement.query_map([], |row| {
                Ok(ExternalExperiment { name: row.get(0)?, created_ms: ms(row, 1)?, updated_ms: ms(row, 2)? })
            })?;
            rows.collect()
        })
    }

    /// Returns a run.
    ///
    /// # Errors
    /// `NoRun`, `Database`.
    pub fn run(&self, id: &str) -> StoreResult<ExternalRun> {
        let found = self.read(|connection| {
            let sql = format!("SELECT {RUN_COLUMNS} FROM runs WHERE id = ?");
            let head = connection.query_row(&sql, [id], run_head).optional()?;
            head.map(|head| with_content(connection, head)).transpose()
        })?;
        found.ok_or_else(|| ExternalRunError::NoRun { id: id.chars().take(80).collect() })
    }

    /// Returns at most `limit` runs of an experiment with a number below `before`, newest first, each with its number.
    ///
    /// # Errors
    /// `Database`.
    pub fn runs(&self, experiment: &str, before: Option<i64>, limit: u32) -> StoreResult<Vec<(i64, ExternalRun)>> {
        self.read(|connection| {
            let sql = format!(
                "SELECT {RUN_COLUMNS} FROM runs WHERE experiment = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3"
            );
            let mut statement = connection.prepare(&sql)?;
            let before = before.unwrap_or(i64::MAX);
            let heads = statement.query_map(params![experiment, before, limit], run_head)?;
            let heads: Vec<(i64, ExternalRun)> = heads.collect::<Result<_, _>>()?;
            heads.into_iter().map(|head| Ok((head.0, with_content(connection, head)?))).collect()
        })
    }

    /// Returns at most `limit` values of a run's metric from a position on, by step and time.
    ///
    /// # Errors
    /// `NoRun`, `Database`.
    pub fn history(&self, id: &str, key: &str, offset: u64, limit: u32) -> StoreResult<Vec<ExternalPoint>> {
        let found = self.read(|connection| {
            let number = connection.query_row("SELECT number FROM runs WHERE id = ?", [id], |row| row.get(0));
            let Some(number) = number.optional()? else { return Ok(None) };
            let number: i64 = number;
            let sql = "SELECT key, step, at_ms, bits FROM points WHERE run = ? AND key = ? ORDER BY step, at_ms, bits \
                       LIMIT ? OFFSET ?";
            let offset = i64::try_from(offset).unwrap_or(i64::MAX);
            let mut statement = connection.prepare(sql)?;
            let points = statement.query_map(params![number, key, limit, offset], point)?;
            points.collect::<Result<Vec<_>, _>>().map(Some)
        })?;
        found.ok_or_else(|| ExternalRunError::NoRun { id: id.chars().take(80).collect() })
    }
}

/// Returns the names of a run's metrics. Each is found by one look into the index, however many values it has.
pub(super) fn metric_keys(connection: &Connection, run: i64) -> rusqlite::Result<Vec<String>> {
    let sql = "WITH RECURSIVE keys (key) AS ( \
                   SELECT min(key) FROM points WHERE run = ?1 \
                   UNION ALL \
                   SELECT (SELECT min(key) FROM points WHERE run = ?1 AND key > keys.key) FROM keys \
                   WHERE keys.key IS NOT NULL) \
               SELECT key FROM keys WHERE key IS NOT NULL";
    connection.prepare_cached(sql)?.query_map([run], |row| row.get(0))?.collect()
}

fn run_head(row: &Row<'_>) -> rusqlite::Result<(i64, ExternalRun)> {
    let status: String = row.get(5)?;
    let status = ExternalRunStatus::ALL.into_iter().find(|known| known.name() == status);
    let run = ExternalRun {
        id: row.get(1)?,
        experiment: row.get(2)?,
        name: row.get(3)?,
        owner: row.get(4)?,
        status: status.unwrap_or(ExternalRunStatus::Failed),
        started_ms: row.get(6)?,
        ended_ms: row.get(7)?,
        is_deleted: row.get(8)?,
        parameters: Vec::new(),
        tags: Vec::new(),
        latest: Vec::new(),
    };
    Ok((row.get(0)?, run))
}

fn with_content(connection: &Connection, (number, mut run): (i64, ExternalRun)) -> rusqlite::Result<ExternalRun> {
    let mut statement = connection.prepare_cached("SELECT is_tag, key, value FROM texts WHERE run = ? ORDER BY key")?;
    for text in statement.query_map([number], |row| Ok((row.get::<_, bool>(0)?, (row.get(1)?, row.get(2)?))))? {
        let (is_tag, pair) = text?;
        if is_tag { run.tags.push(pair) } else { run.parameters.push(pair) }
    }
    let sql =
        "SELECT key, step, at_ms, bits FROM points WHERE run = ? AND key = ? ORDER BY step DESC, at_ms DESC LIMIT 1";
    let mut last = connection.prepare_cached(sql)?;
    for key in metric_keys(connection, number)? {
        run.latest.push(last.query_row(params![number, key], point)?);
    }
    Ok(run)
}

fn point(row: &Row<'_>) -> rusqlite::Result<ExternalPoint> {
    let bits: i64 = row.get(3)?;
    let value = f64::from_bits(u64::from_ne_bytes(bits.to_ne_bytes()));
    Ok(ExternalPoint { key: row.get(0)?, step: row.get(1)?, at_ms: row.get(2)?, value })
}
