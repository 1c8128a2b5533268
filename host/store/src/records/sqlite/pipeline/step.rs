//! Transactions on steps of pipeline runs.

use rusqlite::{OptionalExtension, Row, Transaction, params};
use saggar_clock::UnixMillis;

use super::super::TransactionResult;
use super::super::row::{self, to_sql_integer};
use crate::records::{PipelineStepRecord, PipelineStepState, StateReason, StepAttemptKey, StepChange};

/// The columns that [`step_from_row`] reads, in its order, of the table `steps`.
const STEP_COLUMNS: &str = "steps.position, steps.item, steps.attempt, steps.step, steps.state, steps.reason_code, \
    steps.reason_sentence, steps.job, steps.cached_from, steps.cache_key, steps.inputs, steps.outputs, steps.started_ms, \
    steps.finished_ms";

/// Records the first attempt of every item of every step.
pub(super) fn create(tx: &Transaction<'_>, run: &str, steps: &[(String, u32)]) -> TransactionResult<()> {
    let mut statement = tx.prepare_cached(
        "INSERT INTO pipeline_steps (run, position, item, attempt, step, state) VALUES (?1, ?2, ?3, 1, ?4, ?5)",
    )?;
    for (position, (name, items)) in steps.iter().enumerate() {
        for item in 0..*items {
            let position = to_sql_integer(position as u64);
            statement.execute(params![run, position, item, name, PipelineStepState::Pending.name()])?;
        }
    }
    Ok(())
}

/// Begins another attempt of these items of steps.
pub(super) fn begin_attempts(tx: &Transaction<'_>, run: &str, items: &[(u32, u32)]) -> TransactionResult<()> {
    let mut statement = tx.prepare_cached(
        "INSERT INTO pipeline_steps (run, position, item, attempt, step, state) \
         SELECT run, position, item, max(attempt) + 1, step, ?4 FROM pipeline_steps \
         WHERE run = ?1 AND position = ?2 AND item = ?3 GROUP BY run, position, item",
    )?;
    for (position, item) in items {
        statement.execute(params![run, position, item, PipelineStepState::Pending.name()])?;
    }
    Ok(())
}

pub(super) fn list(tx: &Transaction<'_>, run: &str) -> TransactionResult<Vec<PipelineStepRecord>> {
    let sql =
        format!("SELECT {STEP_COLUMNS} FROM pipeline_steps AS steps WHERE run = ?1 ORDER BY position, item, attempt");
    let mut statement = tx.prepare_cached(&sql)?;
    let rows = statement.query_map([run], step_from_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn change(
    tx: &Transaction<'_>,
    run: &str,
    key: StepAttemptKey,
    change: &StepChange,
    now_ms: UnixMillis,
) -> TransactionResult<bool> {
    let mut statement = tx.prepare_cached(
        "UPDATE pipeline_steps SET state = ?6, reason_code = ?7, reason_sentence = ?8, job = coalesce(?9, job), \
         cached_from = coalesce(?10, cached_from), cache_key = coalesce(?11, cache_key), \
         inputs = coalesce(?12, inputs), outputs = coalesce(?13, outputs), \
         started_ms = coalesce(started_ms, ?14), finished_ms = CASE WHEN ?15 THEN ?14 END \
         WHERE run = ?1 AND position = ?2 AND item = ?3 AND attempt = ?4 AND state = ?5 \
         AND NOT EXISTS (SELECT 1 FROM pipeline_steps AS later WHERE later.run = ?1 AND later.position = ?2 \
             AND later.item = ?3 AND later.attempt > ?4) \
         AND EXISTS (SELECT 1 FROM pipeline_runs WHERE id = ?1 AND state = 'RUNNING')",
    )?;
    let changed = statement.execute(params![
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
        to_sql_integer(now_ms),
        change.to.is_final(),
    ])?;
    Ok(changed > 0)
}

pub(super) fn find_cached(
    tx: &Transaction<'_>,
    project: &str,
    cache_key: &str,
) -> TransactionResult<Option<(String, PipelineStepRecord)>> {
    let sql = format!(
        "SELECT {STEP_COLUMNS}, runs.name FROM pipeline_steps AS steps JOIN pipeline_runs AS runs ON runs.id = steps.run \
         WHERE steps.cache_key = ?1 AND steps.state = 'SUCCEEDED' AND steps.cached_from IS NULL AND runs.project = ?2 \
         ORDER BY runs.cursor DESC, steps.attempt DESC LIMIT 1"
    );
    let found = tx.prepare_cached(&sql)?.query_row([cache_key, project], |row| Ok((row.get(14)?, step_from_row(row)?)));
    Ok(found.optional()?)
}

pub(super) fn unfinished_run_of_job(tx: &Transaction<'_>, job: &str) -> TransactionResult<Option<String>> {
    let mut statement = tx.prepare_cached(
        "SELECT runs.name FROM pipeline_steps AS steps JOIN pipeline_runs AS runs ON runs.id = steps.run \
         WHERE steps.job = ?1 AND runs.state = 'RUNNING' LIMIT 1",
    )?;
    Ok(statement.query_row([job], |row| row.get(0)).optional()?)
}

fn step_from_row(row: &Row<'_>) -> rusqlite::Result<PipelineStepRecord> {
    let time = |at: usize| {
        let time: Option<i64> = row.get(at)?;
        Ok::<_, rusqlite::Error>(time.map(|time| u64::try_from(time).unwrap_or(0)))
    };
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
        started_ms: time(12)?,
        finished_ms: time(13)?,
    })
}
