//! The queue's loop: looks at what waits and what runs, has jobs make room for others, and hands each job whose turn it is
//! to a supervisor. Whose turn it is, is decided in [`crate::placement`].

use std::sync::Arc;
use std::time::Duration;

use saggar_store::records::{Claim, Job, JobState, Reason, Records, Running, Spent, Usage, Waiting};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::OF_ANOTHER_PROJECT;
use crate::error::JobError;
use crate::gauges;
use crate::layout::Layout;
use crate::limits::BACKOFF_MAX;
use crate::placement::{self, Verdict};
use crate::schedules;
use crate::shared::Shared;
use crate::spec::{Cause, HOST_RESTART, JobSpec, OVER_BUDGET, PREEMPTED};
use crate::supervisor::{Orders, supervise};

/// How often the queue is looked at though nothing was heard: another process may have put something there.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a job rests whose supervisor could not go on: what stopped that one would stop another a moment later.
const REST: Duration = BACKOFF_MAX;

/// What waits and what runs, as one look finds it.
pub(crate) struct Look {
    pub(crate) layout: Arc<Layout>,
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) running: Vec<Running>,
    spent: Vec<Spent>,
    now_ms: u64,
}

impl Look {
    pub(crate) async fn take(shared: &Arc<Shared>) -> Result<Look, JobError> {
        let now_ms = shared.clock.now_ms();
        let limits = Arc::clone(shared);
        let read = move |records: &dyn Records| {
            let layout = limits.layout_now();
            let metered = layout.projects.values().chain(layout.owners.values()).any(|of| of.gpu_seconds.is_some());
            let waiting = records.queued()?;
            let spent = if metered { records.spent()? } else { Vec::new() };
            Ok((layout, waiting, records.running()?, spent))
        };
        let (layout, waiting, running, spent) = shared.records(read).await?;
        Ok(Look { layout, waiting, running, spent, now_ms })
    }

    fn situation(&self) -> placement::Situation<'_> {
        placement::Situation {
            layout: &self.layout,
            waiting: &self.waiting,
            running: &self.running,
            spent: &self.spent,
            now_ms: self.now_ms,
        }
    }

    /// What becomes of each waiting job, in order.
    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        placement::place(&self.situation())
    }
}

/// Puts jobs back into the queue that a server left running when it was killed. Called once, before [`schedule`].
pub(crate) async fn recover(shared: &Arc<Shared>) -> Result<(), JobError> {
    let left = shared.records(|records| records.jobs_left_running()).await?;
    for job in left {
        tracing::info!(job = %job.name, "taking over from a server that is gone");
        take_back(shared, job, Reason::new(HOST_RESTART, "the server was restarted"), Duration::ZERO).await?;
    }
    Ok(())
}

/// Takes a job from whoever worked on it, and queues it again, where it may be tried again, for after a rest.
async fn take_back(shared: &Arc<Shared>, job: Job, reason: Reason, rest: Duration) -> Result<(), JobError> {
    let now_ms = shared.clock.now_ms();
    let not_before_ms = now_ms.saturating_add(u64::try_from(rest.as_millis()).unwrap_or(u64::MAX));
    let retried =
        serde_json::from_str::<JobSpec>(&job.spec).map_or(true, |spec| spec.retry_on.contains(&Cause::HostRestart));
    // Requeuing a job that was told to stop cancels it.
    let queued = retried || job.stop.is_some();
    let give_back = move |records: &dyn Records| {
        let lease = records.take_over(&job.id, now_ms)?;
        let attempts = records.attempts(&job.id)?;
        let nothing = || Usage { last_step: job.step, ..Usage::default() };
        let usage = attempts.last().map_or_else(nothing, |attempt| attempt.usage.clone());
        let state = if queued { JobState::Queued } else { JobState::Failed };
        // A server killed between the two writes of an attempt's end left it closed already, which is no error.
        records.finish_attempt(&lease, state, &reason, &usage, now_ms)?;
        if queued {
            records.requeue(&lease, &reason, not_before_ms, now_ms).map(drop)
        } else {
            records.finish_job(&lease, state, &reason, now_ms).map(drop)
        }
    };
    shared.records(give_back).await
}

/// Queues a job again whose supervisor could not go on, such as for want of disk space, as soon as the records can be
/// written: until then nobody else must have it. At a shutdown it is left to the next server, which finds it running.
pub(crate) async fn give_back(shared: &Arc<Shared>, id: &str, error: &JobError) {
    let reason = Reason::new(HOST_RESTART, format!("the server could not go on with it: {error}"));
    while !shared.is_closing() {
        let asked = id.to_owned();
        let taken = match shared.records(move |records| records.get(&asked)).await {
            Ok(job) if !job.state.is_active() => return,
            Ok(job) => take_back(shared, job, reason.clone(), REST).await,
            Err(error) => Err(error),
        };
        match taken {
            Ok(()) => return,
            Err(JobError::NotFound { .. }) => return,
            Err(error) => tracing::error!(job = id, %error, "a job cannot be given back; trying again"),
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Runs jobs until `shutdown` is true; then has the running ones save their state and waits.
pub(crate) async fn schedule(shared: Arc<Shared>, mut shutdown: watch::Receiver<bool>) {
    let mut supervisors = JoinSet::new();
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    while !*shutdown.borrow() {
        schedules::tick(&shared).await;
        match Look::take(&shared).await {
            Ok(look) => {
                gauges::count(&shared.metrics.families, &look);
                act(&shared, &look, &mut supervisors).await;
            }
            Err(error) => tracing::error!(%error, "the queue cannot be read; trying again"),
        }
        pass_on_stops(&shared).await;
        gauges::count_states(&shared).await;
        tokio::select! {
            () = shared.wake.notified() => {}
            _ = look.tick() => {}
            Some(ended) = supervisors.join_next(), if !supervisors.is_empty() => report(ended),
            _ = shutdown.changed() => {}
        }
    }
    shared.close();
    for orders in shared.running().values() {
        orders.send_modify(|orders| orders.stop = true);
    }
    while let Some(ended) = supervisors.join_next().await {
        report(ended);
    }
}

/// Does what a look decided.
async fn act(shared: &Arc<Shared>, look: &Look, supervisors: &mut JoinSet<()>) {
    for id in placement::over_budget(&look.situation()) {
        requeue(shared, &id, Reason::new(OVER_BUDGET, "its GPU seconds are used up; its state is saved"));
    }
    for (job, verdict) in look.waiting.iter().zip(look.verdicts()) {
        match verdict {
            Verdict::Start { pool, device } => {
                // The supervisor of the attempt before has queued it again and is not gone yet; it wakes this loop.
                if shared.running().contains_key(&job.id) {
                    continue;
                }
                let Some(claim) = claim(shared, &job.id, pool).await else { continue };
                // Within reach of orders before it begins: a shutdown may come in between.
                let (orders, receiver) = watch::channel(Orders::default());
                shared.running().insert(job.id.clone(), orders);
                supervisors.spawn(run_one(Arc::clone(shared), claim, device, receiver));
            }
            Verdict::Wait { evict, .. } => {
                for id in evict {
                    // This goes into the record and the log of the job that gives way, whose readers may see no other
                    // project; the server's log has the name.
                    let is_kin = look.running.iter().any(|other| other.id == id && other.project == job.project);
                    let name = if is_kin { &job.name } else { OF_ANOTHER_PROJECT };
                    tracing::info!(job = id, waiting = job.name, "makes room for another");
                    requeue(shared, &id, Reason::new(PREEMPTED, format!("made room for {name}")));
                }
            }
        }
    }
}

/// Tells a running job's supervisor to have its state saved and the job queued again. False where it is not running here.
pub(crate) fn requeue(shared: &Shared, id: &str, reason: Reason) -> bool {
    shared.order(id, |orders| {
        orders.requeue.get_or_insert(reason);
    })
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a supervisor panicked");
    }
}

async fn claim(shared: &Arc<Shared>, id: &str, pool: String) -> Option<Claim> {
    let (id, now_ms) = (id.to_owned(), shared.clock.now_ms());
    match shared.records(move |records| records.claim(&id, &pool, now_ms)).await {
        Ok(claim) => claim,
        Err(error) => {
            tracing::error!(%error, "a job cannot be claimed; trying again");
            None
        }
    }
}

async fn run_one(shared: Arc<Shared>, claim: Claim, device: String, orders: watch::Receiver<Orders>) {
    let id = claim.job.id.clone();
    supervise(Arc::clone(&shared), claim, device, orders).await;
    shared.running().remove(&id);
    shared.wake();
}

/// Stops may be asked for through the records alone, by another process: the queue's look passes them on.
async fn pass_on_stops(shared: &Arc<Shared>) {
    let ids: Vec<String> = shared.running().keys().cloned().collect();
    for id in ids {
        let asked = id.clone();
        let job = shared.records(move |records| records.get(&asked)).await;
        if job.is_ok_and(|job| job.stop.is_some()) {
            shared.order(&id, |orders| orders.stop = true);
        }
    }
}
