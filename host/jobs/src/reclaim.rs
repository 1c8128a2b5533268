//! Takes jobs away from supervisors that can no longer continue them, and queues them again.

use std::sync::Arc;
use std::time::Duration;

use saggar_clock::UnixMillis;
use saggar_store::error::RecordError;
use saggar_store::records::{AttemptUsage, JobLease, JobRecord, JobRecords, JobState, StateReason};

use crate::error::JobError;
use crate::limits::BACKOFF_MAX;
use crate::shared::SharedState;
use crate::spec::{HOST_RESTART, JobSpec, RetryCause};

/// Delay before a job is retried whose supervisor failed, because the cause would stop the next attempt too.
const REQUEUE_DELAY: Duration = BACKOFF_MAX;

/// Time between two tries to requeue a job while the records cannot be written.
const RECORDS_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Requeues jobs that this server left running when it was killed. Called once, before the scheduler runs. Jobs of other
/// servers are theirs until their leases are over.
pub(crate) async fn recover_jobs(shared: &Arc<SharedState>) -> Result<(), JobError> {
    let left = shared.with_records(|records| records.jobs_left_active()).await?;
    let is_own = |job: &JobRecord| !shared.records.is_shared() || job.server_id == shared.server().id;
    for job in left.into_iter().filter(is_own) {
        tracing::info!(job = %job.name, "taking over from a server that is gone");
        let now_ms = shared.clock.now_ms();
        let reason = StateReason::new(HOST_RESTART, "the server was restarted");
        let take_over = move |records: &dyn JobRecords| {
            let lease = records.take_over(&job.id, now_ms)?;
            requeue_or_fail(records, &lease, &reason, now_ms, now_ms)
        };
        shared.with_records(take_over).await?;
    }
    Ok(())
}

/// Returns whether a job is to be queued again whose server has ended. One whose specification cannot be read is.
pub(crate) fn is_retried_after_host(job: &JobRecord) -> bool {
    serde_json::from_str::<JobSpec>(&job.spec).map_or(true, |spec| spec.retry_on.contains(&RetryCause::HostRestart))
}

/// Ends the attempt of a lease, and queues the job again from `not_before_ms` on if it may be retried.
fn requeue_or_fail(
    records: &dyn JobRecords,
    lease: &JobLease,
    reason: &StateReason,
    not_before_ms: UnixMillis,
    now_ms: UnixMillis,
) -> Result<(), RecordError> {
    let job = records.get(&lease.job)?;
    // Requeuing a job with a stop request cancels it.
    let queued = is_retried_after_host(&job) || job.stop.is_some();
    let attempts = records.attempts(&job.id)?;
    let nothing = || AttemptUsage { last_step: job.step, ..AttemptUsage::default() };
    let usage = attempts.last().map_or_else(nothing, |attempt| attempt.usage.clone());
    let state = if queued { JobState::Queued } else { JobState::Failed };
    // A server killed between the two writes of an attempt's end has already closed the attempt, which is not an error.
    records.finish_attempt(lease, state, reason, &usage, now_ms)?;
    if queued {
        records.requeue(lease, reason, not_before_ms, now_ms).map(drop)
    } else {
        records.finish_job(lease, state, reason, now_ms).map(drop)
    }
}

/// Queues a job again whose supervisor failed, for example because the disk is full, as soon as the records can be
/// written. Until then no other supervisor may have the job. During a shutdown the job is left to the next server,
/// which finds it running. If the attempt no longer owns the job, nothing is to be done.
pub(crate) async fn requeue_after_supervisor_failure(shared: &Arc<SharedState>, lease: JobLease, error: &JobError) {
    let reason = StateReason::new(HOST_RESTART, format!("the server could not continue it: {error}"));
    while !shared.is_closing() {
        let now_ms = shared.clock.now_ms();
        let (held, reason) = (lease.clone(), reason.clone());
        let rest_ms = u64::try_from(REQUEUE_DELAY.as_millis()).unwrap_or(u64::MAX);
        let give_back = move |records: &dyn JobRecords| {
            requeue_or_fail(records, &held, &reason, now_ms.saturating_add(rest_ms), now_ms)
        };
        match shared.with_records(give_back).await {
            Ok(()) => return,
            Err(JobError::NotFound { .. }) => return,
            // Its own end was recorded although the answer was lost, or another server took the job away.
            Err(JobError::Records(RecordError::Fenced { .. }) | JobError::State { .. }) => return,
            Err(error) => tracing::error!(job = lease.job, %error, "a job cannot be requeued; trying again"),
        }
        tokio::time::sleep(RECORDS_RETRY_INTERVAL).await;
    }
}
