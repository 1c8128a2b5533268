//! Why queued jobs wait, for listings.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saggar_store::records::StateReason;

use crate::REDACTED_JOB_NAME;
use crate::error::JobError;
use crate::placement::PlacementDecision;
use crate::queue_snapshot::QueueSnapshot;
use crate::refresh_pace::RefreshPace;
use crate::shared::SharedState;

/// A queue that is read faster than this is read for every listing.
const SHORT_QUEUE_TIME: Duration = Duration::from_millis(25);

/// How long an outdated listing is used while the next one is read.
const OUTDATED_TIME_MAX: Duration = Duration::from_secs(5);

/// Why a queued job waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueWait {
    /// The position in its queue, from 1.
    pub position: u64,
    /// The reason of the wait.
    pub reason: StateReason,
}

/// Why each queued job waits, by identifier.
pub type QueueWaits = Arc<HashMap<String, QueueWait>>;

/// Lists why queued jobs wait. The newest listing of a long queue is used by those that follow soon, so that many of them do
/// not read the whole queue each.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueWaitLister {
    newest: Arc<Mutex<NewestListing>>,
}

#[derive(Debug, Default)]
struct NewestListing {
    /// The listing, if the queue is long.
    listing: Option<QueueListing>,
    pace: RefreshPace,
    is_refreshing: bool,
}

/// The queue, and why its jobs wait for callers who see all projects.
#[derive(Clone, Debug)]
struct QueueListing {
    snapshot: Arc<QueueSnapshot>,
    waits: QueueWaits,
}

impl QueueWaitLister {
    /// Returns why each queued job waits. Reasons name only jobs of projects for which `sees` returns `true`.
    ///
    /// # Errors
    /// `Records`.
    pub(crate) async fn list(
        &self,
        shared: &Arc<SharedState>,
        sees: impl Fn(&str) -> bool,
    ) -> Result<QueueWaits, JobError> {
        let QueueListing { snapshot, waits } = match self.recent_listing(shared) {
            Some(listing) => listing,
            None => self.read(shared).await?,
        };
        if snapshot.state.running.iter().all(|job| sees(&job.project)) {
            return Ok(waits);
        }
        let mut visible = QueueSnapshot::clone(&snapshot);
        // Decisions use identifiers; names are only shown.
        for job in visible.state.running.iter_mut().filter(|job| !sees(&job.project)) {
            job.name = REDACTED_JOB_NAME.to_owned();
        }
        decide(shared, visible).await.map(|(waits, _)| waits)
    }

    /// Returns the newest listing if the queue is long and it is not too old, and begins to read the next one if it is
    /// due.
    fn recent_listing(&self, shared: &Arc<SharedState>) -> Option<QueueListing> {
        let mut newest = self.newest.lock();
        if !newest.pace.is_due() {
            return newest.listing.clone();
        }
        let listing = newest.listing.clone()?;
        if newest.pace.age().is_none_or(|age| age > newest.pace.pause() + OUTDATED_TIME_MAX) {
            return None;
        }
        if !std::mem::replace(&mut newest.is_refreshing, true) {
            let (lister, shared) = (self.clone(), Arc::clone(shared));
            tokio::spawn(async move {
                if let Err(error) = lister.read(&shared).await {
                    tracing::warn!(%error, "the queue cannot be listed; trying again");
                }
                lister.newest.lock().is_refreshing = false;
            });
        }
        Some(listing)
    }

    async fn read(&self, shared: &Arc<SharedState>) -> Result<QueueListing, JobError> {
        let mut pace = RefreshPace::default();
        let read = async {
            let (waits, snapshot) = decide(shared, QueueSnapshot::read_whole(shared).await?).await?;
            Ok::<_, JobError>(QueueListing { snapshot: Arc::new(snapshot), waits })
        };
        let listing = pace.measure(read).await?;
        let mut newest = self.newest.lock();
        newest.pace = pace;
        newest.listing = (pace.cost() >= SHORT_QUEUE_TIME).then(|| listing.clone());
        Ok(listing)
    }
}

/// Decides about every job, on a thread that may take its time: a hundred thousand jobs can be queued.
async fn decide(shared: &Arc<SharedState>, snapshot: QueueSnapshot) -> Result<(QueueWaits, QueueSnapshot), JobError> {
    let shared = Arc::clone(shared);
    let decide = move || {
        let waits = snapshot.state.waiting.iter().zip(snapshot.decisions()).map(|(job, verdict)| match verdict {
            PlacementDecision::Wait { position, reason, .. } => (job.id.clone(), QueueWait { position, reason }),
            PlacementDecision::Start { .. } => {
                // It is about to start, here or by an engine.
                let reason = shared.engines.reason(&job.id).unwrap_or_else(|| job.reason.clone());
                (job.id.clone(), QueueWait { position: 1, reason })
            }
        });
        (Arc::new(waits.collect()), snapshot)
    };
    tokio::task::spawn_blocking(decide).await.map_err(|error| JobError::Io(std::io::Error::other(error)))
}
