//! The scheduler's loop: reads the queue, preempts jobs, and passes each job that may start to a supervisor. The
//! decisions are made in [`crate::placement`].

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use saggar_store::records::{ClaimedJob, JobRecords, PlacedClaim, PlacedJob, PlacementState, QueuedJob, StateReason};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::REDACTED_JOB_NAME;
use crate::attempt_control::AttemptControl;
use crate::engine_jobs;
use crate::error::JobError;
use crate::gauges;
use crate::lease_keeper;
use crate::placement::{self, PlacementDecision, PlacementInput};
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
    // Aborted when they are dropped, after the last attempt has ended.
    let mut leases = JoinSet::new();
    if shared.records.is_shared() {
        leases.spawn(lease_keeper::renew_leases(Arc::clone(&shared)));
        leases.spawn(lease_keeper::reap_jobs(Arc::clone(&shared)));
    }
    if !shared.scheduler_config().engine_pools.is_empty() {
        leases.spawn(engine_jobs::follow_engine_jobs(Arc::clone(&shared)));
    }
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
    let decisions = look.decisions();
    let starts_here = |decision: &PlacementDecision| match decision {
        PlacementDecision::Start { pool, .. } => !look.layout.engine_pools.contains(pool),
        PlacementDecision::Wait { .. } => false,
    };
    if decisions.iter().any(starts_here) {
        match claim_jobs(shared).await {
            Ok(claims) => claims.into_iter().for_each(|(claim, device)| {
                // The control channel exists before the attempt begins, because a shutdown can come in between.
                let (orders, receiver) =
                    watch::channel(AttemptControl { pause: claim.job.pause.clone(), ..AttemptControl::default() });
                shared.running_attempts().insert(claim.job.id.clone(), orders);
                shared.leases.add(claim.lease.clone());
                supervisors.spawn(run_attempt(Arc::clone(shared), claim, device, receiver));
            }),
            Err(error) => tracing::error!(%error, "jobs cannot be claimed; trying again"),
        }
    }
    for (job, verdict) in look.waiting.iter().zip(decisions) {
        match verdict {
            PlacementDecision::Start { .. } => {}
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

/// Places and claims the jobs that can start now, in one transaction, so that no other server starts one of them or exceeds
/// a limit. Returns each with its device.
async fn claim_jobs(shared: &Arc<SharedState>) -> Result<Vec<(ClaimedJob, String)>, JobError> {
    let (now_ms, server) = (shared.clock.now_ms(), shared.server().clone());
    // The supervisor of a job's previous attempt can have requeued it without having ended; it will wake the scheduler.
    let ending: HashSet<String> = shared.running_attempts().keys().cloned().collect();
    let config = shared.scheduler_config();
    let claim = move |records: &dyn JobRecords| {
        let place = |state: &PlacementState| -> Vec<PlacedJob> {
            let PlacementState { waiting, running, spent } = state;
            let input = PlacementInput { layout: &config, waiting, running, spent, now_ms, server: &server };
            let decisions = placement::place_jobs(&input);
            let start = |(job, decision): (&QueuedJob, PlacementDecision)| match decision {
                PlacementDecision::Start { pool, .. }
                    if !ending.contains(&job.id) && !config.engine_pools.contains(&pool) =>
                {
                    Some(PlacedJob { id: job.id.clone(), pool })
                }
                PlacementDecision::Start { .. } | PlacementDecision::Wait { .. } => None,
            };
            waiting.iter().zip(decisions).filter_map(start).collect()
        };
        records.claim_placed(&server, config.limits_usage(), &place, now_ms)
    };
    let config = shared.scheduler_config();
    let device = |PlacedClaim { claim, pool }: PlacedClaim| {
        let requested = &claim.job.demand.device;
        let device = config.pools.get(&pool).map_or_else(|| requested.clone(), |pool| pool.device_for(requested));
        (claim, device)
    };
    Ok(shared.with_records(claim).await?.into_iter().map(device).collect())
}

async fn run_attempt(
    shared: Arc<SharedState>,
    claim: ClaimedJob,
    device: String,
    orders: watch::Receiver<AttemptControl>,
) {
    let id = claim.job.id.clone();
    supervise_attempt(Arc::clone(&shared), claim, device, orders).await;
    shared.leases.remove(&id);
    shared.running_attempts().remove(&id);
    shared.wake_scheduler();
}

/// Forwards stop requests, orders and pauses to supervisors. Another process can give them through the records alone.
async fn forward_stop_requests(shared: &Arc<SharedState>) {
    let ids: Vec<String> = shared.running_attempts().keys().cloned().collect();
    for id in ids {
        let asked = id.clone();
        let job = shared.with_records(move |records| records.get(&asked)).await;
        let Ok(job) = job else { continue };
        shared.apply_orders(&id, &job.orders, job.stop.is_some());
        if let Some(orders) = shared.running_attempts().get(&id) {
            orders.send_if_modified(|orders| {
                let differs = orders.pause != job.pause;
                orders.pause = job.pause;
                differs
            });
        }
    }
}
