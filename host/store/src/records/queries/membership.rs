//! The trial and the pipeline step of a job.

use super::job;
use crate::records::session::{SqlSession, TransactionResult, params};
use crate::records::{JobMembership, StepMembership, TrialMembership};

pub(super) fn read(tx: &dyn SqlSession, name_or_id: &str) -> TransactionResult<JobMembership> {
    let job = job::get(tx, name_or_id)?;
    let trial = "SELECT sweep, number FROM trials WHERE job = ?1 LIMIT 1";
    let trial = tx.query_optional(trial, params![job.id], |row| {
        Ok(TrialMembership { sweep: row.get(0)?, number: row.get(1)? })
    })?;
    // A step whose result was reused names the job of the run that computed it.
    let step = "SELECT runs.name, steps.step FROM pipeline_steps AS steps \
        JOIN pipeline_runs AS runs ON runs.id = steps.run \
        WHERE steps.job = ?1 AND steps.cached_from IS NULL ORDER BY runs.cursor LIMIT 1";
    let step =
        tx.query_optional(step, params![job.name], |row| Ok(StepMembership { run: row.get(0)?, step: row.get(1)? }))?;
    Ok(JobMembership { trial, step })
}
