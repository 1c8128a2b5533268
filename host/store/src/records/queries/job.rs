//! Transactions on jobs and attempts.

use saggar_clock::UnixMillis;

use super::row::{self, JOB_COLUMNS};
use super::{clamp_limit, comma_list, event, host, queue, usage_totals};
use crate::durable;
use crate::error::RecordError;
use crate::limits::{JOBS_LISTED_MAX, JOBS_QUEUED_MAX};
use crate::records::lease::LEASE_MS;
use crate::records::session::{RecordLock, SqlDialect, SqlSession, TransactionResult, params};
use crate::records::{
    AttemptUsage, ClaimedJob, JobFilter, JobLease, JobRecord, JobState, NewJob, PausePoint, ServerIdentity,
    StateReason, field_rules, id,
};

/// Returns `Invalid` if the job's fields are not valid.
pub(super) fn validate(job: &NewJob) -> Result<(), RecordError> {
    field_rules::check_name("project", &job.project)?;
    field_rules::check_short_text("task", &job.task)?;
    field_rules::check_spec_length("spec", &job.spec)?;
    if serde_json::from_str::<serde_json::Map<_, _>>(&job.spec).is_err() {
        return Err(field_rules::invalid("spec", &job.spec, "must be a JSON object"));
    }
    job.pause.as_ref().map_or(Ok(()), PausePoint::validate)?;
    field_rules::check_idempotency_key(job.idempotency_key.as_deref())
}

pub(super) fn find_by_idempotency_key(tx: &dyn SqlSession, key: &str) -> TransactionResult<Option<JobRecord>> {
    let sql = format!("SELECT {JOB_COLUMNS} FROM jobs WHERE idempotency_key = ?1");
    tx.query_optional(&sql, params![key], row::job_from_row)
}

pub(super) fn submit(tx: &dyn SqlSession, new: &NewJob, now_ms: UnixMillis) -> TransactionResult<JobRecord> {
    tx.lock(RecordLock::Creation)?;
    if let Some(key) = &new.idempotency_key
        && let Some(job) = find_by_idempotency_key(tx, key)?
    {
        return Ok(job);
    }
    queue::check_length(tx, JOBS_QUEUED_MAX)?;
    let number: i64 = tx.query_one(
        "INSERT INTO projects (name, last_number) VALUES (?1, 1) \
         ON CONFLICT (name) DO UPDATE SET last_number = projects.last_number + 1 RETURNING last_number",
        params![new.project],
        |row| row.get(0),
    )?;
    let id = id::new(now_ms);
    let sql = format!(
        "INSERT INTO jobs (id, name, project, number, task, spec, priority, state, created_ms, \
         steps_target, idempotency_key, queue, preemptible, device, slots_milli, experiment, owner, rights, pause, \
         storage, scheduling_group, labels, hosts) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, \
         ?23) RETURNING {JOB_COLUMNS}"
    );
    let job = tx.query_one(
        &sql,
        params![
            id,
            format!("{}-{number}", new.project),
            new.project,
            number,
            new.task,
            new.spec,
            new.demand.priority,
            JobState::Queued,
            now_ms,
            new.steps_target,
            new.idempotency_key,
            new.demand.queue,
            new.demand.preemptible,
            new.demand.device,
            new.demand.slots_milli,
            new.experiment,
            new.owner,
            row::rights_text(&new.rights),
            row::pause_text(new.pause.as_ref()),
            new.storage,
            queue::scheduling_group(new),
            row::labels_text(&new.demand.labels),
            new.demand.hosts,
        ],
        row::job_from_row,
    )?;
    event::record(tx, &id, "SUBMITTED", "", now_ms)?;
    Ok(job)
}

pub(super) fn get(tx: &dyn SqlSession, name_or_id: &str) -> TransactionResult<JobRecord> {
    find(tx, name_or_id, "")
}

/// Returns the job, whose records no other transaction changes until this one ends.
pub(super) fn get_locked(tx: &dyn SqlSession, name_or_id: &str) -> TransactionResult<JobRecord> {
    // Writes of SQLite are serial. Rows that refer to the locked one can be inserted meanwhile.
    let lock = match tx.dialect() {
        SqlDialect::Postgres => "FOR NO KEY UPDATE",
        SqlDialect::Sqlite => "",
    };
    find(tx, name_or_id, lock)
}

/// Returns the job with a name or identifier. `suffix` follows the query.
fn find(tx: &dyn SqlSession, name_or_id: &str, suffix: &str) -> TransactionResult<JobRecord> {
    let sql = format!("SELECT {JOB_COLUMNS} FROM jobs WHERE id = ?1 OR name = ?1 {suffix}");
    let job = tx.query_optional(&sql, params![name_or_id], row::job_from_row)?;
    Ok(job.ok_or_else(|| RecordError::NoSuchJob { job: name_or_id.to_owned() })?)
}

pub(super) fn list(tx: &dyn SqlSession, filter: &JobFilter) -> TransactionResult<Vec<JobRecord>> {
    let states: Vec<_> = filter.states.iter().map(|state| state.name()).collect();
    let limit = clamp_limit(filter.limit, JOBS_LISTED_MAX);
    let sql = format!(
        "SELECT {JOB_COLUMNS} FROM jobs WHERE (CAST(?1 AS TEXT) IS NULL OR project = ?1) AND (CAST(?5 AS TEXT) IS NULL OR experiment = ?5) \
         AND (?2 = '' OR instr(?2, ',' || state || ',') > 0) AND cursor < ?3 \
         AND (CAST(?6 AS TEXT) IS NULL OR instr(?6, ',' || project || ',') > 0) \
         ORDER BY cursor DESC LIMIT ?4"
    );
    let wanted = if states.is_empty() { String::new() } else { comma_list(&states) };
    let projects = filter.projects.as_deref().map(comma_list);
    let before = filter.before.unwrap_or(u64::MAX);
    let values = params![filter.project, wanted, before, limit, filter.experiment, projects];
    tx.query_all(&sql, values, row::job_from_row)
}

pub(super) fn projects(tx: &dyn SqlSession) -> TransactionResult<Vec<(String, UnixMillis, UnixMillis)>> {
    let sql = "SELECT project, min(created_ms), max(coalesce(finished_ms, started_ms, created_ms)) FROM jobs \
               GROUP BY project ORDER BY project";
    tx.query_all(sql, params![], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
}

pub(super) fn count_by_state(tx: &dyn SqlSession) -> TransactionResult<Vec<(JobState, u64)>> {
    tx.query_all("SELECT count(*), state FROM jobs GROUP BY state", params![], |row| {
        Ok((row.get(1)?, row::count_from_row(row)?))
    })
}

pub(super) fn list_active(tx: &dyn SqlSession) -> TransactionResult<Vec<JobRecord>> {
    let sql =
        format!("SELECT {JOB_COLUMNS} FROM jobs WHERE state IN ('STARTING', 'RUNNING', 'STOPPING') ORDER BY cursor");
    tx.query_all(&sql, params![], row::job_from_row)
}

/// Returns the specifications of unfinished jobs that contain `text`, oldest first.
pub(super) fn unfinished_specs_with(tx: &dyn SqlSession, text: &str) -> TransactionResult<Vec<String>> {
    tx.query_all(
        "SELECT spec FROM jobs WHERE state IN ('QUEUED', 'STARTING', 'RUNNING', 'STOPPING') AND instr(spec, ?1) > 0 \
         ORDER BY cursor",
        params![text],
        |row| row.get(0),
    )
}

pub(super) fn claim(
    tx: &dyn SqlSession,
    id: &str,
    pool: &str,
    now_ms: UnixMillis,
) -> TransactionResult<Option<ClaimedJob>> {
    tx.lock(RecordLock::Claim)?;
    let claimed = claim_queued(tx, id, pool, &ServerIdentity::default(), now_ms)?;
    match &claimed {
        Some(claimed) => record_claim(tx, claimed, pool, now_ms)?,
        None => drop(get(tx, id)?),
    }
    Ok(claimed)
}

/// Claims a job for a server, without the event. Returns `None` if it cannot start. The transaction holds the claim lock.
pub(super) fn claim_queued(
    tx: &dyn SqlSession,
    id: &str,
    pool: &str,
    server: &ServerIdentity,
    now_ms: UnixMillis,
) -> TransactionResult<Option<ClaimedJob>> {
    let (lease_end, until) = lease_end(tx, "?6")?;
    let sql = format!(
        "UPDATE jobs SET state = 'STARTING', epoch = epoch + 1, attempts = attempts + 1, \
         reason_code = '', reason_sentence = '', server = ?3, server_id = ?4, claim = ?5, lease_until = {lease_end}, \
         orders = '{{}}' WHERE id = ?1 AND state = 'QUEUED' AND NOT paused \
         AND (not_before_ms <= ?2 OR not_before_ms - backoff_ms > ?2) AND {TAKES_JOBS} RETURNING {JOB_COLUMNS}",
        TAKES_JOBS = host::takes_jobs_condition("?4"),
    );
    let claim = new_claim();
    let values = params![id, now_ms, server.name, server.id, claim, until];
    let Some(job) = tx.query_optional(&sql, values, row::job_from_row)? else { return Ok(None) };
    tx.execute(
        "INSERT INTO attempts (job, number, state, started_ms, pool, server) VALUES (?1, ?2, 'STARTING', ?3, ?4, ?5)",
        params![id, job.attempts, now_ms, pool, server.name],
    )?;
    let lease = lease_of(&job);
    Ok(Some(ClaimedJob { job, lease }))
}

/// Records the event of a claim.
pub(super) fn record_claim(
    tx: &dyn SqlSession,
    claimed: &ClaimedJob,
    pool: &str,
    now_ms: UnixMillis,
) -> TransactionResult<()> {
    let ClaimedJob { job, lease } = claimed;
    let place = if job.server.is_empty() { String::new() } else { format!(" of server {}", job.server) };
    event::record(tx, &job.id, "CLAIMED", &format!("attempt {} in pool {pool}{place}", lease.attempt), now_ms)
}

/// Returns an expression of when a lease ends that begins now, and the value of its parameter. PostgreSQL reads its clock in
/// the statement, which saves a message.
pub(super) fn lease_end(tx: &dyn SqlSession, parameter: &str) -> TransactionResult<(String, u64)> {
    Ok(match tx.dialect() {
        SqlDialect::Postgres => (format!("lease_clock_ms() + {parameter}"), LEASE_MS),
        SqlDialect::Sqlite => (parameter.to_owned(), tx.lease_clock()?.now_ms.saturating_add(LEASE_MS)),
    })
}

/// Returns a new token of a claim.
fn new_claim() -> String {
    durable::random_hex::<8>()
}

/// Returns the newest lease of a job.
pub(super) fn lease_of(job: &JobRecord) -> JobLease {
    JobLease { job: job.id.clone(), attempt: job.attempts, epoch: job.epoch, claim: job.claim.clone() }
}

/// Returns the name of the server that a job's newest lease belongs to, for people.
pub(super) fn owner_of(job: &JobRecord) -> String {
    if job.server.is_empty() { "the server".to_owned() } else { format!("server {}", job.server) }
}

pub(super) fn take_over(tx: &dyn SqlSession, id: &str, now_ms: UnixMillis) -> TransactionResult<JobLease> {
    let job = get_locked(tx, id)?;
    if job.state.is_final() {
        return Err(RecordError::Finished { job: job.name, state: job.state }.into());
    }
    if !job.state.is_active() {
        let (field, expected) = ("job", "must be active; claim a queued one");
        return Err(RecordError::Invalid { field, value: job.name, expected }.into());
    }
    let (claim, (lease_end, until)) = (new_claim(), lease_end(tx, "?3")?);
    let sql = format!("UPDATE jobs SET epoch = epoch + 1, claim = ?2, lease_until = {lease_end} WHERE id = ?1");
    tx.execute(&sql, params![job.id, claim, until])?;
    event::record(tx, &job.id, "TAKEN_OVER", &format!("from epoch {}", job.epoch), now_ms)?;
    Ok(JobLease { job: job.id, attempt: job.attempts, epoch: job.epoch + 1, claim })
}

/// Returns the job of a lease, which stays locked, or `Fenced` if the lease has ended.
pub(super) fn check_lease(tx: &dyn SqlSession, lease: &JobLease) -> TransactionResult<JobRecord> {
    check_owner(get_locked(tx, &lease.job)?, lease)
}

/// Returns the job, or `Fenced` or `Finished` if the lease is not its newest.
pub(super) fn check_owner(job: JobRecord, lease: &JobLease) -> TransactionResult<JobRecord> {
    if job.epoch != lease.epoch || job.attempts != lease.attempt || job.claim != lease.claim {
        let (epoch, newest, owner) = (lease.epoch, job.epoch, owner_of(&job));
        return Err(RecordError::Fenced { job: job.name, epoch, newest, owner }.into());
    }
    if job.state.is_final() {
        return Err(RecordError::Finished { job: job.name, state: job.state }.into());
    }
    Ok(job)
}

pub(super) fn set_state(
    tx: &dyn SqlSession,
    lease: &JobLease,
    state: JobState,
    reason: &StateReason,
    now_ms: UnixMillis,
) -> TransactionResult<()> {
    let job = check_lease(tx, lease)?;
    if !state.is_active() {
        let expected = "must be STARTING, RUNNING or STOPPING";
        let value = state.name().to_owned();
        return Err(RecordError::Invalid { field: "state", value, expected }.into());
    }
    // A stop that was requested while the worker was starting must not be overwritten by "running".
    let next_state = if job.state == JobState::Stopping { JobState::Stopping } else { state };
    let started = (state == JobState::Running).then_some(now_ms);
    tx.execute(
        "UPDATE jobs SET state = ?2, reason_code = ?3, reason_sentence = ?4, \
         started_ms = coalesce(started_ms, ?5) WHERE id = ?1",
        params![lease.job, next_state, reason.code, reason.sentence, started],
    )?;
    tx.execute(
        "UPDATE attempts SET state = ?3 WHERE job = ?1 AND number = ?2 AND ended_ms IS NULL",
        params![lease.job, lease.attempt, next_state],
    )?;
    if next_state != job.state {
        event::record(tx, &lease.job, next_state.name(), &reason.sentence, now_ms)?;
    }
    Ok(())
}

pub(super) fn set_device(tx: &dyn SqlSession, lease: &JobLease, device: &str, exact: bool) -> TransactionResult<()> {
    check_lease(tx, lease)?;
    tx.execute(
        "UPDATE attempts SET device = ?3, seconds_estimated = ?4 WHERE job = ?1 AND number = ?2",
        params![lease.job, lease.attempt, device, !exact],
    )?;
    Ok(())
}

pub(super) fn record_progress(
    tx: &dyn SqlSession,
    lease: &JobLease,
    step: u64,
    steps_target: u64,
    usage: &AttemptUsage,
) -> TransactionResult<Option<StateReason>> {
    let job = check_lease(tx, lease)?;
    tx.execute("UPDATE jobs SET step = ?2, steps_target = ?3 WHERE id = ?1", params![lease.job, step, steps_target])?;
    record_usage(tx, lease, usage)?;
    Ok(job.stop)
}

pub(super) fn record_usage(tx: &dyn SqlSession, lease: &JobLease, usage: &AttemptUsage) -> TransactionResult<()> {
    // SQLite stores NaN as NULL, which the table refuses.
    let seconds = |value: f64| if value.is_finite() { value } else { 0.0 };
    tx.execute(
        "UPDATE attempts SET first_step = ?3, last_step = ?4, wall_seconds = ?5, \
         gpu_seconds = ?6, peak_bytes = ?7, samples = ?8, \
         data_seconds = ?9, all_reduce_seconds = ?10, checkpoint_seconds = ?11 \
         WHERE job = ?1 AND number = ?2 AND ended_ms IS NULL",
        params![
            lease.job,
            lease.attempt,
            usage.first_step,
            usage.last_step,
            seconds(usage.wall_seconds),
            seconds(usage.gpu_seconds),
            usage.peak_bytes,
            usage.samples,
            seconds(usage.data_seconds),
            seconds(usage.all_reduce_seconds),
            seconds(usage.checkpoint_seconds),
        ],
    )?;
    Ok(())
}

pub(super) fn finish_attempt(
    tx: &dyn SqlSession,
    lease: &JobLease,
    state: JobState,
    reason: &StateReason,
    usage: &AttemptUsage,
    now_ms: UnixMillis,
) -> TransactionResult<()> {
    check_lease(tx, lease)?;
    if state.is_active() {
        let expected = "must be final, or QUEUED where the attempt was preempted";
        let value = state.name().to_owned();
        return Err(RecordError::Invalid { field: "state", value, expected }.into());
    }
    record_usage(tx, lease, usage)?;
    close_attempt(tx, lease, state, reason, now_ms)
}

/// Ends the attempt if it is still open.
pub(super) fn close_attempt(
    tx: &dyn SqlSession,
    lease: &JobLease,
    state: JobState,
    reason: &StateReason,
    now_ms: UnixMillis,
) -> TransactionResult<()> {
    let closed = tx.execute(
        "UPDATE attempts SET state = ?3, reason_code = ?4, reason_sentence = ?5, ended_ms = ?6, meeting_point = NULL \
         WHERE job = ?1 AND number = ?2 AND ended_ms IS NULL",
        params![lease.job, lease.attempt, state, reason.code, reason.sentence, now_ms],
    )?;
    if closed > 0 {
        let text = format!("attempt {}: {} {}", lease.attempt, reason.code, reason.sentence);
        event::record(tx, &lease.job, "ATTEMPT_ENDED", text.trim_end(), now_ms)?;
    }
    Ok(())
}

pub(super) fn finish(
    tx: &dyn SqlSession,
    lease: &JobLease,
    state: JobState,
    reason: &StateReason,
    now_ms: UnixMillis,
) -> TransactionResult<JobRecord> {
    check_lease(tx, lease)?;
    if !state.is_final() {
        let expected = "must be SUCCEEDED, FAILED, CANCELLED or TIMED_OUT";
        let value = state.name().to_owned();
        return Err(RecordError::Invalid { field: "state", value, expected }.into());
    }
    close_attempt(tx, lease, state, reason, now_ms)?;
    finish_unleased(tx, &lease.job, state, reason, now_ms)
}

/// Ends a job that has not finished. Must not be called twice for one job.
pub(super) fn finish_unleased(
    tx: &dyn SqlSession,
    id: &str,
    state: JobState,
    reason: &StateReason,
    now_ms: UnixMillis,
) -> TransactionResult<JobRecord> {
    let sql = format!(
        "UPDATE jobs SET state = ?2, reason_code = ?3, reason_sentence = ?4, finished_ms = ?5 \
         WHERE id = ?1 RETURNING {JOB_COLUMNS}"
    );
    let values = params![id, state, reason.code, reason.sentence, now_ms];
    let job = tx.query_one(&sql, values, row::job_from_row)?;
    event::record(tx, id, state.name(), &reason.sentence, now_ms)?;
    usage_totals::add_finished_job(tx, &job)?;
    Ok(job)
}

pub(super) fn requeue(
    tx: &dyn SqlSession,
    lease: &JobLease,
    reason: &StateReason,
    not_before_ms: UnixMillis,
    now_ms: UnixMillis,
) -> TransactionResult<JobRecord> {
    let job = check_lease(tx, lease)?;
    close_attempt(tx, lease, JobState::Queued, reason, now_ms)?;
    if let Some(stop) = &job.stop {
        return finish_unleased(tx, &lease.job, JobState::Cancelled, stop, now_ms);
    }
    tx.execute(
        "UPDATE jobs SET state = 'QUEUED', epoch = epoch + 1, reason_code = ?2, \
         reason_sentence = ?3, not_before_ms = ?4, backoff_ms = ?5 WHERE id = ?1",
        params![lease.job, reason.code, reason.sentence, not_before_ms, not_before_ms.saturating_sub(now_ms)],
    )?;
    event::record(tx, &lease.job, "QUEUED", &reason.sentence, now_ms)?;
    get(tx, &lease.job)
}

pub(super) fn request_stop(
    tx: &dyn SqlSession,
    id: &str,
    reason: &StateReason,
    now_ms: UnixMillis,
) -> TransactionResult<JobRecord> {
    let job = get_locked(tx, id)?;
    if job.state.is_final() {
        return Err(RecordError::Finished { job: job.name, state: job.state }.into());
    }
    if job.stop.is_some() {
        return Ok(job);
    }
    tx.execute(
        "UPDATE jobs SET stop_code = ?2, stop_sentence = ?3 WHERE id = ?1",
        params![job.id, reason.code, reason.sentence],
    )?;
    if !job.state.is_active() {
        return finish_unleased(tx, &job.id, JobState::Cancelled, reason, now_ms);
    }
    tx.execute("UPDATE jobs SET state = 'STOPPING' WHERE id = ?1", params![job.id])?;
    tx.execute("UPDATE attempts SET state = 'STOPPING' WHERE job = ?1 AND ended_ms IS NULL", params![job.id])?;
    event::record(tx, &job.id, "STOP_REQUESTED", &reason.sentence, now_ms)?;
    get(tx, &job.id)
}
