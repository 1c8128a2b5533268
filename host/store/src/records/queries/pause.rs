//! Transactions that pause jobs and let them continue.

use saggar_clock::UnixMillis;

use super::job::{check_lease, close_attempt, finish_unleased, get, get_locked, record_usage};
use super::{event, row, series};
use crate::error::RecordError;
use crate::records::session::{SqlSession, TransactionResult, params};
use crate::records::{AttemptUsage, JobLease, JobRecord, JobState, PAUSED, PausePoint, StateReason};

pub(super) fn pause_at_point(
    tx: &dyn SqlSession,
    lease: &JobLease,
    point: &PausePoint,
    usage: &AttemptUsage,
    now_ms: UnixMillis,
) -> TransactionResult<JobRecord> {
    let job = check_lease(tx, lease)?;
    record_usage(tx, lease, usage)?;
    let reason = paused_reason(&job);
    close_attempt(tx, lease, JobState::Queued, &reason, now_ms)?;
    if let Some(stop) = &job.stop {
        return finish_unleased(tx, &lease.job, JobState::Cancelled, stop, now_ms);
    }
    tx.execute(
        "UPDATE jobs SET state = 'QUEUED', epoch = epoch + 1, not_before_ms = 0, backoff_ms = 0, \
         reason_code = '', reason_sentence = '' WHERE id = ?1",
        params![lease.job],
    )?;
    if job.pause.as_ref() == Some(point) {
        return pause_queued(tx, &job.id, &reason, now_ms);
    }
    // The point was changed while the worker saved its state.
    event::record(tx, &lease.job, JobState::Queued.name(), "", now_ms)?;
    get(tx, &lease.job)
}

pub(super) fn set_pause(
    tx: &dyn SqlSession,
    id: &str,
    point: Option<&PausePoint>,
    now_ms: UnixMillis,
) -> TransactionResult<JobRecord> {
    let job = get_locked(tx, id)?;
    if job.state.is_final() {
        return Err(RecordError::Finished { job: job.name, state: job.state }.into());
    }
    if job.stop.is_some() {
        let (field, expected) = ("job", "must not be asked to stop already");
        return Err(RecordError::Invalid { field, value: job.name, expected }.into());
    }
    if job.pause.as_ref() == point {
        return Ok(job);
    }
    tx.execute("UPDATE jobs SET pause = ?2 WHERE id = ?1", params![job.id, row::pause_text(point)])?;
    // Another queued job can have recorded steps that its checkpoint does not include. Only its worker can tell.
    let mut is_awaited = false;
    if let Some(PausePoint { at, metric: Some(metric) }) = point
        && let Some(at) = at.resolve(job.steps_target)
    {
        is_awaited = series::points(tx, &job.id, metric, at, 1)?.is_empty();
    }
    let has_reached = |point: &PausePoint| match job.is_paused {
        true => point.is_reached(job.step, job.steps_target) && !is_awaited,
        false => point.is_reached(0, job.steps_target) && point.metric.is_none(),
    };
    let is_paused = job.state == JobState::Queued && point.is_some_and(has_reached);
    match (job.is_paused, is_paused) {
        (false, true) => pause_queued(tx, &job.id, &paused_reason(&job), now_ms),
        (true, false) => {
            tx.execute(
                "UPDATE jobs SET paused = FALSE, reason_code = '', reason_sentence = '' WHERE id = ?1",
                params![job.id],
            )?;
            event::record(tx, &job.id, "RESUMED", &format!("at step {}", job.step), now_ms)?;
            get(tx, &job.id)
        }
        _ => get(tx, &job.id),
    }
}

fn paused_reason(job: &JobRecord) -> StateReason {
    StateReason::new(PAUSED, format!("paused at step {}; `saggar resume {}` continues it", job.step, job.name))
}

fn pause_queued(
    tx: &dyn SqlSession,
    id: &str,
    reason: &StateReason,
    now_ms: UnixMillis,
) -> TransactionResult<JobRecord> {
    tx.execute(
        "UPDATE jobs SET paused = TRUE, reason_code = ?2, reason_sentence = ?3 WHERE id = ?1",
        params![id, reason.code, reason.sentence],
    )?;
    event::record(tx, id, PAUSED, &reason.sentence, now_ms)?;
    get(tx, id)
}
