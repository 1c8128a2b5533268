//! Pipeline runs in SQLite.

mod schedule;
mod step;
#[cfg(test)]
mod tests;

use rusqlite::{OptionalExtension, Row, Transaction, params};
use saggar_clock::UnixMillis;

use super::row::{self, to_sql_integer};
use super::{SqliteRecords, TransactionResult};
use crate::error::RecordError;
use crate::limits::{JOBS_LISTED_MAX, PIPELINE_RUNS_UNFINISHED_MAX};
use crate::records::{
    NewPipelineRun, PipelineRecords, PipelineRunFilter, PipelineRunRecord, PipelineRunState, PipelineSchedule,
    PipelineStepRecord, StateReason, StepAttemptKey, StepChange, field_rules, id,
};

/// The columns that [`run_from_row`] reads, in its order.
const RUN_COLUMNS: &str = "cursor, id, name, pipeline, project, plan, params, state, reason_code, reason_sentence, \
    stop_code, stop_sentence, owner, rights, created_ms, finished_ms, reuse_from";

/// Returns `Invalid` if the run's fields are not valid.
fn validate(run: &NewPipelineRun) -> Result<(), RecordError> {
    field_rules::check_name("pipeline", &run.pipeline)?;
    field_rules::check_name("project", &run.project)?;
    field_rules::check_spec_length("plan", &run.plan)?;
    field_rules::check_spec_length("params", &run.params)?;
    field_rules::check_idempotency_key(run.idempotency_key.as_deref())
}

fn create(tx: &Transaction<'_>, new: &NewPipelineRun, now_ms: UnixMillis) -> TransactionResult<PipelineRunRecord> {
    if let Some(key) = &new.idempotency_key
        && let Some(run) = find_by_idempotency_key(tx, key)?
    {
        return Ok(run);
    }
    let running = "SELECT count(*) FROM pipeline_runs WHERE state = 'RUNNING'";
    let queued: u64 = tx.query_row(running, [], row::count_from_row)?;
    if queued >= PIPELINE_RUNS_UNFINISHED_MAX {
        return Err(RecordError::TooManyRuns { running: queued, max: PIPELINE_RUNS_UNFINISHED_MAX }.into());
    }
    let number: i64 = tx.query_row(
        "INSERT INTO pipelines (name, last_number) VALUES (?1, 1) \
         ON CONFLICT (name) DO UPDATE SET last_number = last_number + 1 RETURNING last_number",
        [&new.pipeline],
        |row| row.get(0),
    )?;
    let id = id::new(now_ms);
    tx.execute(
        "INSERT INTO pipeline_runs (id, name, pipeline, project, plan, params, state, owner, rights, created_ms, \
         idempotency_key, reuse_from) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        params![
            id,
            format!("{}-{number}", new.pipeline),
            new.pipeline,
            new.project,
            new.plan,
            new.params,
            PipelineRunState::Running.name(),
            new.owner,
            row::rights_text(&new.rights),
            to_sql_integer(now_ms),
            new.idempotency_key,
            new.reuse_from,
        ],
    )?;
    step::create(tx, &id, &new.steps)?;
    get(tx, &id)
}

fn find_by_idempotency_key(tx: &Transaction<'_>, key: &str) -> TransactionResult<Option<PipelineRunRecord>> {
    let sql = format!("SELECT {RUN_COLUMNS} FROM pipeline_runs WHERE idempotency_key = ?1");
    Ok(tx.prepare_cached(&sql)?.query_row([key], run_from_row).optional()?)
}

fn get(tx: &Transaction<'_>, name_or_id: &str) -> TransactionResult<PipelineRunRecord> {
    let sql = format!("SELECT {RUN_COLUMNS} FROM pipeline_runs WHERE id = ?1 OR name = ?1");
    let run = tx.prepare_cached(&sql)?.query_row([name_or_id], run_from_row).optional()?;
    Ok(run.ok_or_else(|| RecordError::NoSuchRun { run: name_or_id.to_owned() })?)
}

fn list(tx: &Transaction<'_>, filter: &PipelineRunFilter) -> TransactionResult<Vec<PipelineRunRecord>> {
    let limit = if filter.limit == 0 { JOBS_LISTED_MAX } else { filter.limit.min(JOBS_LISTED_MAX) };
    let sql = format!(
        "SELECT {RUN_COLUMNS} FROM pipeline_runs WHERE (?1 IS NULL OR pipeline = ?1) AND (?2 IS NULL OR state = ?2) \
         AND (?3 IS NULL OR instr(?3, ',' || project || ',') > 0) AND cursor < ?4 ORDER BY cursor DESC LIMIT ?5"
    );
    // Names contain no commas.
    let projects = filter.projects.as_ref().map(|projects| format!(",{},", projects.join(",")));
    let before = filter.before.map_or(i64::MAX, to_sql_integer);
    let state = filter.state.map(PipelineRunState::name);
    let mut statement = tx.prepare_cached(&sql)?;
    let rows = statement.query_map(params![filter.pipeline, state, projects, before, limit], run_from_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn list_unfinished(tx: &Transaction<'_>) -> TransactionResult<Vec<PipelineRunRecord>> {
    let sql = format!("SELECT {RUN_COLUMNS} FROM pipeline_runs WHERE state = 'RUNNING' ORDER BY cursor");
    let mut statement = tx.prepare_cached(&sql)?;
    let rows = statement.query_map([], run_from_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn run_from_row(row: &Row<'_>) -> rusqlite::Result<PipelineRunRecord> {
    let number = |at: usize| row.get::<_, i64>(at).map(|number| u64::try_from(number).unwrap_or(0));
    let finished: Option<i64> = row.get(15)?;
    let state: String = row.get(7)?;
    let stop: Option<String> = row.get(10)?;
    let owner: Option<String> = row.get(12)?;
    Ok(PipelineRunRecord {
        cursor: number(0)?,
        id: row.get(1)?,
        name: row.get(2)?,
        pipeline: row.get(3)?,
        project: row.get(4)?,
        plan: row.get(5)?,
        params: row.get(6)?,
        state: PipelineRunState::from_name(&state).ok_or_else(|| row::unknown_name(7, &state))?,
        reason: StateReason { code: row.get(8)?, sentence: row.get(9)? },
        stop: match stop {
            Some(code) => Some(StateReason { code, sentence: row.get(11)? }),
            None => None,
        },
        rights: row::rights_from_row(row, 13, owner.as_deref())?,
        owner,
        created_ms: number(14)?,
        finished_ms: finished.map(|at| u64::try_from(at).unwrap_or(0)),
        reuse_from: row.get(16)?,
    })
}

fn finish(
    tx: &Transaction<'_>,
    run: &str,
    state: PipelineRunState,
    reason: &StateReason,
    now_ms: UnixMillis,
) -> TransactionResult<bool> {
    let changed = tx.execute(
        "UPDATE pipeline_runs SET state = ?2, reason_code = ?3, reason_sentence = ?4, finished_ms = ?5 \
         WHERE id = ?1 AND state = 'RUNNING'",
        params![run, state.name(), reason.code, reason.sentence, to_sql_integer(now_ms)],
    )?;
    Ok(changed > 0)
}

fn request_stop(tx: &Transaction<'_>, run: &str, reason: &StateReason) -> TransactionResult<bool> {
    let changed = tx.execute(
        "UPDATE pipeline_runs SET stop_code = coalesce(stop_code, ?2), stop_sentence = coalesce(stop_sentence, ?3) \
         WHERE id = ?1 AND state = 'RUNNING'",
        params![run, reason.code, reason.sentence],
    )?;
    Ok(changed > 0)
}

fn restart(tx: &Transaction<'_>, run: &str, items: &[(u32, u32)]) -> TransactionResult<bool> {
    let changed = tx.execute(
        "UPDATE pipeline_runs SET state = 'RUNNING', reason_code = '', reason_sentence = '', stop_code = NULL, \
         stop_sentence = NULL, finished_ms = NULL WHERE id = ?1 AND state <> 'RUNNING'",
        [run],
    )?;
    if changed == 0 {
        return Ok(false);
    }
    step::begin_attempts(tx, run, items)?;
    Ok(true)
}

fn remove(tx: &Transaction<'_>, run: &str) -> TransactionResult<bool> {
    let over = "SELECT count(*) FROM pipeline_runs WHERE id = ?1 AND state <> 'RUNNING'";
    if tx.query_row(over, [run], row::count_from_row)? == 0 {
        return Ok(false);
    }
    tx.execute("DELETE FROM pipeline_steps WHERE run = ?1", [run])?;
    Ok(tx.execute("DELETE FROM pipeline_runs WHERE id = ?1", [run])? > 0)
}

impl PipelineRecords for SqliteRecords {
    fn create_run(&self, run: &NewPipelineRun, now_ms: UnixMillis) -> Result<PipelineRunRecord, RecordError> {
        validate(run)?;
        self.write(|tx| create(tx, run, now_ms))
    }

    fn find_run_by_idempotency_key(&self, key: &str) -> Result<Option<PipelineRunRecord>, RecordError> {
        self.read(|tx| find_by_idempotency_key(tx, key))
    }

    fn get_run(&self, name_or_id: &str) -> Result<PipelineRunRecord, RecordError> {
        self.read(|tx| get(tx, name_or_id))
    }

    fn list_runs(&self, filter: &PipelineRunFilter) -> Result<Vec<PipelineRunRecord>, RecordError> {
        self.read(|tx| list(tx, filter))
    }

    fn unfinished_runs(&self) -> Result<Vec<PipelineRunRecord>, RecordError> {
        self.read(list_unfinished)
    }

    fn steps(&self, run: &str) -> Result<Vec<PipelineStepRecord>, RecordError> {
        self.read(|tx| step::list(tx, run))
    }

    fn change_step(
        &self,
        run: &str,
        key: StepAttemptKey,
        change: &StepChange,
        now_ms: UnixMillis,
    ) -> Result<bool, RecordError> {
        self.write(|tx| step::change(tx, run, key, change, now_ms))
    }

    fn finish_run(
        &self,
        run: &str,
        state: PipelineRunState,
        reason: &StateReason,
        now_ms: UnixMillis,
    ) -> Result<bool, RecordError> {
        self.write(|tx| finish(tx, run, state, reason, now_ms))
    }

    fn request_run_stop(&self, run: &str, reason: &StateReason) -> Result<bool, RecordError> {
        self.write(|tx| request_stop(tx, run, reason))
    }

    fn restart_run(&self, run: &str, items: &[(u32, u32)]) -> Result<bool, RecordError> {
        self.write(|tx| restart(tx, run, items))
    }

    fn find_cached_step(
        &self,
        project: &str,
        cache_key: &str,
    ) -> Result<Option<(String, PipelineStepRecord)>, RecordError> {
        self.read(|tx| step::find_cached(tx, project, cache_key))
    }

    fn unfinished_run_of_job(&self, job: &str) -> Result<Option<String>, RecordError> {
        self.read(|tx| step::unfinished_run_of_job(tx, job))
    }

    fn remove_run(&self, run: &str) -> Result<bool, RecordError> {
        self.write(|tx| remove(tx, run))
    }

    fn put_pipeline_schedule(&self, schedule: &PipelineSchedule) -> Result<(), RecordError> {
        schedule::validate(schedule)?;
        self.write(|tx| schedule::put(tx, schedule))
    }

    fn pipeline_schedules(&self) -> Result<Vec<PipelineSchedule>, RecordError> {
        self.read(schedule::list)
    }

    fn remove_pipeline_schedule(&self, name: &str) -> Result<bool, RecordError> {
        self.write(|tx| schedule::remove(tx, name))
    }

    fn advance_pipeline_schedule(
        &self,
        name: &str,
        due_ms: UnixMillis,
        run: Option<&str>,
    ) -> Result<bool, RecordError> {
        self.write(|tx| schedule::advance(tx, name, due_ms, run))
    }
}
