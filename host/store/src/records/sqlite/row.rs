//! Conversion of rows to values. SQLite's integers are `i64`; larger numbers are stored as its maximum.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, Type, ValueRef};
use rusqlite::{Row, Transaction};

use super::TransactionResult;
use crate::records::{
    ActiveJob, AttemptUsage, JobAttempt, JobEvent, JobRecord, JobState, MetricPoint, PausePoint, QueuedJob,
    SchedulingRequest, StateReason,
};
use crate::rights::AccessRights;

/// The columns that [`job_from_row`] reads, in its order.
pub(super) const JOB_COLUMNS: &str = "cursor, id, name, project, number, task, spec, owner, state, \
    reason_code, reason_sentence, stop_code, stop_sentence, created_ms, started_ms, finished_ms, \
    not_before_ms, step, steps_target, epoch, attempts, experiment, \
    queue, priority, preemptible, device, slots_milli, rights, pause, paused";

/// The index of the first of [`JOB_COLUMNS`] that [`scheduling_request_from_row`] reads.
const JOB_DEMAND_COLUMN: usize = 22;

/// Returns a number clamped to SQLite's range.
pub(super) fn to_sql_integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn from_sql_integer(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Returns the error of a column whose text is the name of no state.
pub(super) fn unknown_name(column: usize, text: &str) -> rusqlite::Error {
    let error = format!("`{}` is not a state", text.chars().take(80).collect::<String>());
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into())
}

impl ToSql for JobState {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(self.name().into()))
    }
}

impl FromSql for JobState {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<JobState> {
        value.as_str()?.parse().map_err(FromSqlError::other)
    }
}

/// Returns a job from a row of [`JOB_COLUMNS`].
pub(super) fn job_from_row(row: &Row<'_>) -> rusqlite::Result<JobRecord> {
    let number = |at: usize| row.get(at).map(from_sql_integer);
    let time = |at: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at)?.map(from_sql_integer));
    let stop: Option<String> = row.get(11)?;
    let owner: Option<String> = row.get(7)?;
    let state: JobState = row.get(8)?;
    Ok(JobRecord {
        cursor: number(0)?,
        id: row.get(1)?,
        name: row.get(2)?,
        project: row.get(3)?,
        number: number(4)?,
        task: row.get(5)?,
        spec: row.get(6)?,
        demand: scheduling_request_from_row(row, JOB_DEMAND_COLUMN)?,
        experiment: row.get(21)?,
        rights: rights_from_row(row, 27, owner.as_deref())?,
        owner,
        state,
        reason: StateReason { code: row.get(9)?, sentence: row.get(10)? },
        stop: match stop {
            Some(code) => Some(StateReason { code, sentence: row.get(12)? }),
            None => None,
        },
        pause: pause_from_row(row, 28)?,
        is_paused: row.get(29)? && state == JobState::Queued,
        created_ms: number(13)?,
        started_ms: time(14)?,
        finished_ms: time(15)?,
        not_before_ms: number(16)?,
        step: number(17)?,
        steps_target: number(18)?,
        epoch: number(19)?,
        attempts: row.get(20)?,
    })
}

/// Returns the rights of a key. The column is NULL without a key, and in records of builds that stored only the key's
/// name.
pub(super) fn rights_from_row(row: &Row<'_>, at: usize, owner: Option<&str>) -> rusqlite::Result<AccessRights> {
    match row.get::<_, Option<String>>(at)? {
        Some(text) => {
            let wrong = |error| rusqlite::Error::FromSqlConversionFailure(at, Type::Text, Box::new(error));
            serde_json::from_str(&text).map_err(wrong)
        }
        None => Ok(owner.map(AccessRights::from_key_name).unwrap_or_default()),
    }
}

fn pause_from_row(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<PausePoint>> {
    let Some(text) = row.get::<_, Option<String>>(at)? else { return Ok(None) };
    let wrong = |error| rusqlite::Error::FromSqlConversionFailure(at, Type::Text, Box::new(error));
    serde_json::from_str(&text).map(Some).map_err(wrong)
}

/// Returns the point in the form that [`job_from_row`] reads.
pub(super) fn pause_text(point: Option<&PausePoint>) -> Option<String> {
    point.map(|point| serde_json::to_string(point).expect("a point is plain data"))
}

/// Returns the rights of a key in the form that [`rights_from_row`] reads.
pub(super) fn rights_text(rights: &AccessRights) -> Option<String> {
    rights.key().map(|_| serde_json::to_string(rights).expect("rights are plain data"))
}

/// Returns a scheduling request from the columns `queue, priority, preemptible, device, slots_milli`, of which `at` is
/// the first.
fn scheduling_request_from_row(row: &Row<'_>, at: usize) -> rusqlite::Result<SchedulingRequest> {
    Ok(SchedulingRequest {
        queue: row.get(at)?,
        priority: row.get(at + 1)?,
        preemptible: row.get(at + 2)?,
        device: row.get(at + 3)?,
        slots_milli: row.get(at + 4)?,
    })
}

/// The columns that [`queued_job_from_row`] reads, in its order.
pub(super) const WAITING_COLUMNS: &str = "id, name, project, owner, not_before_ms, backoff_ms, reason_code, reason_sentence, \
    queue, priority, preemptible, device, slots_milli";

/// Returns a queued job from a row of [`WAITING_COLUMNS`].
pub(super) fn queued_job_from_row(row: &Row<'_>) -> rusqlite::Result<QueuedJob> {
    Ok(QueuedJob {
        id: row.get(0)?,
        name: row.get(1)?,
        project: row.get(2)?,
        owner: row.get(3)?,
        not_before_ms: row.get(4).map(from_sql_integer)?,
        backoff_ms: row.get(5).map(from_sql_integer)?,
        reason: StateReason { code: row.get(6)?, sentence: row.get(7)? },
        demand: scheduling_request_from_row(row, 8)?,
    })
}

/// The columns that [`active_job_from_row`] reads, in its order, from `jobs` joined with `attempts`.
pub(super) const RUNNING_COLUMNS: &str = "jobs.id, jobs.name, jobs.project, jobs.owner, attempts.pool, \
    attempts.started_ms, jobs.state, jobs.queue, jobs.priority, jobs.preemptible, jobs.device, jobs.slots_milli";

/// Returns an active job from a row of [`RUNNING_COLUMNS`].
pub(super) fn active_job_from_row(row: &Row<'_>) -> rusqlite::Result<ActiveJob> {
    Ok(ActiveJob {
        id: row.get(0)?,
        name: row.get(1)?,
        project: row.get(2)?,
        owner: row.get(3)?,
        pool: row.get(4)?,
        started_ms: row.get(5).map(from_sql_integer)?,
        state: row.get(6)?,
        demand: scheduling_request_from_row(row, 7)?,
    })
}

/// Returns the attempts of a job, in order.
pub(super) fn list_attempts(tx: &Transaction<'_>, id: &str) -> TransactionResult<Vec<JobAttempt>> {
    let mut statement = tx.prepare_cached(
        "SELECT number, state, reason_code, reason_sentence, device, started_ms, ended_ms, \
         first_step, last_step, wall_seconds, gpu_seconds, peak_bytes, samples, pool, \
         data_seconds, all_reduce_seconds, checkpoint_seconds, seconds_estimated \
         FROM attempts WHERE job = ?1 ORDER BY number",
    )?;
    let rows = statement.query_map([id], |row| {
        Ok(JobAttempt {
            number: row.get(0)?,
            state: row.get(1)?,
            reason: StateReason { code: row.get(2)?, sentence: row.get(3)? },
            device: row.get(4)?,
            seconds_estimated: row.get(17)?,
            pool: row.get(13)?,
            started_ms: row.get(5).map(from_sql_integer)?,
            ended_ms: row.get::<_, Option<i64>>(6)?.map(from_sql_integer),
            usage: AttemptUsage {
                first_step: row.get(7).map(from_sql_integer)?,
                last_step: row.get(8).map(from_sql_integer)?,
                wall_seconds: row.get(9)?,
                gpu_seconds: row.get(10)?,
                peak_bytes: row.get(11).map(from_sql_integer)?,
                samples: row.get(12).map(from_sql_integer)?,
                data_seconds: row.get(14)?,
                all_reduce_seconds: row.get(15)?,
                checkpoint_seconds: row.get(16)?,
            },
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns a point from `name, step, value, at_ms`.
pub(super) fn point_from_row(row: &Row<'_>) -> rusqlite::Result<MetricPoint> {
    Ok(MetricPoint {
        name: row.get(0)?,
        step: row.get(1).map(from_sql_integer)?,
        value: row.get::<_, Option<f64>>(2)?.unwrap_or(f64::NAN),
        at_ms: row.get(3).map(from_sql_integer)?,
    })
}

/// Returns an event from `sequence, job, at_ms, kind, text`.
pub(super) fn event_from_row(row: &Row<'_>) -> rusqlite::Result<JobEvent> {
    Ok(JobEvent {
        sequence: row.get(0).map(from_sql_integer)?,
        job: row.get(1)?,
        at_ms: row.get(2).map(from_sql_integer)?,
        kind: row.get(3)?,
        text: row.get(4)?,
    })
}

/// Returns a count from a row's first column.
pub(super) fn count_from_row(row: &Row<'_>) -> rusqlite::Result<u64> {
    row.get(0).map(from_sql_integer)
}
