//! Makes the jobs of engines follow the queue: one for each waiting job that placement gives to a pool of an engine, and none
//! for a job that no longer waits there.
//!
//! Each server does this by itself. They agree, because placement and the names of engine jobs are the same on all of them:
//! one server's submission is the others' "exists already". What a server remembers only spares requests; after a restart it
//! finds the engine jobs by their names. An engine job that is left over ends by itself, because its worker finds no job.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::JobService;
use crate::engine::{EngineError, EngineJobState, EngineRequest, WorkerEngine};
use crate::error::JobError;
use crate::placement::PlacementDecision;
use crate::queue_snapshot::QueueSnapshot;
use crate::shared::SharedState;

#[cfg(test)]
mod tests;

/// Time between two looks at the queue.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(2);
/// Time between two questions about the state of an engine job.
const STATE_INTERVAL: Duration = Duration::from_secs(10);
/// Time after which a failed request is repeated, and after which an engine job is submitted again whose worker ended
/// without claiming its attempt.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

impl JobService {
    /// Lets an engine start the workers of a pool, which the scheduler's configuration names as an engine's.
    #[must_use]
    pub fn with_engine(self, pool: &str, engine: Arc<dyn WorkerEngine>) -> JobService {
        self.shared.engines.add(pool, engine);
        self
    }
}

/// A waiting job whose worker an engine is to start.
struct WantedJob {
    /// The job's identifier.
    id: String,
    engine: Arc<dyn WorkerEngine>,
    request: EngineRequest,
}

/// An engine job that this server has seen submitted.
struct TrackedJob {
    engine: Arc<dyn WorkerEngine>,
    request: EngineRequest,
    /// Whether the engine has it, as far as is known.
    is_submitted: bool,
    /// The time of the next request about it while the job waits.
    next: Instant,
    /// The time of the next removal, if one failed.
    next_removal: Option<Instant>,
    reason: String,
}

/// Follows the queue until the task is aborted.
pub(crate) async fn follow_engine_jobs(shared: Arc<SharedState>) {
    let mut tracked = TrackedJobs::default();
    loop {
        match wanted_jobs(&shared).await {
            Ok((wanted, running)) => {
                // Requests block.
                let followed = tokio::task::spawn_blocking(move || {
                    tracked.follow(&wanted, &running, Instant::now());
                    tracked
                });
                let Ok(followed) = followed.await else { return };
                tracked = followed;
                shared.engines.set_reasons(tracked.reasons());
            }
            Err(error) => tracing::warn!(%error, "the jobs of engines cannot be looked for; trying again"),
        }
        tokio::time::sleep(FOLLOW_INTERVAL).await;
    }
}

/// Returns the jobs whose workers engines are to start, and the identifiers of the running jobs.
async fn wanted_jobs(shared: &Arc<SharedState>) -> Result<(Vec<WantedJob>, HashSet<String>), JobError> {
    // An engine gets as many jobs as its pool has slots for, which are not claimed until it starts their workers.
    let look = QueueSnapshot::read_whole(shared).await?;
    let engines = shared.engines.engines();
    let running = look.state.running.iter().map(|job| job.id.clone()).collect();
    let decisions = look.decisions();
    let wanted = look.state.waiting.into_iter().zip(decisions).filter_map(|(job, decision)| {
        let PlacementDecision::Start { pool, .. } = decision else { return None };
        let engine = Arc::clone(engines.get(&pool)?);
        let request =
            EngineRequest { job: job.name, attempt: job.attempts + 1, project: job.project, hosts: job.demand.hosts };
        Some(WantedJob { id: job.id, engine, request })
    });
    Ok((wanted.collect(), running))
}

/// The engine jobs by the identifiers of their jobs.
#[derive(Default)]
struct TrackedJobs {
    jobs: HashMap<String, TrackedJob>,
}

impl TrackedJobs {
    /// Submits the engine jobs that are wanted and missing, and removes those that are no longer wanted. `running` has the
    /// jobs whose attempt runs: their engine jobs belong to their workers.
    fn follow(&mut self, wanted: &[WantedJob], running: &HashSet<String>, now: Instant) {
        let ids: HashSet<&str> = wanted.iter().map(|job| job.id.as_str()).collect();
        self.jobs.retain(|id, job| {
            ids.contains(id.as_str()) || !(running.contains(id) || !job.is_submitted || job.remove(now))
        });
        for WantedJob { id, engine, request } in wanted {
            let job = self.jobs.entry(id.clone()).or_insert_with(|| TrackedJob::new(engine, request, now));
            if job.request != *request {
                // Another attempt; the engine job of the one before has ended or is ending.
                *job = TrackedJob::new(engine, request, now);
            }
            if now >= job.next {
                job.advance(now);
            }
        }
    }

    /// Returns what the engines say, by job.
    fn reasons(&self) -> HashMap<String, String> {
        self.jobs.iter().map(|(id, job)| (id.clone(), job.reason.clone())).collect()
    }
}

impl TrackedJob {
    fn new(engine: &Arc<dyn WorkerEngine>, request: &EngineRequest, now: Instant) -> TrackedJob {
        let (engine, request) = (Arc::clone(engine), request.clone());
        TrackedJob { engine, request, is_submitted: false, next: now, next_removal: None, reason: String::new() }
    }

    /// Submits the engine job, or asks for its state.
    fn advance(&mut self, now: Instant) {
        let (engine, name) = (self.engine.engine_name(), self.request.engine_job());
        let done = if self.is_submitted { self.check(now) } else { self.submit(now) };
        self.reason = match done {
            Ok(state) => format!("{engine} starts its worker: {name} {state}"),
            Err(error) => {
                self.next = now + RETRY_INTERVAL;
                tracing::warn!(job = self.request.job, %error, "an engine does not start a worker; trying again");
                format!("{name}: {error}; trying again")
            }
        };
    }

    fn submit(&mut self, now: Instant) -> Result<String, EngineError> {
        self.engine.submit(&self.request)?;
        (self.is_submitted, self.next) = (true, now + STATE_INTERVAL);
        Ok("is submitted".to_owned())
    }

    fn check(&mut self, now: Instant) -> Result<String, EngineError> {
        let name = self.request.engine_job();
        self.next = now + STATE_INTERVAL;
        match self.engine.state(&name)? {
            EngineJobState::Absent => self.submit(now).map(|_| "was removed, and is submitted again".to_owned()),
            EngineJobState::Waiting(reason) => Ok(format!("waits{}", after_colon(&reason))),
            EngineJobState::Running => Ok("runs".to_owned()),
            EngineJobState::Ended(reason) => {
                // The job still waits, so the worker has not claimed it.
                self.engine.cancel(&name)?;
                (self.is_submitted, self.next) = (false, now + RETRY_INTERVAL);
                Ok(format!("ended without running the job{}; it is submitted again", after_colon(&reason)))
            }
        }
    }

    /// Removes the engine job. Returns whether it is gone.
    fn remove(&mut self, now: Instant) -> bool {
        if self.next_removal.is_some_and(|next| now < next) {
            return false;
        }
        match self.engine.cancel(&self.request.engine_job()) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(job = self.request.job, %error, "an engine job cannot be removed; trying again");
                self.next_removal = Some(now + RETRY_INTERVAL);
                false
            }
        }
    }
}

fn after_colon(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}
