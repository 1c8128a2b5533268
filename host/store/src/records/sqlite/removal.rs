//! Deletes jobs, but keeps the sums of their usage.

use rusqlite::{Transaction, params};

use super::{TransactionResult, job};
use crate::error::RecordError;
use crate::limits::RECORDS_REMOVAL_BATCH;
use crate::records::{JobRecord, UsageTotal};

/// Returns the job if it has finished.
fn get_finished_job(tx: &Transaction<'_>, id: &str) -> TransactionResult<JobRecord> {
    let job = job::get(tx, id)?;
    if !job.state.is_final() {
        let expected = "must be over before it can be removed";
        return Err(RecordError::Invalid { field: "job", value: job.name, expected }.into());
    }
    Ok(job)
}

/// Removes a batch of points of a finished job. Returns whether there can be more.
pub(super) fn remove_some_points(tx: &Transaction<'_>, id: &str) -> TransactionResult<bool> {
    let job = get_finished_job(tx, id)?;
    let removed = tx.execute(
        "DELETE FROM metrics WHERE job = ?1 AND (name, step, attempt) IN \
         (SELECT name, step, attempt FROM metrics WHERE job = ?1 LIMIT ?2)",
        params![job.id, RECORDS_REMOVAL_BATCH],
    )?;
    Ok(removed == RECORDS_REMOVAL_BATCH as usize)
}

pub(super) fn remove(tx: &Transaction<'_>, id: &str) -> TransactionResult<JobRecord> {
    let job = get_finished_job(tx, id)?;
    for table in ["metrics", "latest", "events", "attempts"] {
        tx.execute(&format!("DELETE FROM {table} WHERE job = ?1"), [&job.id])?;
    }
    tx.execute("DELETE FROM jobs WHERE id = ?1", [&job.id])?;
    Ok(job)
}

/// Adds the usage of a job that has just finished to the totals. Its attempts use nothing more.
pub(super) fn add_to_usage_totals(tx: &Transaction<'_>, job: &JobRecord) -> TransactionResult<()> {
    tx.execute(
        "INSERT INTO spent (project, owner, gpu_seconds, wall_seconds) \
         SELECT ?2, ?3, sum(gpu_seconds), sum(wall_seconds) FROM attempts WHERE job = ?1 GROUP BY job \
         ON CONFLICT (project, owner) DO UPDATE SET gpu_seconds = gpu_seconds + excluded.gpu_seconds, \
         wall_seconds = wall_seconds + excluded.wall_seconds",
        params![job.id, job.project, job.owner.as_deref().unwrap_or("")],
    )?;
    Ok(())
}

/// Returns the usage of finished jobs plus the usage so far of the others.
pub(super) fn usage_totals(tx: &Transaction<'_>) -> TransactionResult<Vec<UsageTotal>> {
    let mut statement = tx.prepare_cached(
        "SELECT project, owner, sum(gpu_seconds), sum(wall_seconds) FROM ( \
           SELECT project, coalesce(owner, '') AS owner, gpu_seconds, wall_seconds \
           FROM jobs JOIN attempts ON attempts.job = jobs.id \
           WHERE jobs.state IN ('QUEUED', 'STARTING', 'RUNNING', 'STOPPING') \
           UNION ALL SELECT project, owner, gpu_seconds, wall_seconds FROM spent) \
         GROUP BY project, owner ORDER BY project, owner",
    )?;
    let rows = statement.query_map([], |row| {
        let owner: String = row.get(1)?;
        let owner = Some(owner).filter(|owner| !owner.is_empty());
        Ok(UsageTotal { project: row.get(0)?, owner, gpu_seconds: row.get(2)?, wall_seconds: row.get(3)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
