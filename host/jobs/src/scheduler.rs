//! The scheduler's loop: reads the queue, preempts jobs, and passes each job that may start to a supervisor. The
//! decisions are made in [`crate::placement`].

use std::sync::Arc;
use std::time::Duration;

use saggar_store::records::{
    ActiveJob, AttemptUsage, ClaimedJob, JobRecord, JobRecords, JobState, QueuedJob, StateReason, UsageTotal,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::REDACTED_JOB_NAME;
use crate::error::JobError;
use crate::gauges;
use crate::limits::BACKOFF_MAX;
use crate::placement::{self, PlacementDecision};
use crate::scheduler_config::SchedulerConfig;
use crate::schedules;
use crate::shared::SharedState;
use crate::spec::{HOST_RESTART, JobSpec, OVER_BUDGET, PREEMPTED, RetryCause};
use crate::supervisor::{AttemptControl, supervise_attempt};

/// How often the queue is read without a notification, because another process may have changed it.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Delay before a job is retried whose supervisor failed, because the cause would stop the next attempt too.
const REQUEUE_DELAY: Duration = BACKOFF_MAX;

/// A snapshot of the waiting and running jobs.
pub(crate) struct QueueSnapshot {
    pub(crate) layout: Arc<SchedulerConfig>,
    pub(crate) waiting: Vec<QueuedJob>,
    pub(crate) running: Vec<ActiveJob>,
    spent: Vec<UsageTotal>,
    now_ms: u64,
}

impl QueueSnapshot {
    pub(crate) async fn take(shared: &Arc<SharedState>) -> Result<QueueSnapshot, JobError> {
        let now_ms = shared.clock.now_ms();
        let limits = Arc::clone(shared);
        let read = move |records: &dyn JobRecords| {
            let layout = limits.reload_scheduler_config();
            let metered = layout.projects.values().chain(layout.owners.values()).any(|of| of.gpu_seconds.is_some());
            let waiting = records.queued_jobs()?;
            let spent = if metered { records.usage_totals()? } else { Vec::new() };
            Ok((layout, waiting, records.active_jobs()?, spent))
        };
        let (layout, waiting, running, spent) = shared.with_records(read).await?;
        Ok(QueueSnapshot { layout, waiting, running, spent, now_ms })
    }

    fn placement_input(&self) -> placement::PlacementInput<'_> {
        placement::PlacementInput {
            layout: &self.layout,
            waiting: &self.waiting,
            running: &self.running,
            spent: &self.spent,
            now_ms: self.now_ms,
        }
    }

    /// Returns the decision for each waiting job, in scheduling order.
    pub(crate) fn decisions(&self) -> Vec<PlacementDecision> {
        placement::place_jobs(&self.placement_input())
    }
}

/// Requeues jobs that a killed server left running. Called once, before [`run_scheduler`].
pub(crate) async fn recover(shared: &Arc<SharedState>) -> Result<(), JobError> {
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
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Runs jobs until `shutdown` is true; then asks the running ones to save their state and waits for them.
pub(crate) async fn run_scheduler(shared: Arc<SharedState>, mut shutdown: watch::Receiver<bool>) {
    let mut supervisors = JoinSet::new();
    let mut look = tokio::time::interval(POLL_INTERVAL);
    while !*shutdown.borrow() {
        schedules::submit_due_jobs(&shared).await;
        match QueueSnapshot::take(&shared).await {
            Ok(look) => {
                gauges::set_queue_gauges(&shared.metrics.families, &look);
                apply_decisions(&shared, &look, &mut supervisors).await;
            }
            Err(error) => tracing::error!(%error, "the queue cannot be read; trying again"),
        }
        forward_stop_requests(&shared).await;
        gauges::set_state_gauges(&shared).await;
        tokio::select! {
            () = shared.wake.notified() => {}
            _ = look.tick() => {}
            Some(ended) = supervisors.join_next(), if !supervisors.is_empty() => log_panic(ended),
            _ = shutdown.changed() => {}
        }
    }
    shared.close();
    for orders in shared.running_attempts().values() {
        orders.send_modify(|orders| orders.stop = true);
    }
    while let Some(ended) = supervisors.join_next().await {
        log_panic(ended);
    }
}

/// Applies the decisions about a snapshot.
async fn apply_decisions(shared: &Arc<SharedState>, look: &QueueSnapshot, supervisors: &mut JoinSet<()>) {
    for id in placement::jobs_over_budget(&look.placement_input()) {
        request_requeue(shared, &id, StateReason::new(OVER_BUDGET, "its GPU seconds are used up; saving its state"));
    }
    for (job, verdict) in look.waiting.iter().zip(look.decisions()) {
        match verdict {
            PlacementDecision::Start { pool, device } => {
                // The previous attempt's supervisor has requeued the job but has not ended yet; it will wake this loop.
                if shared.running_attempts().contains_key(&job.id) {
                    continue;
                }
                let Some(claim) = claim_job(shared, &job.id, pool).await else { continue };
                // The control channel exists before the attempt begins, because a shutdown can come in between.
                let (orders, receiver) = watch::channel(AttemptControl::default());
                shared.running_attempts().insert(job.id.clone(), orders);
                supervisors.spawn(run_attempt(Arc::clone(shared), claim, device, receiver));
            }
            PlacementDecision::Wait { evict, .. } => {
                for id in evict {
                    // This text is in the record and the log of the preempted job, whose readers may not see other
                    // projects; the server's log has the name.
                    let is_kin = look.running.iter().any(|other| other.id == id && other.project == job.project);
                    let name = if is_kin { &job.name } else { REDACTED_JOB_NAME };
                    tracing::info!(job = id, waiting = job.name, "preempted for another job");
                    request_requeue(shared, &id, StateReason::new(PREEMPTED, format!("made room for {name}")));
                }
            }
        }
    }
}

/// Asks a running job's supervisor to save the job's state and queue it again. Returns `false` if the job does not run
/// here.
pub(crate) fn request_requeue(shared: &SharedState, id: &str, reason: StateReason) -> bool {
    shared.update_control(id, |orders| {
        orders.requeue.get_or_insert(reason);
    })
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a supervisor panicked");
    }
}

async fn claim_job(shared: &Arc<SharedState>, id: &str, pool: String) -> Option<ClaimedJob> {
    let (id, now_ms) = (id.to_owned(), shared.clock.now_ms());
    match shared.with_records(move |records| records.claim(&id, &pool, now_ms)).await {
        Ok(claim) => claim,
        Err(error) => {
            tracing::error!(%error, "a job cannot be claimed; trying again");
            None
        }
    }
}

async fn run_attempt(
    shared: Arc<SharedState>,
    claim: ClaimedJob,
    device: String,
    orders: watch::Receiver<AttemptControl>,
) {
    let id = claim.job.id.clone();
    supervise_attempt(Arc::clone(&shared), claim, device, orders).await;
    shared.running_attempts().remove(&id);
    shared.wake_scheduler();
}

/// Forwards stop requests to supervisors. Another process can request a stop through the records alone.
async fn forward_stop_requests(shared: &Arc<SharedState>) {
    let ids: Vec<String> = shared.running_attempts().keys().cloned().collect();
    for id in ids {
        let asked = id.clone();
        let job = shared.with_records(move |records| records.get(&asked)).await;
        if job.is_ok_and(|job| job.stop.is_some()) {
            shared.update_control(&id, |orders| orders.stop = true);
        }
    }
}
