//! Conversion of rows to values.

use crate::records::session::{
    FromSqlValue, SqlRow, SqlValue, ToSqlValue, TransactionError, TransactionResult, column_error,
};
use crate::records::{
    ActiveJob, HostLabels, JobEvent, JobOrders, JobRecord, JobState, MetricPoint, PausePoint, QueuedJob,
    SchedulingRequest, StateReason, SweepState, TrialState,
};
use crate::rights::AccessRights;

/// The columns that [`job_from_row`] reads, in its order.
pub(super) const JOB_COLUMNS: &str = "cursor, id, name, project, number, task, spec, owner, state, \
    reason_code, reason_sentence, stop_code, stop_sentence, created_ms, started_ms, finished_ms, \
    not_before_ms, step, steps_target, epoch, attempts, experiment, \
    queue, priority, preemptible, device, slots_milli, labels, hosts, rights, pause, paused, server, server_id, claim, orders";

/// The index of the first of [`JOB_COLUMNS`] that [`scheduling_request_from_row`] reads.
const JOB_DEMAND_COLUMN: usize = 22;

/// Returns the error of a column whose text is the name of no state.
pub(super) fn unknown_name(column: usize, text: &str) -> TransactionError {
    column_error(column, format_args!("`{text:.80}` is not a state"))
}

/// Implements the conversion of states to and from their names.
macro_rules! sql_states {
    ($($state:ident)*) => {
        $(impl ToSqlValue for $state {
            fn to_sql_value(&self) -> SqlValue<'_> {
                SqlValue::Text(self.name())
            }
        }

        impl FromSqlValue for $state {
            fn from_sql_value(value: SqlValue<'_>) -> Option<$state> {
                if let SqlValue::Text(text) = value { text.parse().ok() } else { None }
            }
        })*
    };
}

sql_states!(JobState SweepState TrialState);

/// Returns a job from a row of [`JOB_COLUMNS`].
pub(super) fn job_from_row(row: &dyn SqlRow) -> TransactionResult<JobRecord> {
    let stop: Option<String> = row.get(11)?;
    let owner: Option<String> = row.get(7)?;
    let state: JobState = row.get(8)?;
    Ok(JobRecord {
        cursor: row.get(0)?,
        id: row.get(1)?,
        name: row.get(2)?,
        project: row.get(3)?,
        number: row.get(4)?,
        task: row.get(5)?,
        spec: row.get(6)?,
        demand: scheduling_request_from_row(row, JOB_DEMAND_COLUMN)?,
        experiment: row.get(21)?,
        rights: rights_from_row(row, 29, owner.as_deref())?,
        owner,
        state,
        reason: StateReason { code: row.get(9)?, sentence: row.get(10)? },
        stop: match stop {
            Some(code) => Some(StateReason { code, sentence: row.get(12)? }),
            None => None,
        },
        pause: pause_from_row(row, 30)?,
        is_paused: row.get(31)? && state == JobState::Queued,
        created_ms: row.get(13)?,
        started_ms: row.get(14)?,
        finished_ms: row.get(15)?,
        not_before_ms: row.get(16)?,
        step: row.get(17)?,
        steps_target: row.get(18)?,
        epoch: row.get(19)?,
        attempts: row.get(20)?,
        server: row.get(32)?,
        server_id: row.get(33)?,
        claim: row.get(34)?,
        orders: orders_from_row(row, 35)?,
    })
}

/// Returns the rights of a key. The column is NULL without a key, and in records of builds that stored only the key's
/// name.
pub(super) fn rights_from_row(row: &dyn SqlRow, at: usize, owner: Option<&str>) -> TransactionResult<AccessRights> {
    match row.get::<Option<String>>(at)? {
        Some(text) => serde_json::from_str(&text).map_err(|error| column_error(at, error)),
        None => Ok(owner.map(AccessRights::from_key_name).unwrap_or_default()),
    }
}

fn pause_from_row(row: &dyn SqlRow, at: usize) -> TransactionResult<Option<PausePoint>> {
    let Some(text) = row.get::<Option<String>>(at)? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|error| column_error(at, error))
}

/// Returns the orders of an attempt.
pub(super) fn orders_from_row(row: &dyn SqlRow, at: usize) -> TransactionResult<JobOrders> {
    serde_json::from_str(&row.get::<String>(at)?).map_err(|error| column_error(at, error))
}

/// Returns orders in the form that [`orders_from_row`] reads.
pub(super) fn orders_text(orders: &JobOrders) -> String {
    serde_json::to_string(orders).expect("orders are plain data")
}

/// Returns labels in the form that [`job_from_row`] reads.
pub(super) fn labels_text(labels: &HostLabels) -> String {
    serde_json::to_string(labels).expect("labels are plain data")
}

/// Returns the point in the form that [`job_from_row`] reads.
pub(super) fn pause_text(point: Option<&PausePoint>) -> Option<String> {
    point.map(|point| serde_json::to_string(point).expect("a point is plain data"))
}

/// Returns the rights of a key in the form that [`rights_from_row`] reads.
pub(super) fn rights_text(rights: &AccessRights) -> Option<String> {
    rights.key().map(|_| serde_json::to_string(rights).expect("rights are plain data"))
}

/// Returns a scheduling request from the columns `queue, priority, preemptible, device, slots_milli, labels, hosts`, of which
/// `at` is the first.
fn scheduling_request_from_row(row: &dyn SqlRow, at: usize) -> TransactionResult<SchedulingRequest> {
    Ok(SchedulingRequest {
        queue: row.get(at)?,
        priority: row.get(at + 1)?,
        preemptible: row.get(at + 2)?,
        device: row.get(at + 3)?,
        slots_milli: row.get(at + 4)?,
        labels: serde_json::from_str(&row.get::<String>(at + 5)?).map_err(|error| column_error(at + 5, error))?,
        hosts: row.get(at + 6)?,
    })
}

/// The columns that [`queued_job_from_row`] reads, in its order.
pub(super) const WAITING_COLUMNS: &str = "id, name, project, owner, not_before_ms, backoff_ms, reason_code, reason_sentence, \
    queue, priority, preemptible, device, slots_milli, labels, hosts, storage, orders, attempts";

/// The number of [`WAITING_COLUMNS`].
pub(super) const WAITING_COLUMN_COUNT: usize = 18;

/// Returns a queued job from a row of [`WAITING_COLUMNS`].
pub(super) fn queued_job_from_row(row: &dyn SqlRow) -> TransactionResult<QueuedJob> {
    Ok(QueuedJob {
        id: row.get(0)?,
        name: row.get(1)?,
        project: row.get(2)?,
        owner: row.get(3)?,
        not_before_ms: row.get(4)?,
        backoff_ms: row.get(5)?,
        reason: StateReason { code: row.get(6)?, sentence: row.get(7)? },
        demand: scheduling_request_from_row(row, 8)?,
        storage: row.get(15)?,
        room: orders_from_row(row, 16)?.room,
        attempts: row.get(17)?,
    })
}

/// The columns that [`active_job_from_row`] reads, in its order, from `jobs` joined with `attempts`.
pub(super) const RUNNING_COLUMNS: &str = "jobs.id, jobs.name, jobs.project, jobs.owner, attempts.pool, \
    attempts.started_ms, jobs.state, jobs.queue, jobs.priority, jobs.preemptible, jobs.device, jobs.slots_milli, \
    jobs.labels, jobs.hosts, jobs.server_id, jobs.orders";

/// Returns an active job from a row of [`RUNNING_COLUMNS`].
pub(super) fn active_job_from_row(row: &dyn SqlRow) -> TransactionResult<ActiveJob> {
    Ok(ActiveJob {
        id: row.get(0)?,
        name: row.get(1)?,
        project: row.get(2)?,
        owner: row.get(3)?,
        pool: row.get(4)?,
        started_ms: row.get(5)?,
        state: row.get(6)?,
        demand: scheduling_request_from_row(row, 7)?,
        server_id: row.get(14)?,
        hosts: Vec::new(),
        orders: orders_from_row(row, 15)?,
    })
}

/// Returns a point from `name, step, value, at_ms`.
pub(super) fn point_from_row(row: &dyn SqlRow) -> TransactionResult<MetricPoint> {
    Ok(MetricPoint {
        name: row.get(0)?,
        step: row.get(1)?,
        value: row.get::<Option<f64>>(2)?.unwrap_or(f64::NAN),
        at_ms: row.get(3)?,
    })
}

/// Returns an event from `sequence, job, at_ms, kind, text`.
pub(super) fn event_from_row(row: &dyn SqlRow) -> TransactionResult<JobEvent> {
    Ok(JobEvent { sequence: row.get(0)?, job: row.get(1)?, at_ms: row.get(2)?, kind: row.get(3)?, text: row.get(4)? })
}

/// Returns a count from a row's first column.
pub(super) fn count_from_row(row: &dyn SqlRow) -> TransactionResult<u64> {
    row.get(0)
}
