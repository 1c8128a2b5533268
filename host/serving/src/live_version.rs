//! Loaded versions that serve, and the leases that requests hold on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use saggar_metrics::MetricsRegistry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::batching::batch_executor::BatchExecutor;
use crate::batching::batch_queue::BatchQueue;
use crate::metrics::statistics::VersionStatistics;
use crate::metrics::version_metrics::VersionMetrics;
use crate::prediction::response_cache::ResponseCache;
use crate::predictor::ModelPredictor;
use crate::serving_policy::ServingPolicy;
use crate::version_origin::VersionOrigin;

/// A version that serves, or is draining.
#[derive(Debug)]
pub struct LiveVersion {
    /// The model.
    pub model: String,
    /// The version.
    pub version: u64,
    /// The version's origin.
    pub origin: VersionOrigin,
    /// The device it runs on.
    pub device: String,
    predictor: Arc<dyn ModelPredictor>,
    policy: ServingPolicy,
    /// One permit for each prediction that is queued or computed.
    queue_permits: Arc<Semaphore>,
    queue: Arc<BatchQueue>,
    /// One permit for each handler that can run at the same time: all slots but one, so that predictions can run
    /// beside them.
    handler_places: Arc<Semaphore>,
    cache: Option<ResponseCache>,
    metrics: Arc<VersionMetrics>,
    statistics: Arc<VersionStatistics>,
    /// Wall-clock time in milliseconds since 1970, for display.
    last_used_ms: AtomicU64,
    created: Instant,
    /// Monotonic time in milliseconds after `created`.
    last_used_after_ms: AtomicU64,
}

/// The right to use a version until this is dropped. The version is not freed before.
#[derive(Debug)]
pub struct VersionLease {
    // Dropped first: when the last permit is returned, the drain can rely on the version having no other owner.
    serving: Arc<LiveVersion>,
    _place: OwnedSemaphorePermit,
}

impl LiveVersion {
    /// Creates a serving version. Call it within a runtime.
    pub fn new(
        model: &str,
        version: u64,
        origin: VersionOrigin,
        device: String,
        predictor: Arc<dyn ModelPredictor>,
        terms: ServingPolicy,
        metrics: &MetricsRegistry,
    ) -> LiveVersion {
        LiveVersion::with_statistics((model, version), origin, device, predictor, terms, metrics, Arc::default())
    }

    fn with_statistics(
        (model, version): (&str, u64),
        origin: VersionOrigin,
        device: String,
        predictor: Arc<dyn ModelPredictor>,
        terms: ServingPolicy,
        metrics: &MetricsRegistry,
        statistics: Arc<VersionStatistics>,
    ) -> LiveVersion {
        let metrics = Arc::new(VersionMetrics::new(
            metrics,
            model,
            version,
            terms.cache_bytes > 0,
            !predictor.signature().handlers.is_empty(),
        ));
        let executor = BatchExecutor::new(model, Arc::clone(&predictor), Arc::clone(&metrics), Arc::clone(&statistics));
        LiveVersion {
            model: model.to_owned(),
            version,
            origin,
            device,
            predictor,
            policy: terms,
            queue_permits: Arc::new(Semaphore::new(terms.capacity)),
            queue: Arc::new(BatchQueue::new(terms.batch, executor)),
            handler_places: Arc::new(Semaphore::new(terms.batch.slots.saturating_sub(1).max(1))),
            cache: (terms.cache_bytes > 0).then(|| ResponseCache::new(terms.cache_bytes)),
            metrics,
            statistics,
            last_used_ms: AtomicU64::new(0),
            created: Instant::now(),
            last_used_after_ms: AtomicU64::new(0),
        }
    }

    /// Returns the same version with another policy, which applies to new requests.
    pub(crate) fn with_policy(&self, terms: ServingPolicy, metrics: &MetricsRegistry) -> LiveVersion {
        let LiveVersion { model, version, origin, device, predictor, .. } = self;
        let (predictor, statistics) = (Arc::clone(predictor), Arc::clone(&self.statistics));
        let named = (model.as_str(), *version);
        LiveVersion::with_statistics(named, origin.clone(), device.clone(), predictor, terms, metrics, statistics)
    }

    /// Returns the model.
    pub fn predictor(&self) -> &dyn ModelPredictor {
        &*self.predictor
    }

    /// Returns the serving policy.
    pub fn policy(&self) -> ServingPolicy {
        self.policy
    }

    pub(crate) fn queue(&self) -> &Arc<BatchQueue> {
        &self.queue
    }

    pub(crate) fn handler_places(&self) -> &Arc<Semaphore> {
        &self.handler_places
    }

    pub(crate) fn metrics(&self) -> &VersionMetrics {
        &self.metrics
    }

    /// Returns the statistics since the version was loaded.
    pub fn statistics(&self) -> &VersionStatistics {
        &self.statistics
    }

    pub(crate) fn cache(&self) -> Option<&ResponseCache> {
        self.cache.as_ref()
    }

    /// Returns when a prediction last started or ended, in milliseconds since 1970.
    pub fn last_used_ms(&self) -> u64 {
        self.last_used_ms.load(Ordering::Relaxed)
    }

    /// Returns the time since which the version is idle: its last use, or its load if it was never used. Uses a
    /// monotonic clock, so that setting the system time neither unloads models nor keeps them loaded.
    pub fn idle_since(&self) -> Instant {
        self.created + Duration::from_millis(self.last_used_after_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn mark_used(&self, now_ms: u64) {
        self.last_used_ms.store(now_ms, Ordering::Relaxed);
        let after_ms = u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_used_after_ms.fetch_max(after_ms, Ordering::Relaxed);
    }

    /// Returns whether any prediction is queued or computed.
    pub(crate) fn is_busy(&self) -> bool {
        self.queue_permits.available_permits() < self.policy.capacity
    }

    /// Returns the number of queued predictions ahead of one that already holds a permit if it would miss its deadline,
    /// that is, if they and itself take more than two thirds of its time. The last third is a reserve for unforeseen
    /// delays. Computing it would only delay others. Returns `None` if it has time or need not wait.
    pub(crate) fn queue_length_if_late(&self, until: Instant) -> Option<usize> {
        let before = self.policy.capacity.saturating_sub(self.queue_permits.available_permits() + 1);
        let time = self.queue.estimate_completion(before)?;
        (time + time / 2 > until.saturating_duration_since(Instant::now())).then_some(before)
    }

    /// Returns a lease if the version's queue has a free permit.
    pub fn try_lease(self: &Arc<LiveVersion>) -> Option<VersionLease> {
        let place = Arc::clone(&self.queue_permits).try_acquire_owned().ok()?;
        Some(VersionLease { serving: Arc::clone(self), _place: place })
    }

    /// Waits until all leases are dropped, and grants no new ones.
    pub(crate) async fn drain(&self) {
        self.queue.drain();
        let all = u32::try_from(self.policy.capacity).unwrap_or(u32::MAX);
        if let Ok(places) = self.queue_permits.acquire_many(all).await {
            places.forget();
        }
    }
}

impl VersionLease {
    /// Returns the version.
    pub fn live_version(&self) -> &Arc<LiveVersion> {
        &self.serving
    }
}
