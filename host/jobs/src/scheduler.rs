//! The scheduler's loop: reads the queue, preempts jobs, and passes each job that may start to a supervisor. The
//! decisions are made in [`crate::placement`].

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use saggar_store::records::{
    ActiveJob, ClaimedJob, HostKind, JobPlacements, JobRecords, PlacedClaim, PlacedJob, PlacedPreemption,
    PlacementState, QueueSelection, QueuedJob, StateReason,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::REDACTED_JOB_NAME;
use crate::attempt_control::AttemptControl;
use crate::engine_jobs;
use crate::error::JobError;
use crate::gauges;
use crate::host_keeper;
use crate::lease_keeper;
use crate::placement::{self, PlacementDecision, PlacementInput};
use crate::queue_snapshot::{QueueSnapshot, placement_query};
use crate::rank_keeper;
use crate::refresh_pace::RefreshPace;
use crate::schedules;
use crate::shared::SharedState;
use crate::spec::{OVER_BUDGET, PREEMPTED};
use crate::supervisor::supervise_attempt;

/// How often the queue is read without a notification, because another process may have changed it.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Runs jobs until `shutdown` is true; then asks the running ones to save their state and waits for them.
pub(crate) async fn run_scheduler(shared: Arc<SharedState>, mut shutdown: watch::Receiver<bool>) {
    let mut supervisors = JoinSet::new();
    // Aborted when they are dropped, after the last attempt has ended.
    let mut leases = JoinSet::new();
    if shared.records.is_shared() {
        leases.spawn(lease_keeper::renew_leases(Arc::clone(&shared)));
        leases.spawn(lease_keeper::reap_jobs(Arc::clone(&shared)));
        leases.spawn(host_keeper::keep_registered(Arc::clone(&shared)));
        leases.spawn(rank_keeper::keep_ranks(Arc::clone(&shared)));
    }
    if !shared.scheduler_config().engine_pools.is_empty() {
        leases.spawn(engine_jobs::follow_engine_jobs(Arc::clone(&shared)));
    }
    let mut look = tokio::time::interval(POLL_INTERVAL);
    let mut gauges_pace = RefreshPace::default();
    while !*shutdown.borrow() {
        if shared.host_offer().kind == HostKind::Server {
            schedules::submit_due_jobs(&shared).await;
        }
        if let Err(error) = place_waiting_jobs(&shared, &mut supervisors).await {
            tracing::error!(%error, "jobs cannot be placed; trying again");
        }
        forward_stop_requests(&shared).await;
        if gauges_pace.is_due() {
            gauges_pace.measure(gauges::set_queue_gauges(&shared)).await;
        }
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
    if shared.records.is_shared() {
        rank_keeper::leave_for_shutdown(&shared).await;
    }
    while let Some(ended) = supervisors.join_next().await {
        log_panic(ended);
    }
    if shared.records.is_shared() {
        drop(leases);
        host_keeper::unregister(&shared).await;
    }
}

/// Looks at the queue, and starts the attempts of jobs that can start.
async fn place_waiting_jobs(shared: &Arc<SharedState>, supervisors: &mut JoinSet<()>) -> Result<(), JobError> {
    let running = QueueSnapshot::read(shared, QueueSelection::None).await?;
    gauges::set_pool_gauges(&shared.metrics.families, &running);
    for id in placement::jobs_over_budget(&running.placement_input()) {
        shared.request_requeue(&id, StateReason::new(OVER_BUDGET, "its GPU seconds are used up; saving its state"));
    }
    // A host is full most of the time, and does not read the queue then.
    if !placement::has_room(&running.placement_input()) {
        return Ok(());
    }
    for selection in [QueueSelection::First, QueueSelection::Groups] {
        let look = QueueSnapshot::read(shared, selection.clone()).await?;
        let is_partial = !look.state.unread_after.is_empty();
        if look.decides_a_change() {
            let claims = claim_jobs(shared, selection).await?;
            if !claims.is_empty() && is_partial {
                // The jobs that were not read could start too.
                shared.wake_scheduler();
            }
            for (claim, device) in claims {
                supervisors.spawn(start_attempt(shared, claim, device));
            }
            return Ok(());
        }
        if !is_partial {
            return Ok(());
        }
    }
    Ok(())
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a supervisor panicked");
    }
}

/// Places and claims the jobs that can start now, and orders preemptions, in one transaction: no other server starts one of
/// them, exceeds a limit, or preempts jobs for the same waiting one. The orders reach the attempts through their records.
/// Returns each started job with its device.
async fn claim_jobs(
    shared: &Arc<SharedState>,
    selection: QueueSelection,
) -> Result<Vec<(ClaimedJob, String)>, JobError> {
    // The supervisor of a job's previous attempt can have requeued it without having ended; it will wake the scheduler.
    let ending: HashSet<String> = shared.running_attempts().keys().cloned().collect();
    claim_among(shared, selection, None, move |job| !ending.contains(&job.id)).await
}

/// Places the waiting jobs of a selection, and claims those of them that `can_start` accepts.
/// `batch_job` is the name of the batch job whose first process this is, if it is one.
pub(crate) async fn claim_among(
    shared: &Arc<SharedState>,
    selection: QueueSelection,
    batch_job: Option<String>,
    can_start: impl Fn(&QueuedJob) -> bool + Send + 'static,
) -> Result<Vec<(ClaimedJob, String)>, JobError> {
    let (now_ms, server, host) = (shared.clock.now_ms(), shared.server().clone(), shared.host_offer());
    let config = shared.scheduler_config();
    let claim = move |records: &dyn JobRecords| {
        let place = |state: &PlacementState| -> JobPlacements {
            let (server, host) = (&server, &*host);
            let batch_job = batch_job.as_deref();
            let input = PlacementInput { layout: &config, state, now_ms, server, host, hosts: &[], batch_job };
            let mut placements = JobPlacements::default();
            for (job, decision) in state.waiting.iter().zip(placement::place_jobs(&input)) {
                match decision {
                    PlacementDecision::Start { pool, hosts, .. }
                        if can_start(job) && !config.engine_pools.contains(&pool) =>
                    {
                        placements.start.push(PlacedJob { id: job.id.clone(), pool, hosts });
                    }
                    PlacementDecision::Start { .. } => {}
                    PlacementDecision::Wait { evict, .. } => {
                        placements.preempt.extend(evict.into_iter().map(|id| preemption(id, job, &state.running)));
                    }
                }
            }
            placements
        };
        records.claim_placed(&placement_query(&config, &selection, &server, now_ms), &place)
    };
    let config = shared.scheduler_config();
    let device = |PlacedClaim { claim, pool }: PlacedClaim| {
        let requested = &claim.job.demand.device;
        let device = config.pools.get(&pool).map_or_else(|| requested.clone(), |pool| pool.device_for(requested));
        (claim, device)
    };
    Ok(shared.with_records(claim).await?.into_iter().map(device).collect())
}

/// Returns the preemption of a running job for a waiting one. The reason is in the record and the log of the preempted job,
/// whose readers may not see other projects.
fn preemption(id: String, waiting: &QueuedJob, running: &[ActiveJob]) -> PlacedPreemption {
    let is_kin = running.iter().any(|other| other.id == id && other.project == waiting.project);
    let name = if is_kin { &waiting.name } else { REDACTED_JOB_NAME };
    let reason = StateReason::new(PREEMPTED, format!("made room for {name}"));
    PlacedPreemption { id, waiting: waiting.id.clone(), reason }
}

/// Returns the future of a claimed attempt, to be spawned.
pub(crate) fn start_attempt(
    shared: &Arc<SharedState>,
    claim: ClaimedJob,
    device: String,
) -> impl Future<Output = ()> + Send + use<> {
    // The control channel exists before the attempt begins, because a shutdown can come in between.
    let control = AttemptControl { pause: claim.job.pause.clone(), ..AttemptControl::default() };
    let (orders, receiver) = watch::channel(control);
    shared.running_attempts().insert(claim.job.id.clone(), orders);
    shared.leases.add(claim.lease.clone());
    run_attempt(Arc::clone(shared), claim, device, receiver)
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
pub(crate) async fn forward_stop_requests(shared: &Arc<SharedState>) {
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
