//! Deletes jobs. The totals of their usage stay, see `usage_totals`.

use super::job;
use crate::error::RecordError;
use crate::limits::RECORDS_REMOVAL_BATCH;
use crate::records::JobRecord;
use crate::records::session::{SqlSession, TransactionResult, params};

/// Returns the job if it has finished.
fn get_finished_job(tx: &dyn SqlSession, id: &str) -> TransactionResult<JobRecord> {
    let job = job::get_locked(tx, id)?;
    if !job.state.is_final() {
        let expected = "must be over before it can be removed";
        return Err(RecordError::Invalid { field: "job", value: job.name, expected }.into());
    }
    Ok(job)
}

/// Removes a batch of points of a finished job. Returns whether there can be more.
pub(super) fn remove_some_points(tx: &dyn SqlSession, id: &str) -> TransactionResult<bool> {
    let job = get_finished_job(tx, id)?;
    let removed = tx.execute(
        "DELETE FROM metrics WHERE job = ?1 AND (name, step, attempt) IN \
         (SELECT name, step, attempt FROM metrics WHERE job = ?1 LIMIT ?2)",
        params![job.id, RECORDS_REMOVAL_BATCH],
    )?;
    Ok(removed == RECORDS_REMOVAL_BATCH as usize)
}

pub(super) fn remove(tx: &dyn SqlSession, id: &str) -> TransactionResult<JobRecord> {
    let job = get_finished_job(tx, id)?;
    for table in ["metrics", "latest", "events", "attempt_hosts", "attempts", "annotations", "log_chunks"] {
        tx.execute(&format!("DELETE FROM {table} WHERE job = ?1"), params![job.id])?;
    }
    tx.execute("DELETE FROM jobs WHERE id = ?1", params![job.id])?;
    Ok(job)
}
