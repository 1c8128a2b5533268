//! Takes jobs away from supervisors that can no longer continue them, and queues them again.

use std::sync::Arc;
use std::time::Duration;

use saggar_store::records::{AttemptUsage, JobRecord, JobRecords, JobState, StateReason};

use crate::error::JobError;
use crate::limits::BACKOFF_MAX;
use crate::shared::SharedState;
use crate::spec::{HOST_RESTART, JobSpec, RetryCause};

/// Delay before a job is retried whose supervisor failed, because the cause would stop the next attempt too.
const REQUEUE_DELAY: Duration = BACKOFF_MAX;

/// Time between two tries to requeue a job while the records cannot be written.
const RECORDS_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Requeues jobs that a killed server left running. Called once, before the scheduler runs.
pub(crate) async fn recover_jobs(shared: &Arc<SharedState>) -> Result<(), JobError> {
    let left = shared.with_records(|records| records.jobs_left_active()).await?;
    for job in left {
        tracing::info!(job = %job.name, "taking over from a server that is gone");
        reclaim_job(shared, job, StateReason::new(HOST_RESTART, "the server was restarted"), Duration::ZERO).await?;
    }
    Ok(())
}

/// Revokes a job's lease, and queues the job again after `rest` if it may be retried.
async fn reclaim_job(
    shared: &Arc<SharedState>,
    job: JobRecord,
    reason: StateReason,
    rest: Duration,
) -> Result<(), JobError> {
    let now_ms = shared.clock.now_ms();
    let not_before_ms = now_ms.saturating_add(u64::try_from(rest.as_millis()).unwrap_or(u64::MAX));
    let retried = serde_json::from_str::<JobSpec>(&job.spec)
        .map_or(true, |spec| spec.retry_on.contains(&RetryCause::HostRestart));
    // Requeuing a job with a stop request cancels it.
    let queued = retried || job.stop.is_some();
    let give_back = move |records: &dyn JobRecords| {
        let lease = records.take_over(&job.id, now_ms)?;
        let attempts = records.attempts(&job.id)?;
        let nothing = || AttemptUsage { last_step: job.step, ..AttemptUsage::default() };
        let usage = attempts.last().map_or_else(nothing, |attempt| attempt.usage.clone());
        let state = if queued { JobState::Queued } else { JobState::Failed };
        // A server killed between the two writes of an attempt's end has already closed the attempt, which is not an
        // error.
        records.finish_attempt(&lease, state, &reason, &usage, now_ms)?;
        if queued {
            records.requeue(&lease, &reason, not_before_ms, now_ms).map(drop)
        } else {
            records.finish_job(&lease, state, &reason, now_ms).map(drop)
        }
    };
    shared.with_records(give_back).await
}

/// Queues a job again whose supervisor failed, for example because the disk is full, as soon as the records can be
/// written. Until then no other supervisor may have the job. During a shutdown the job is left to the next server,
/// which finds it running.
pub(crate) async fn requeue_after_supervisor_failure(shared: &Arc<SharedState>, id: &str, error: &JobError) {
    let reason = StateReason::new(HOST_RESTART, format!("the server could not continue it: {error}"));
    while !shared.is_closing() {
        let asked = id.to_owned();
        let requeued = match shared.with_records(move |records| records.get(&asked)).await {
            Ok(job) if !job.state.is_active() => return,
            Ok(job) => reclaim_job(shared, job, reason.clone(), REQUEUE_DELAY).await,
            Err(error) => Err(error),
        };
        match requeued {
            Ok(()) => return,
            Err(JobError::NotFound { .. }) => return,
            Err(error) => tracing::error!(job = id, %error, "a job cannot be requeued; trying again"),
        }
        tokio::time::sleep(RECORDS_RETRY_INTERVAL).await;
    }
}
