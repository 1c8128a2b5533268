//! Transactions on pipeline runs.

mod schedule;
mod step;

use saggar_clock::UnixMillis;

use super::{clamp_limit, comma_list, row};
use crate::error::RecordError;
use crate::limits::{JOBS_LISTED_MAX, PIPELINE_RUNS_UNFINISHED_MAX};
use crate::records::session::{RecordLock, RecordsEngine, SqlRow, SqlSession, TransactionResult, params};
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

fn create(tx: &dyn SqlSession, new: &NewPipelineRun, now_ms: UnixMillis) -> TransactionResult<PipelineRunRecord> {
    tx.lock(RecordLock::Creation)?;
    if let Some(key) = &new.idempotency_key
        && let Some(run) = find_by_idempotency_key(tx, key)?
    {
        return Ok(run);
    }
    let running = "SELECT count(*) FROM pipeline_runs WHERE state = 'RUNNING'";
    let queued: u64 = tx.query_one(running, params![], row::count_from_row)?;
    if queued >= PIPELINE_RUNS_UNFINISHED_MAX {
        return Err(RecordError::TooManyRuns { running: queued, max: PIPELINE_RUNS_UNFINISHED_MAX }.into());
    }
    let number: i64 = tx.query_one(
        "INSERT INTO pipelines (name, last_number) VALUES (?1, 1) \
         ON CONFLICT (name) DO UPDATE SET last_number = pipelines.last_number + 1 RETURNING last_number",
        params![new.pipeline],
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
            now_ms,
            new.idempotency_key,
            new.reuse_from,
        ],
    )?;
    step::create(tx, &id, &new.steps)?;
    get(tx, &id)
}

fn find_by_idempotency_key(tx: &dyn SqlSession, key: &str) -> TransactionResult<Option<PipelineRunRecord>> {
    let sql = format!("SELECT {RUN_COLUMNS} FROM pipeline_runs WHERE idempotency_key = ?1");
    tx.query_optional(&sql, params![key], run_from_row)
}

fn get(tx: &dyn SqlSession, name_or_id: &str) -> TransactionResult<PipelineRunRecord> {
    let sql = format!("SELECT {RUN_COLUMNS} FROM pipeline_runs WHERE id = ?1 OR name = ?1");
    let run = tx.query_optional(&sql, params![name_or_id], run_from_row)?;
    Ok(run.ok_or_else(|| RecordError::NoSuchRun { run: name_or_id.to_owned() })?)
}

fn list(tx: &dyn SqlSession, filter: &PipelineRunFilter) -> TransactionResult<Vec<PipelineRunRecord>> {
    let limit = clamp_limit(filter.limit, JOBS_LISTED_MAX);
    let sql = format!(
        "SELECT {RUN_COLUMNS} FROM pipeline_runs WHERE (CAST(?1 AS TEXT) IS NULL OR pipeline = ?1) AND (CAST(?2 AS TEXT) IS NULL OR state = ?2) \
         AND (CAST(?3 AS TEXT) IS NULL OR instr(?3, ',' || project || ',') > 0) AND cursor < ?4 ORDER BY cursor DESC LIMIT ?5"
    );
    let projects = filter.projects.as_deref().map(comma_list);
    let before = filter.before.unwrap_or(u64::MAX);
    let state = filter.state.map(PipelineRunState::name);
    tx.query_all(&sql, params![filter.pipeline, state, projects, before, limit], run_from_row)
}

fn list_unfinished(tx: &dyn SqlSession) -> TransactionResult<Vec<PipelineRunRecord>> {
    let sql = format!("SELECT {RUN_COLUMNS} FROM pipeline_runs WHERE state = 'RUNNING' ORDER BY cursor");
    tx.query_all(&sql, params![], run_from_row)
}

fn run_from_row(row: &dyn SqlRow) -> TransactionResult<PipelineRunRecord> {
    let state: String = row.get(7)?;
    let stop: Option<String> = row.get(10)?;
    let owner: Option<String> = row.get(12)?;
    Ok(PipelineRunRecord {
        cursor: row.get(0)?,
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
        created_ms: row.get(14)?,
        finished_ms: row.get(15)?,
        reuse_from: row.get(16)?,
    })
}

fn finish(
    tx: &dyn SqlSession,
    run: &str,
    state: PipelineRunState,
    reason: &StateReason,
    now_ms: UnixMillis,
) -> TransactionResult<bool> {
    let changed = tx.execute(
        "UPDATE pipeline_runs SET state = ?2, reason_code = ?3, reason_sentence = ?4, finished_ms = ?5 \
         WHERE id = ?1 AND state = 'RUNNING'",
        params![run, state.name(), reason.code, reason.sentence, now_ms],
    )?;
    Ok(changed > 0)
}

fn request_stop(tx: &dyn SqlSession, run: &str, reason: &StateReason) -> TransactionResult<bool> {
    let changed = tx.execute(
        "UPDATE pipeline_runs SET stop_code = coalesce(stop_code, ?2), stop_sentence = coalesce(stop_sentence, ?3) \
         WHERE id = ?1 AND state = 'RUNNING'",
        params![run, reason.code, reason.sentence],
    )?;
    Ok(changed > 0)
}

fn restart(tx: &dyn SqlSession, run: &str, items: &[(u32, u32)]) -> TransactionResult<bool> {
    let changed = tx.execute(
        "UPDATE pipeline_runs SET state = 'RUNNING', reason_code = '', reason_sentence = '', stop_code = NULL, \
         stop_sentence = NULL, finished_ms = NULL WHERE id = ?1 AND state <> 'RUNNING'",
        params![run],
    )?;
    if changed == 0 {
        return Ok(false);
    }
    step::begin_attempts(tx, run, items)?;
    Ok(true)
}

fn remove(tx: &dyn SqlSession, run: &str) -> TransactionResult<bool> {
    tx.lock(RecordLock::PipelineRun(run))?;
    let over = "SELECT count(*) FROM pipeline_runs WHERE id = ?1 AND state <> 'RUNNING'";
    if tx.query_one(over, params![run], row::count_from_row)? == 0 {
        return Ok(false);
    }
    tx.execute("DELETE FROM pipeline_steps WHERE run = ?1", params![run])?;
    Ok(tx.execute("DELETE FROM pipeline_runs WHERE id = ?1", params![run])? > 0)
}

impl<E: RecordsEngine> PipelineRecords for E {
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
