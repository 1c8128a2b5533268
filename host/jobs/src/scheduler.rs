//! The scheduler's loop: reads the queue, preempts jobs, and passes each job that may start to a supervisor. The
//! decisions are made in [`crate::placement`].

use std::sync::Arc;
use std::time::Duration;

use saggar_store::records::{ClaimedJob, StateReason};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::REDACTED_JOB_NAME;
use crate::attempt_control::AttemptControl;
use crate::gauges;
use crate::placement::{self, PlacementDecision};
use crate::queue_snapshot::QueueSnapshot;
use crate::schedules;
use crate::shared::SharedState;
use crate::spec::{OVER_BUDGET, PREEMPTED};
use crate::supervisor::supervise_attempt;

/// How often the queue is read without a notification, because another process may have changed it.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

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
        shared.request_requeue(&id, StateReason::new(OVER_BUDGET, "its GPU seconds are used up; saving its state"));
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
                let (orders, receiver) =
                    watch::channel(AttemptControl { pause: claim.job.pause.clone(), ..AttemptControl::default() });
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
                    shared.request_requeue(&id, StateReason::new(PREEMPTED, format!("made room for {name}")));
                }
            }
        }
    }
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

/// Forwards stop requests and pauses to supervisors. Another process can request them through the records alone.
async fn forward_stop_requests(shared: &Arc<SharedState>) {
    let ids: Vec<String> = shared.running_attempts().keys().cloned().collect();
    for id in ids {
        let asked = id.clone();
        let job = shared.with_records(move |records| records.get(&asked)).await;
        let Ok(job) = job else { continue };
        if job.stop.is_some() {
            shared.update_control(&id, |orders| orders.stop = true);
        }
        if let Some(orders) = shared.running_attempts().get(&id) {
            orders.send_if_modified(|orders| {
                let differs = orders.pause != job.pause;
                orders.pause = job.pause;
                differs
            });
        }
    }
}
