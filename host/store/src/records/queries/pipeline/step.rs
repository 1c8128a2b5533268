//! Transactions on steps of pipeline runs.

use saggar_clock::UnixMillis;

use super::super::row;
use crate::records::session::{RecordLock, SqlRow, SqlSession, TransactionResult, params};
use crate::records::{PipelineStepRecord, PipelineStepState, StateReason, StepAttemptKey, StepChange};

/// The columns that [`step_from_row`] reads, in its order, of the table `steps`.
const STEP_COLUMNS: &str = "steps.position, steps.item, steps.attempt, steps.step, steps.state, steps.reason_code, \
    steps.reason_sentence, steps.job, steps.cached_from, steps.cache_key, steps.inputs, steps.outputs, steps.started_ms, \
    steps.finished_ms";

/// Records the first attempt of every item of every step.
pub(super) fn create(tx: &dyn SqlSession, run: &str, steps: &[(String, u32)]) -> TransactionResult<()> {
    let statement =
        "INSERT INTO pipeline_steps (run, position, item, attempt, step, state) VALUES (?1, ?2, ?3, 1, ?4, ?5)";
    for (position, (name, items)) in steps.iter().enumerate() {
        for item in 0..*items {
            let position = position as u64;
            tx.execute(statement, params![run, position, item, name, PipelineStepState::Pending.name()])?;
        }
    }
    Ok(())
}

/// Begins another attempt of these items of steps.
pub(super) fn begin_attempts(tx: &dyn SqlSession, run: &str, items: &[(u32, u32)]) -> TransactionResult<()> {
    let statement = "INSERT INTO pipeline_steps (run, position, item, attempt, step, state) \
         SELECT run, position, item, max(attempt) + 1, max(step), ?4 FROM pipeline_steps \
         WHERE run = ?1 AND position = ?2 AND item = ?3 GROUP BY run, position, item";
    for (position, item) in items {
        tx.execute(statement, params![run, position, item, PipelineStepState::Pending.name()])?;
    }
    Ok(())
}

pub(super) fn list(tx: &dyn SqlSession, run: &str) -> TransactionResult<Vec<PipelineStepRecord>> {
    let sql =
        format!("SELECT {STEP_COLUMNS} FROM pipeline_steps AS steps WHERE run = ?1 ORDER BY position, item, attempt");
    tx.query_all(&sql, params![run], step_from_row)
}

pub(super) fn change(
    tx: &dyn SqlSession,
    run: &str,
    key: StepAttemptKey,
    change: &StepChange,
    now_ms: UnixMillis,
) -> TransactionResult<bool> {
    tx.lock(RecordLock::PipelineRun(run))?;
    let changed = tx.execute(
        "UPDATE pipeline_steps SET state = ?6, reason_code = ?7, reason_sentence = ?8, job = coalesce(?9, job), \
         cached_from = coalesce(?10, cached_from), cache_key = coalesce(?11, cache_key), \
         inputs = coalesce(?12, inputs), outputs = coalesce(?13, outputs), \
         started_ms = coalesce(started_ms, ?14), finished_ms = CASE WHEN ?15 THEN ?14 END \
         WHERE run = ?1 AND position = ?2 AND item = ?3 AND attempt = ?4 AND state = ?5 \
         AND NOT EXISTS (SELECT 1 FROM pipeline_steps AS later WHERE later.run = ?1 AND later.position = ?2 \
             AND later.item = ?3 AND later.attempt > ?4) \
         AND EXISTS (SELECT 1 FROM pipeline_runs WHERE id = ?1 AND state = 'RUNNING')",
        params![
            run,
            key.position,
            key.item,
            key.attempt,
            change.from.name(),
            change.to.name(),
            change.reason.code,
            change.reason.sentence,
            change.job,
            change.cached_from,
            change.cache_key,
            change.inputs,
            change.outputs,
            now_ms,
            change.to.is_final(),
        ],
    )?;
    Ok(changed > 0)
}

pub(super) fn find_cached(
    tx: &dyn SqlSession,
    project: &str,
    cache_key: &str,
) -> TransactionResult<Option<(String, PipelineStepRecord)>> {
    let sql = format!(
        "SELECT {STEP_COLUMNS}, runs.name FROM pipeline_steps AS steps JOIN pipeline_runs AS runs ON runs.id = steps.run \
         WHERE steps.cache_key = ?1 AND steps.state = 'SUCCEEDED' AND steps.cached_from IS NULL AND runs.project = ?2 \
         ORDER BY runs.cursor DESC, steps.attempt DESC LIMIT 1"
    );
    tx.query_optional(&sql, params![cache_key, project], |row| Ok((row.get(14)?, step_from_row(row)?)))
}

pub(super) fn unfinished_run_of_job(tx: &dyn SqlSession, job: &str) -> TransactionResult<Option<String>> {
    tx.query_optional(
        "SELECT runs.name FROM pipeline_steps AS steps JOIN pipeline_runs AS runs ON runs.id = steps.run \
         WHERE steps.job = ?1 AND runs.state = 'RUNNING' LIMIT 1",
        params![job],
        |row| row.get(0),
    )
}

fn step_from_row(row: &dyn SqlRow) -> TransactionResult<PipelineStepRecord> {
    let state: String = row.get(4)?;
    Ok(PipelineStepRecord {
        position: row.get(0)?,
        item: row.get(1)?,
        attempt: row.get(2)?,
        step: row.get(3)?,
        state: PipelineStepState::from_name(&state).ok_or_else(|| row::unknown_name(4, &state))?,
        reason: StateReason { code: row.get(5)?, sentence: row.get(6)? },
        job: row.get(7)?,
        cached_from: row.get(8)?,
        cache_key: row.get(9)?,
        inputs: row.get(10)?,
        outputs: row.get(11)?,
        started_ms: row.get(12)?,
        finished_ms: row.get(13)?,
    })
}
