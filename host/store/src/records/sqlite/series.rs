//! Transactions on metric points.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{OptionalExtension, Transaction, params};

use super::row::{self, to_sql_integer};
use super::{TransactionResult, clamp_limit, job, thinning};
use crate::error::RecordError;
use crate::limits::{POINTS_LISTED_MAX, SERIES_MAX, SERIES_NAME_BYTES_MAX};
use crate::records::{JobDetails, JobLease, MetricPoint};

pub(super) fn record_points(tx: &Transaction<'_>, lease: &JobLease, points: &[MetricPoint]) -> TransactionResult<()> {
    job::check_lease(tx, lease)?;
    let mut insert = tx.prepare_cached(
        "INSERT OR REPLACE INTO metrics (job, name, step, attempt, value, at_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let mut replace = tx.prepare_cached(
        "UPDATE metrics SET value = ?5, at_ms = ?6 WHERE job = ?1 AND name = ?2 AND step = ?3 AND attempt = ?4",
    )?;
    let mut all = thinning::load(tx, &lease.job)?;
    let mut last: BTreeMap<&str, &MetricPoint> = BTreeMap::new();
    for point in points {
        if point.name.len() > SERIES_NAME_BYTES_MAX {
            let (value, expected) = (point.name.chars().take(80).collect(), "must have at most 255 bytes");
            return Err(RecordError::Invalid { field: "metric", value, expected }.into());
        }
        let (step, at) = (to_sql_integer(point.step), to_sql_integer(point.at_ms));
        let write = if all.entry(point.name.clone()).or_default().count_point() { &mut insert } else { &mut replace };
        write.execute(params![lease.job, point.name, step, lease.attempt, point.value, at])?;
        let last = last.entry(&point.name).or_insert(point);
        if point.step >= last.step {
            *last = point;
        }
    }
    upsert_latest(tx, lease, last.values())?;
    if names(tx, &lease.job)?.len() > SERIES_MAX as usize {
        let value = points.last().map(|point| point.name.clone()).unwrap_or_default();
        let expected = "is one series too many: a job has at most 256";
        return Err(RecordError::Invalid { field: "metric", value, expected }.into());
    }
    thinning::store(tx, lease, all, points)
}

/// Stores the last point of each series unless a later one is stored. The holder of the lease is the newest attempt.
fn upsert_latest<'a>(
    tx: &Transaction<'_>,
    lease: &JobLease,
    points: impl Iterator<Item = &'a &'a MetricPoint>,
) -> TransactionResult<()> {
    let mut keep = tx.prepare_cached(
        "INSERT INTO latest (job, name, attempt, step, value, at_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
         ON CONFLICT (job, name) DO UPDATE SET attempt = excluded.attempt, step = excluded.step, \
         value = excluded.value, at_ms = excluded.at_ms \
         WHERE excluded.attempt > attempt OR excluded.step >= step",
    )?;
    for point in points {
        let (step, at) = (to_sql_integer(point.step), to_sql_integer(point.at_ms));
        keep.execute(params![lease.job, point.name, lease.attempt, step, point.value, at])?;
    }
    Ok(())
}

pub(super) fn names(tx: &Transaction<'_>, id: &str) -> TransactionResult<Vec<String>> {
    // This table has one row per series; the other has one per point.
    let mut statement = tx.prepare_cached("SELECT name FROM latest WHERE job = ?1 ORDER BY name")?;
    let rows = statement.query_map([id], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// For each attempt of the job `?1`, the step after which a later attempt undid its steps; NULL if no attempt did. An
/// attempt without recorded points has undone nothing.
macro_rules! undone {
    () => {
        "WITH undone (attempt, after) AS MATERIALIZED ( \
         SELECT number, min(CASE WHEN last_step > 0 THEN first_step END) OVER ( \
         ORDER BY number DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) FROM attempts WHERE job = ?1) "
    };
}

pub(super) fn points(
    tx: &Transaction<'_>,
    id: &str,
    name: &str,
    from_step: u64,
    limit: u32,
) -> TransactionResult<Vec<MetricPoint>> {
    // A later attempt undoes the steps after the one at which it began, with their points. In a grouped query with
    // max(), SQLite takes the other columns from the row of the maximum.
    let mut statement = tx.prepare_cached(concat!(
        undone!(),
        "SELECT name, metrics.step, value, at_ms, max(metrics.attempt) FROM metrics \
         LEFT JOIN undone ON undone.attempt = metrics.attempt \
         WHERE job = ?1 AND name = ?2 AND metrics.step >= ?3 AND metrics.step <= coalesce(undone.after, metrics.step) \
         GROUP BY metrics.step ORDER BY metrics.step LIMIT ?4"
    ))?;
    let limit = clamp_limit(limit, POINTS_LISTED_MAX);
    let rows = statement.query_map(params![id, name, to_sql_integer(from_step), limit], row::point_from_row)?;
    let mut points: Vec<MetricPoint> = rows.collect::<Result<_, _>>()?;
    if points.len() < limit as usize {
        // The last point of a thinned series is possibly not among the recorded points.
        let mut statement = tx.prepare_cached(concat!(
            undone!(),
            "SELECT name, step, value, at_ms FROM latest LEFT JOIN undone ON undone.attempt = latest.attempt \
             WHERE job = ?1 AND name = ?2 AND step >= ?3 AND step <= coalesce(undone.after, step)"
        ))?;
        let last = statement.query_row(params![id, name, to_sql_integer(from_step)], row::point_from_row).optional()?;
        points.extend(last.filter(|last| points.last().is_none_or(|point| point.step < last.step)));
    }
    Ok(points)
}

pub(super) fn details(tx: &Transaction<'_>, ids: &[String]) -> TransactionResult<HashMap<String, JobDetails>> {
    let mut is_there = tx.prepare_cached("SELECT 1 FROM jobs WHERE id = ?1")?;
    let mut details = HashMap::with_capacity(ids.len());
    for id in ids {
        if is_there.exists([id])? {
            details.insert(
                id.clone(),
                JobDetails {
                    attempts: row::list_attempts(tx, id)?,
                    latest: latest_points(tx, id)?,
                    annotations: super::annotation::read(tx, id)?,
                },
            );
        }
    }
    Ok(details)
}

fn latest_points(tx: &Transaction<'_>, id: &str) -> TransactionResult<Vec<MetricPoint>> {
    let mut statement =
        tx.prepare_cached("SELECT name, step, value, at_ms FROM latest WHERE job = ?1 ORDER BY name")?;
    let rows = statement.query_map([id], row::point_from_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}
