//! The transactions on metric points and events.

use rusqlite::{Transaction, params};

use super::row::{self, int};
use super::{Outcome, job};
use crate::clock::Millis;
use crate::error::RecordError;
use crate::limits::{EVENTS_LISTED_MAX, POINTS_LISTED_MAX, SERIES_MAX};
use crate::records::{Event, Lease, MetricPoint};

pub(super) fn record(tx: &Transaction<'_>, lease: &Lease, points: &[MetricPoint]) -> Outcome<()> {
    job::leased(tx, lease)?;
    let mut insert = tx.prepare_cached(
        "INSERT OR REPLACE INTO metrics (job, name, step, attempt, value, at_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for point in points {
        let (step, at) = (int(point.step), int(point.at_ms));
        insert.execute(params![lease.job, point.name, step, lease.attempt, point.value, at])?;
    }
    if names(tx, &lease.job)?.len() > SERIES_MAX as usize {
        let value = points.last().map(|point| point.name.clone()).unwrap_or_default();
        let expected = "is one series too many: a job has at most 256";
        return Err(RecordError::Invalid { field: "metric", value, expected }.into());
    }
    Ok(())
}

pub(super) fn count_events(tx: &Transaction<'_>, id: &str, kind: &str) -> Outcome<u64> {
    let mut statement = tx.prepare_cached("SELECT count(*) FROM events WHERE job = ?1 AND kind = ?2")?;
    Ok(statement.query_row([id, kind], row::count)?)
}

/// Names by leaps over the primary key: a scan would read every point.
pub(super) fn names(tx: &Transaction<'_>, id: &str) -> Outcome<Vec<String>> {
    let mut statement = tx.prepare_cached(
        "WITH RECURSIVE names (name) AS ( \
           SELECT min(name) FROM metrics WHERE job = ?1 \
           UNION ALL \
           SELECT (SELECT min(name) FROM metrics WHERE job = ?1 AND metrics.name > names.name) \
           FROM names WHERE names.name IS NOT NULL) \
         SELECT name FROM names WHERE name IS NOT NULL",
    )?;
    let rows = statement.query_map([id], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn points(
    tx: &Transaction<'_>,
    id: &str,
    name: &str,
    from_step: u64,
    limit: u32,
) -> Outcome<Vec<MetricPoint>> {
    // With max() in a grouped query, SQLite takes the other columns from the row of the maximum.
    let mut statement = tx.prepare_cached(
        "SELECT name, step, value, at_ms, max(attempt) FROM metrics \
         WHERE job = ?1 AND name = ?2 AND step >= ?3 GROUP BY step ORDER BY step LIMIT ?4",
    )?;
    let limit = bounded(limit, POINTS_LISTED_MAX);
    let rows = statement.query_map(params![id, name, int(from_step), limit], row::point)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn latest(tx: &Transaction<'_>, id: &str) -> Outcome<Vec<MetricPoint>> {
    let mut statement = tx.prepare_cached(
        "SELECT name, step, value, at_ms FROM metrics WHERE job = ?1 AND name = ?2 \
         ORDER BY attempt DESC, step DESC LIMIT 1",
    )?;
    let of_name = |name: String| Ok(statement.query_row([id, &name], row::point)?);
    names(tx, id)?.into_iter().map(of_name).collect()
}

pub(super) fn event(tx: &Transaction<'_>, id: &str, kind: &str, text: &str, now_ms: Millis) -> Outcome<()> {
    tx.prepare_cached("INSERT INTO events (job, at_ms, kind, text) VALUES (?1, ?2, ?3, ?4)")?.execute(params![
        id,
        int(now_ms),
        kind,
        text
    ])?;
    Ok(())
}

pub(super) fn events(tx: &Transaction<'_>, id: Option<&str>, after: u64, limit: u32) -> Outcome<Vec<Event>> {
    let limit = bounded(limit, EVENTS_LISTED_MAX);
    let columns = "SELECT sequence, job, at_ms, kind, text FROM events";
    let rows = match id {
        Some(id) => {
            let sql = format!("{columns} WHERE job = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3");
            let mut statement = tx.prepare_cached(&sql)?;
            let rows = statement.query_map(params![id, int(after), limit], row::event)?;
            rows.collect::<Result<_, _>>()?
        }
        None => {
            let sql = format!("{columns} WHERE sequence > ?1 ORDER BY sequence LIMIT ?2");
            let mut statement = tx.prepare_cached(&sql)?;
            let rows = statement.query_map(params![int(after), limit], row::event)?;
            rows.collect::<Result<_, _>>()?
        }
    };
    Ok(rows)
}

pub(super) fn newest_event(tx: &Transaction<'_>) -> Outcome<u64> {
    let mut statement = tx.prepare_cached("SELECT coalesce(max(sequence), 0) FROM events")?;
    Ok(statement.query_row([], row::count)?)
}

fn bounded(limit: u32, max: u32) -> u32 {
    if limit == 0 { max } else { limit.min(max) }
}
