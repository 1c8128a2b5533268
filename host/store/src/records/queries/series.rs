//! Transactions on metric points.

use std::collections::BTreeMap;

use super::point_batch::{PointBatch, upsert_latest};
use super::row;
use super::{clamp_limit, job, thinning};
use crate::error::RecordError;
use crate::limits::{POINTS_LISTED_MAX, SERIES_MAX, SERIES_NAME_BYTES_MAX};
use crate::records::session::{SqlDialect, SqlSession, TransactionResult, params};
use crate::records::{JobLease, MetricPoint};

pub(super) fn record_points(tx: &dyn SqlSession, lease: &JobLease, points: &[MetricPoint]) -> TransactionResult<()> {
    job::check_lease(tx, lease)?;
    let mut batch = PointBatch::default();
    let mut all = thinning::load(tx, &lease.job)?;
    let mut last: BTreeMap<&str, &MetricPoint> = BTreeMap::new();
    for point in points {
        if point.name.len() > SERIES_NAME_BYTES_MAX {
            let (value, expected) = (point.name.chars().take(80).collect(), "must have at most 255 bytes");
            return Err(RecordError::Invalid { field: "metric", value, expected }.into());
        }
        batch.add(point, all.entry(point.name.clone()).or_default().count_point());
        let last = last.entry(&point.name).or_insert(point);
        if point.step >= last.step {
            *last = point;
        }
    }
    batch.write(tx, lease)?;
    upsert_latest(tx, lease, &last.into_values().collect::<Vec<_>>())?;
    if names(tx, &lease.job)?.len() > SERIES_MAX as usize {
        let value = points.last().map(|point| point.name.clone()).unwrap_or_default();
        let expected = "is one series too many: a job has at most 256";
        return Err(RecordError::Invalid { field: "metric", value, expected }.into());
    }
    thinning::store(tx, lease, all, points)
}

pub(super) fn names(tx: &dyn SqlSession, id: &str) -> TransactionResult<Vec<String>> {
    // This table has one row per series; the other has one per point.
    tx.query_all("SELECT name FROM latest WHERE job = ?1 ORDER BY name", params![id], |row| row.get(0))
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

// The points of a series, at each step the one of the latest attempt. A later attempt undoes the steps after the one at which
// it began, with their points.

/// In a grouped query with max(), SQLite takes the other columns from the row of the maximum.
const NEWEST_POINTS_SQLITE: &str = concat!(
    undone!(),
    "SELECT name, metrics.step, value, at_ms, max(metrics.attempt) FROM metrics \
     LEFT JOIN undone ON undone.attempt = metrics.attempt \
     WHERE job = ?1 AND name = ?2 AND metrics.step >= ?3 AND metrics.step <= coalesce(undone.after, metrics.step) \
     GROUP BY metrics.step ORDER BY metrics.step LIMIT ?4"
);

const NEWEST_POINTS_POSTGRES: &str = concat!(
    undone!(),
    "SELECT DISTINCT ON (metrics.step) name, metrics.step, value, at_ms FROM metrics \
     LEFT JOIN undone ON undone.attempt = metrics.attempt \
     WHERE job = ?1 AND name = ?2 AND metrics.step >= ?3 AND metrics.step <= coalesce(undone.after, metrics.step) \
     ORDER BY metrics.step, metrics.attempt DESC LIMIT ?4"
);

pub(super) fn points(
    tx: &dyn SqlSession,
    id: &str,
    name: &str,
    from_step: u64,
    limit: u32,
) -> TransactionResult<Vec<MetricPoint>> {
    let statement = match tx.dialect() {
        SqlDialect::Sqlite => NEWEST_POINTS_SQLITE,
        SqlDialect::Postgres => NEWEST_POINTS_POSTGRES,
    };
    let limit = clamp_limit(limit, POINTS_LISTED_MAX);
    let mut points = tx.query_all(statement, params![id, name, from_step, limit], row::point_from_row)?;
    if points.len() < limit as usize {
        // The last point of a thinned series is possibly not among the recorded points.
        let statement = concat!(
            undone!(),
            "SELECT name, step, value, at_ms FROM latest LEFT JOIN undone ON undone.attempt = latest.attempt \
             WHERE job = ?1 AND name = ?2 AND step >= ?3 AND step <= coalesce(undone.after, step)"
        );
        let last = tx.query_optional(statement, params![id, name, from_step], row::point_from_row)?;
        points.extend(last.filter(|last| points.last().is_none_or(|point| point.step < last.step)));
    }
    Ok(points)
}
