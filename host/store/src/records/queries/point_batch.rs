//! Writes of the points of a batch: one statement for all of them, so one round trip, if the database is on another machine.
//!
//! PostgreSQL gets the rows of a statement as one parameter in JSON. SQLite, which is in this process, gets a statement for each
//! row.

use std::collections::BTreeMap;

use serde::Serialize;

use super::series_counts::{SeriesCounts, SeriesCountsByName};
use crate::records::session::{SqlDialect, SqlSession, TransactionResult, params};
use crate::records::{JobLease, MetricPoint};

/// The points of a batch, by series and step. A later point of a step replaces an earlier one.
#[derive(Debug, Default)]
pub(super) struct PointBatch<'a> {
    points: BTreeMap<(&'a str, u64), BatchPoint<'a>>,
}

#[derive(Debug)]
struct BatchPoint<'a> {
    point: &'a MetricPoint,
    /// Whether the point is recorded if its step has no point.
    is_recorded: bool,
}

/// A point as a row of a parameter. The value is text, because JSON has no infinite numbers, and null for NaN.
#[derive(Debug, Serialize)]
struct PointRow<'a> {
    name: &'a str,
    step: u64,
    value: Option<String>,
    at_ms: u64,
}

impl<'a> PointRow<'a> {
    fn new(point: &'a MetricPoint) -> PointRow<'a> {
        // The shortest text that is read back as the same number.
        let value = (!point.value.is_nan()).then(|| format!("{:e}", point.value));
        PointRow { name: &point.name, step: point.step, value, at_ms: point.at_ms }
    }
}

/// The recording state of a series as a row of a parameter.
#[derive(Debug, Serialize)]
struct CountsRow<'a> {
    name: &'a str,
    #[serde(flatten)]
    counts: &'a SeriesCounts,
}

/// Begins the rows of [`PointRow`]s in the parameter `?3`.
macro_rules! point_rows {
    () => {
        "json_to_recordset(CAST(CAST(?3 AS TEXT) AS json)) AS given (name TEXT, step BIGINT, value DOUBLE PRECISION, at_ms BIGINT)"
    };
}

impl<'a> PointBatch<'a> {
    /// Adds a point, which is recorded or only replaces one at its step.
    pub(super) fn add(&mut self, point: &'a MetricPoint, is_recorded: bool) {
        let added = BatchPoint { point, is_recorded };
        let there = self.points.entry((&point.name, point.step)).or_insert(added);
        there.point = point;
        there.is_recorded |= is_recorded;
    }

    pub(super) fn write(&self, tx: &dyn SqlSession, lease: &JobLease) -> TransactionResult<()> {
        match tx.dialect() {
            SqlDialect::Sqlite => self.write_rows(tx, lease),
            SqlDialect::Postgres => {
                self.write_batch(tx, lease, true)?;
                self.write_batch(tx, lease, false)
            }
        }
    }

    fn write_rows(&self, tx: &dyn SqlSession, lease: &JobLease) -> TransactionResult<()> {
        let insert = "INSERT INTO metrics (job, name, step, attempt, value, at_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
             ON CONFLICT (job, name, step, attempt) DO UPDATE SET value = ?5, at_ms = ?6";
        let replace =
            "UPDATE metrics SET value = ?5, at_ms = ?6 WHERE job = ?1 AND name = ?2 AND step = ?3 AND attempt = ?4";
        for BatchPoint { point, is_recorded } in self.points.values() {
            let MetricPoint { name, step, value, at_ms } = point;
            let write = if *is_recorded { insert } else { replace };
            tx.execute(write, params![lease.job, name, step, lease.attempt, value, at_ms])?;
        }
        Ok(())
    }

    fn write_batch(&self, tx: &dyn SqlSession, lease: &JobLease, is_recorded: bool) -> TransactionResult<()> {
        let points = self.points.values().filter(|it| it.is_recorded == is_recorded);
        let rows: Vec<PointRow<'_>> = points.map(|it| PointRow::new(it.point)).collect();
        let write = match is_recorded {
            true => concat!(
                "INSERT INTO metrics (job, name, step, attempt, value, at_ms) \
                 SELECT ?1, name, step, ?2, value, at_ms FROM ",
                point_rows!(),
                " ON CONFLICT (job, name, step, attempt) DO UPDATE SET value = excluded.value, at_ms = excluded.at_ms"
            ),
            false => concat!(
                "UPDATE metrics SET value = given.value, at_ms = given.at_ms FROM ",
                point_rows!(),
                " WHERE metrics.job = ?1 AND metrics.attempt = ?2 AND metrics.name = given.name \
                 AND metrics.step = given.step"
            ),
        };
        execute_rows(tx, lease, write, &rows)
    }
}

/// Stores the last point of each series unless a later one is stored. The holder of the lease is the newest attempt.
pub(super) fn upsert_latest(tx: &dyn SqlSession, lease: &JobLease, points: &[&MetricPoint]) -> TransactionResult<()> {
    let keep = "ON CONFLICT (job, name) DO UPDATE SET attempt = excluded.attempt, step = excluded.step, \
         value = excluded.value, at_ms = excluded.at_ms \
         WHERE excluded.attempt > latest.attempt OR excluded.step >= latest.step";
    match tx.dialect() {
        SqlDialect::Sqlite => {
            let insert = "INSERT INTO latest (job, name, attempt, step, value, at_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            for MetricPoint { name, step, value, at_ms } in points {
                tx.execute(&format!("{insert} {keep}"), params![lease.job, name, lease.attempt, step, value, at_ms])?;
            }
            Ok(())
        }
        SqlDialect::Postgres => {
            let insert = concat!(
                "INSERT INTO latest (job, name, attempt, step, value, at_ms) \
                 SELECT ?1, name, ?2, step, value, at_ms FROM ",
                point_rows!()
            );
            let rows: Vec<PointRow<'_>> = points.iter().map(|point| PointRow::new(point)).collect();
            execute_rows(tx, lease, &format!("{insert} {keep}"), &rows)
        }
    }
}

/// Runs a statement with the job, the attempt, and rows in the parameter `?3`, unless the list is empty.
fn execute_rows(tx: &dyn SqlSession, lease: &JobLease, sql: &str, rows: &[PointRow<'_>]) -> TransactionResult<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let text = serde_json::to_string(rows).expect("rows are plain data");
    tx.execute(sql, params![lease.job, lease.attempt, text]).map(drop)
}

/// Writes the recording state of those series that `is_written` accepts.
pub(super) fn store_counts(
    tx: &dyn SqlSession,
    job: &str,
    all: &SeriesCountsByName,
    is_written: impl Fn(&str) -> bool,
) -> TransactionResult<()> {
    let written = all.iter().filter(|(name, _)| is_written(name));
    match tx.dialect() {
        SqlDialect::Sqlite => {
            let update = "UPDATE latest SET points = ?3, reported = ?4, stride = ?5 WHERE job = ?1 AND name = ?2";
            for (name, SeriesCounts { points, reported, stride }) in written {
                tx.execute(update, params![job, name, points, reported, stride])?;
            }
            Ok(())
        }
        SqlDialect::Postgres => {
            let rows: Vec<CountsRow<'_>> = written.map(|(name, counts)| CountsRow { name, counts }).collect();
            let update = "UPDATE latest SET points = given.points, reported = given.reported, stride = given.stride \
                 FROM json_to_recordset(CAST(CAST(?2 AS TEXT) AS json)) \
                 AS given (name TEXT, points BIGINT, reported BIGINT, stride BIGINT) \
                 WHERE latest.job = ?1 AND latest.name = given.name";
            let text = serde_json::to_string(&rows).expect("rows are plain data");
            tx.execute(update, params![job, text]).map(drop)
        }
    }
}
