//! Loaded versions that serve, and the leases that requests hold on them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use saggar_metrics::MetricsRegistry;
use saggar_store::digest::Digest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::batch_queue::{BatchPolicy, BatchQueue};
use super::predictor::ModelPredictor;
use super::response_cache::ResponseCache;
use super::statistics::VersionStatistics;
use super::version_metrics::VersionMetrics;

/// Number of measurements in a summary.
const MEASUREMENTS_SHOWN: usize = 3;

/// The state of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionState {
    /// It is being loaded.
    Loading,
    /// It serves.
    Ready,
    /// Another version has replaced it. Earlier requests finish here.
    Draining,
    /// Its files exist and it is not loaded.
    Unloaded,
    /// It could not be loaded, and is not retried until its files change.
    Failed,
}

impl VersionState {
    /// Every state.
    pub const ALL: [VersionState; 5] = [
        VersionState::Loading,
        VersionState::Ready,
        VersionState::Draining,
        VersionState::Unloaded,
        VersionState::Failed,
    ];

    /// Returns the state's public name.
    pub const fn name(self) -> &'static str {
        match self {
            VersionState::Loading => "LOADING",
            VersionState::Ready => "READY",
            VersionState::Draining => "DRAINING",
            VersionState::Unloaded => "UNLOADED",
            VersionState::Failed => "FAILED",
        }
    }
}

/// The origin of a version as recorded in its manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionOrigin {
    /// Digest of the plugin.
    pub plugin: Digest,
    /// Digest of the weights.
    pub weights: Digest,
    /// Time of publication in milliseconds since 1970.
    pub created_ms: u64,
    /// The job that published it, or empty.
    pub source_job: String,
    /// The latest value of each of the job's metric series at publication.
    pub metrics: BTreeMap<String, f64>,
}

impl VersionOrigin {
    /// Returns the most important measurements as text for people: accuracies, then losses, then others, in each group
    /// those on held-out data first. Returns an empty string if there are no measurements.
    pub fn summarize_metrics(&self) -> String {
        let mut metrics: Vec<(&String, &f64)> = self.metrics.iter().collect();
        metrics.sort_by_key(|(name, _)| (!is_accuracy(name), !name.contains("loss"), !is_held_out(name)));
        let shown = metrics.into_iter().take(MEASUREMENTS_SHOWN);
        shown.map(|(name, value)| format!("{name} {}", format_significant(*value))).collect::<Vec<_>>().join(", ")
    }

    /// Returns whether this version has a lower accuracy than `other` in a series that both have, preferably one on
    /// held-out data.
    pub fn is_less_accurate_than(&self, other: &VersionOrigin) -> bool {
        let both = self.metrics.iter().filter_map(|(name, value)| Some((name, value, other.metrics.get(name)?)));
        let accuracy = both.filter(|(name, ..)| is_accuracy(name)).min_by_key(|(name, ..)| !is_held_out(name));
        accuracy.is_some_and(|(_, value, other)| value < other)
    }
}

fn is_accuracy(series: &str) -> bool {
    series.contains("acc")
}

fn is_held_out(series: &str) -> bool {
    ["val", "test", "eval"].iter().any(|prefix| series.starts_with(prefix))
}

/// Formats a number with four decimals, or with an exponent if that would show too few significant digits.
fn format_significant(value: f64) -> String {
    if value == 0.0 || (1e-3..1e6).contains(&value.abs()) { format!("{value:.4}") } else { format!("{value:.3e}") }
}

/// The serving policy of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServingPolicy {
    /// How batches are formed.
    pub batch: BatchPolicy,
    /// Predictions that can be queued or computed at the same time. Further ones are refused.
    pub capacity: usize,
    /// The deadline of a prediction if its client sets none.
    pub deadline: Duration,
    /// Bytes of the response cache. 0 disables it.
    pub cache_bytes: usize,
}

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
    queue: BatchQueue,
    cache: Option<ResponseCache>,
    metrics: VersionMetrics,
    statistics: Arc<VersionStatistics>,
    headers: VersionHeaders,
    /// Wall-clock time in milliseconds since 1970, for display.
    last_used_ms: AtomicU64,
    created: Instant,
    /// Monotonic time in milliseconds after `created`.
    last_used_after_ms: AtomicU64,
}

/// The response headers that name the version.
#[derive(Clone, Debug)]
pub(crate) struct VersionHeaders([(HeaderName, HeaderValue); 3]);

impl VersionHeaders {
    fn new(model: &str, version: u64, origin: &VersionOrigin, device: &str) -> VersionHeaders {
        // Names of models and devices are plain text. A device name that is not is omitted.
        let value = |text: String| HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""));
        VersionHeaders([
            (HeaderName::from_static("x-saggar-model"), value(format!("{model}@{version}"))),
            (HeaderName::from_static("x-saggar-digest"), value(format!("sha256:{}", origin.weights))),
            (HeaderName::from_static("x-saggar-device"), value(device.to_owned())),
        ])
    }

    /// Adds the headers to a response's headers.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.0 {
            headers.insert(name, value.clone());
        }
    }
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
        LiveVersion {
            headers: VersionHeaders::new(model, version, &origin, &device),
            model: model.to_owned(),
            version,
            origin,
            device,
            predictor,
            policy: terms,
            queue_permits: Arc::new(Semaphore::new(terms.capacity)),
            queue: BatchQueue::new(terms.batch),
            cache: (terms.cache_bytes > 0).then(|| ResponseCache::new(terms.cache_bytes)),
            metrics: VersionMetrics::new(metrics, model, version, terms.cache_bytes > 0),
            statistics: Arc::default(),
            last_used_ms: AtomicU64::new(0),
            created: Instant::now(),
            last_used_after_ms: AtomicU64::new(0),
        }
    }

    /// Returns the same version with another policy, which applies to new requests.
    pub(super) fn with_policy(&self, terms: ServingPolicy, metrics: &MetricsRegistry) -> LiveVersion {
        let LiveVersion { model, version, origin, device, predictor, .. } = self;
        let new =
            LiveVersion::new(model, *version, origin.clone(), device.clone(), Arc::clone(predictor), terms, metrics);
        LiveVersion { statistics: Arc::clone(&self.statistics), ..new }
    }

    /// Returns the model.
    pub fn predictor(&self) -> &dyn ModelPredictor {
        &*self.predictor
    }

    /// Returns the serving policy.
    pub fn policy(&self) -> ServingPolicy {
        self.policy
    }

    pub(crate) fn queue(&self) -> &BatchQueue {
        &self.queue
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

    pub(crate) fn headers(&self) -> &VersionHeaders {
        &self.headers
    }

    /// Returns when a prediction last started or ended, in milliseconds since 1970.
    pub fn last_used_ms(&self) -> u64 {
        self.last_used_ms.load(Ordering::Relaxed)
    }

    /// Returns the time since which the version is idle: its last use, or its load if it was never used. Uses a
    /// monotonic clock, so that setting the system time neither unloads models nor keeps them loaded.
    pub(crate) fn idle_since(&self) -> Instant {
        self.created + Duration::from_millis(self.last_used_after_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn mark_used(&self, now_ms: u64) {
        self.last_used_ms.store(now_ms, Ordering::Relaxed);
        let after_ms = u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_used_after_ms.fetch_max(after_ms, Ordering::Relaxed);
    }

    /// Returns whether any prediction is queued or computed.
    pub(super) fn is_busy(&self) -> bool {
        self.queue_permits.available_permits() < self.policy.capacity
    }

    /// Returns the number of queued predictions ahead of one that already holds a permit if it would miss its deadline,
    /// that is, if they and itself take more than two thirds of its time. The last third is a reserve for unforeseen
    /// delays. Computing it would only delay others. Returns `None` if it has time or need not wait.
    pub(super) fn queue_length_if_late(&self, until: Instant) -> Option<usize> {
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
    pub(super) async fn drain(&self) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn origin_with_metrics(metrics: &[(&str, f64)]) -> VersionOrigin {
        let metrics = metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let digest = Digest::of(b"");
        VersionOrigin { plugin: digest, weights: digest, created_ms: 0, source_job: String::new(), metrics }
    }

    #[test]
    fn metric_summary_puts_accuracy_first_and_accuracies_are_compared() {
        let good =
            origin_with_metrics(&[("a", 1.0), ("b", 2.0), ("loss", 0.125), ("test_accuracy", 0.98), ("lr", 1e-7)]);
        assert_eq!(good.summarize_metrics(), "test_accuracy 0.9800, loss 0.1250, a 1.0000");
        assert_eq!(origin_with_metrics(&[("lr", 1e-7)]).summarize_metrics(), "lr 1.000e-7");
        let bad = origin_with_metrics(&[("test_accuracy", 0.09), ("loss", 2.3)]);
        assert!(bad.is_less_accurate_than(&good) && !good.is_less_accurate_than(&bad));
        let overfitted = origin_with_metrics(&[("accuracy", 1.0), ("test_accuracy", 0.5)]);
        let general = origin_with_metrics(&[("accuracy", 0.9), ("test_accuracy", 0.8)]);
        assert!(overfitted.is_less_accurate_than(&general) && !general.is_less_accurate_than(&overfitted));
        assert_eq!(general.summarize_metrics(), "test_accuracy 0.8000, accuracy 0.9000");
        assert!(
            !origin_with_metrics(&[("accuracy", 0.0)]).is_less_accurate_than(&good),
            "other series are not compared"
        );
        assert!(!origin_with_metrics(&[]).is_less_accurate_than(&good) && !bad.is_less_accurate_than(&bad));
    }
}
