//! The queue's loop: takes jobs in order, as many at once as there are slots, and hands each to a supervisor.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use saggar_metrics::{Families, JobSeries, Metrics};
use saggar_store::clock::Clock;
use saggar_store::error::RecordError;
use saggar_store::records::{Claim, JobState, Reason, Records, Usage};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::error::JobError;
use crate::launcher::Launcher;
use crate::limits::SERIES_LINGER;
use crate::supervisor::{Orders, supervise};

/// How often the queue is looked at though nothing was heard: another process may have put something there.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What the scheduler, its supervisors and the server's requests share.
pub(crate) struct Shared {
    pub(crate) records: Arc<dyn Records>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) jobs_dir: PathBuf,
    series: Mutex<JobSeries>,
    running: Mutex<HashMap<String, watch::Sender<Orders>>>,
    wake: Notify,
    changed: watch::Sender<u64>,
}

impl Shared {
    pub(crate) fn new(
        records: Arc<dyn Records>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        launcher: Arc<dyn Launcher>,
        jobs_dir: PathBuf,
    ) -> Shared {
        let changed = watch::Sender::new(0);
        let (series, running, wake) = (Mutex::default(), Mutex::default(), Notify::new());
        Shared { records, clock, metrics, launcher, jobs_dir, series, running, wake, changed }
    }

    /// Tells followers that something about some job changed.
    pub(crate) fn touch(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// A receiver that hears of every [`Shared::touch`] from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Has the queue looked at now.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Uses the jobs' series.
    pub(crate) fn series(&self, use_them: impl FnOnce(&mut JobSeries, &Families)) {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        use_them(&mut series, &self.metrics.families);
    }

    /// Removes a finished job's series when people have had time to scrape them.
    pub(crate) fn forget_series_later(self: &Arc<Self>, name: String) {
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(SERIES_LINGER).await;
            shared.series(|series, families| series.forget(families, &name));
        });
    }

    /// Uses the records on a thread that may wait for the disk.
    pub(crate) async fn records<T: Send + 'static>(
        self: &Arc<Self>,
        use_them: impl FnOnce(&dyn Records) -> Result<T, RecordError> + Send + 'static,
    ) -> Result<T, JobError> {
        let records = Arc::clone(&self.records);
        let done = tokio::task::spawn_blocking(move || use_them(&*records)).await;
        done.map_err(|error| JobError::Io(std::io::Error::other(error)))?.map_err(JobError::from)
    }

    /// Changes what the supervisor of a running job was told. False where the job is not running here.
    pub(crate) fn order(&self, id: &str, change: impl FnOnce(&mut Orders)) -> bool {
        self.running().get(id).map(|orders| orders.send_modify(change)).is_some()
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<Orders>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts jobs back into the queue that a server left running when it was killed. Called once, before [`schedule`].
pub(crate) async fn recover(shared: &Arc<Shared>) -> Result<(), JobError> {
    let left = shared.records(|records| records.jobs_left_running()).await?;
    for job in left {
        tracing::info!(job = %job.name, "taking over from a server that is gone");
        let now_ms = shared.clock.now_ms();
        let reason = Reason::new("HOST_RESTART", "the server was restarted");
        let step = job.step;
        shared
            .records(move |records| {
                let lease = records.take_over(&job.id, now_ms)?;
                let attempts = records.attempts(&job.id)?;
                let usage = attempts
                    .last()
                    .map_or_else(|| Usage { last_step: step, ..Usage::default() }, |attempt| attempt.usage.clone());
                // A server killed between the two writes of an attempt's end left it closed already.
                match records.finish_attempt(&lease, JobState::Queued, &reason, &usage, now_ms) {
                    Ok(()) | Err(RecordError::Invalid { .. }) => {}
                    Err(error) => return Err(error),
                }
                records.requeue(&lease, &reason, now_ms, now_ms)
            })
            .await?;
    }
    Ok(())
}

/// Runs jobs until `shutdown` is true, at most `slots` at once; then has the running ones save their state and waits.
pub(crate) async fn schedule(shared: Arc<Shared>, slots: usize, mut shutdown: watch::Receiver<bool>) {
    let mut supervisors = JoinSet::new();
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    while !*shutdown.borrow() {
        while supervisors.len() < slots {
            let Some(claim) = claim(&shared).await else { break };
            supervisors.spawn(run_one(Arc::clone(&shared), claim));
        }
        pass_on_stops(&shared).await;
        tokio::select! {
            () = shared.wake.notified() => {}
            _ = look.tick() => {}
            Some(ended) = supervisors.join_next(), if !supervisors.is_empty() => report(ended),
            _ = shutdown.changed() => {}
        }
        count_states(&shared).await;
    }
    for orders in shared.running().values() {
        orders.send_modify(|orders| orders.stop = true);
    }
    while let Some(ended) = supervisors.join_next().await {
        report(ended);
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a supervisor panicked");
    }
}

async fn claim(shared: &Arc<Shared>) -> Option<Claim> {
    let now_ms = shared.clock.now_ms();
    match shared.records(move |records| records.claim_next(now_ms)).await {
        Ok(claim) => claim,
        Err(error) => {
            tracing::error!(%error, "the queue cannot be read; trying again");
            None
        }
    }
}

async fn run_one(shared: Arc<Shared>, claim: Claim) {
    let id = claim.job.id.clone();
    let (orders, receiver) = watch::channel(Orders::default());
    shared.running().insert(id.clone(), orders);
    supervise(Arc::clone(&shared), claim, receiver).await;
    shared.running().remove(&id);
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

/// Sets `saggar_jobs`. States that no job is in are 0, not absent.
pub(crate) async fn count_states(shared: &Arc<Shared>) {
    let Ok(counts) = shared.records(|records| records.count_by_state()).await else { return };
    let counts: HashMap<JobState, u64> = counts.into_iter().collect();
    for state in JobState::ALL {
        let count = counts.get(&state).copied().unwrap_or(0);
        let gauge = shared.metrics.families.jobs.with_label_values(&[state.name()]);
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
