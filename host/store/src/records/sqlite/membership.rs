//! The trial and the pipeline step of a job in SQLite.

use rusqlite::{OptionalExtension, Transaction};

use super::{TransactionResult, job};
use crate::records::{JobMembership, StepMembership, TrialMembership};

pub(super) fn read(tx: &Transaction<'_>, name_or_id: &str) -> TransactionResult<JobMembership> {
    let job = job::get(tx, name_or_id)?;
    let trial = "SELECT sweep, number FROM trials WHERE job = ?1 LIMIT 1";
    let trial = tx
        .prepare_cached(trial)?
        .query_row([&job.id], |row| Ok(TrialMembership { sweep: row.get(0)?, number: row.get(1)? }))
        .optional()?;
    // A step whose result was reused names the job of the run that computed it.
    let step = "SELECT runs.name, steps.step FROM pipeline_steps AS steps \
        JOIN pipeline_runs AS runs ON runs.id = steps.run \
        WHERE steps.job = ?1 AND steps.cached_from IS NULL ORDER BY runs.cursor LIMIT 1";
    let step = tx
        .prepare_cached(step)?
        .query_row([&job.name], |row| Ok(StepMembership { run: row.get(0)?, step: row.get(1)? }))
        .optional()?;
    Ok(JobMembership { trial, step })
}
