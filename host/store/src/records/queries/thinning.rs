//! Limits the number of points per job: long series are thinned and then recorded at a lower rate.

use super::event;
use super::point_batch::store_counts;
use super::series_counts::{SeriesCounts, SeriesCountsByName};
use crate::limits::POINTS_MAX;
use crate::records::session::{SqlSession, TransactionResult, params};
use crate::records::{JobLease, MetricPoint};

/// The kind of the event that reports thinning, once per job.
const THINNED_EVENT_KIND: &str = "SERIES_THINNED";

/// Reads the recording state of a job's series.
pub(super) fn load(tx: &dyn SqlSession, job: &str) -> TransactionResult<SeriesCountsByName> {
    let series =
        tx.query_all("SELECT points, name, reported, stride FROM latest WHERE job = ?1", params![job], |row| {
            let counts = SeriesCounts { points: row.get(0)?, reported: row.get(2)?, stride: row.get(3)? };
            Ok((row.get(1)?, counts))
        })?;
    Ok(series.into_iter().collect())
}

/// Writes the recording state of a job's series, and thins the series if there are too many points. Each has a row in
/// `latest`.
pub(super) fn store(
    tx: &dyn SqlSession,
    lease: &JobLease,
    mut all: SeriesCountsByName,
    touched: &[MetricPoint],
) -> TransactionResult<()> {
    let thinned = all.values().map(|series| series.points).sum::<u64>() > POINTS_MAX && thin(tx, &lease.job, &mut all)?;
    if thinned && event::count(tx, &lease.job, THINNED_EVENT_KIND)? == 0 {
        let text = format!(
            "a job has at most {POINTS_MAX} points: of long series every second one was removed, and fewer are recorded \
             from now on; the first, the last, the least and the greatest stay"
        );
        let now_ms = touched.iter().map(|point| point.at_ms).max().unwrap_or(0);
        event::record(tx, &lease.job, THINNED_EVENT_KIND, &text, now_ms)?;
    }
    store_counts(tx, &lease.job, &all, |name| thinned || touched.iter().any(|point| point.name == name))
}

/// Removes every second point of series that have more than half of their share. Returns whether there were too many.
fn thin(tx: &dyn SqlSession, job: &str, all: &mut SeriesCountsByName) -> TransactionResult<bool> {
    if count_points(tx, job, all)? <= POINTS_MAX {
        return Ok(false);
    }
    // A step that a later attempt repeated is never shown from the earlier one.
    tx.execute(
        "DELETE FROM metrics WHERE job = ?1 AND attempt < (SELECT max(attempt) FROM metrics AS newer \
         WHERE newer.job = metrics.job AND newer.name = metrics.name AND newer.step = metrics.step)",
        params![job],
    )?;
    let share = POINTS_MAX / (2 * all.len() as u64).max(1);
    let delete = "WITH points AS (SELECT step, value FROM metrics WHERE job = ?1 AND name = ?2) \
         DELETE FROM metrics WHERE job = ?1 AND name = ?2 \
         AND step IN (SELECT step FROM (SELECT step, row_number() OVER (ORDER BY step) AS place FROM points) AS numbered \
           WHERE place % 2 = 0) \
         AND step <> (SELECT max(step) FROM points) \
         AND step NOT IN (SELECT step FROM (SELECT step FROM points WHERE value IS NOT NULL ORDER BY value LIMIT 1) AS least) \
         AND step NOT IN (SELECT step FROM (SELECT step FROM points WHERE value IS NOT NULL ORDER BY value DESC LIMIT 1) AS greatest)";
    for (name, series) in all.iter_mut().filter(|(_, series)| series.points > share) {
        tx.execute(delete, params![job, name])?;
        series.stride = series.stride.saturating_mul(2);
    }
    count_points(tx, job, all)?;
    Ok(true)
}

/// Counts the recorded points.
fn count_points(tx: &dyn SqlSession, job: &str, all: &mut SeriesCountsByName) -> TransactionResult<u64> {
    all.values_mut().for_each(|series| series.points = 0);
    let statement = "SELECT count(*), name FROM metrics WHERE job = ?1 GROUP BY name";
    let rows = tx.query_all(statement, params![job], |row| Ok((row.get::<u64>(0)?, row.get::<String>(1)?)))?;
    let mut sum = 0;
    for (points, name) in rows {
        all.entry(name).or_default().points = points;
        sum += points;
    }
    Ok(sum)
}
