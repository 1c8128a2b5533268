//! A version that serves, and the leases by which requests hold on to it.

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

/// Measurements of a version that people are shown.
const MEASUREMENTS_SHOWN: usize = 3;

/// Where a version stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionState {
    /// It is being brought up.
    Loading,
    /// It serves.
    Ready,
    /// Another one serves; requests that came before finish here.
    Draining,
    /// Its files are there, and nothing else.
    Unloaded,
    /// It could not be brought up, and is not tried again until its files change.
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

    /// The name users see.
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

/// What a manifest says about where a version comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionOrigin {
    /// Digest of the plugin.
    pub plugin: Digest,
    /// Digest of the weights.
    pub weights: Digest,
    /// When it was published.
    pub created_ms: u64,
    /// The job that published it, or empty.
    pub source_job: String,
    /// What the job had measured when it published: the latest value of each of its series.
    pub metrics: BTreeMap<String, f64>,
}

impl VersionOrigin {
    /// Returns the measurements that matter most, for people: accuracies, then losses, then others, of each kind those on
    /// data that was held out first. Empty where there are none.
    pub fn summarize_metrics(&self) -> String {
        let mut metrics: Vec<(&String, &f64)> = self.metrics.iter().collect();
        metrics.sort_by_key(|(name, _)| (!is_accuracy(name), !name.contains("loss"), !is_held_out(name)));
        let shown = metrics.into_iter().take(MEASUREMENTS_SHOWN);
        shown.map(|(name, value)| format!("{name} {}", format_significant(*value))).collect::<Vec<_>>().join(", ")
    }

    /// Whether this version reached less than `other` in an accuracy that both measured: on held-out data, if they did so.
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

/// A number with four digits after the point, or with an exponent where that would show too few of its digits.
fn format_significant(value: f64) -> String {
    if value == 0.0 || (1e-3..1e6).contains(&value.abs()) { format!("{value:.4}") } else { format!("{value:.3e}") }
}

/// How a version serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServingPolicy {
    /// How batches are formed.
    pub batch: BatchPolicy,
    /// Predictions that wait or are computed at once; further ones are refused.
    pub capacity: usize,
    /// The time that a prediction gets where its client names none.
    pub deadline: Duration,
    /// Bytes of answers that are kept for requests that come again; 0 keeps none.
    pub cache_bytes: usize,
}

/// A version that serves, or did until a moment ago.
#[derive(Debug)]
pub struct LiveVersion {
    /// The model.
    pub model: String,
    /// The version.
    pub version: u64,
    /// Where it comes from.
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
    /// By the time of day, to be shown.
    last_used_ms: AtomicU64,
    created: Instant,
    /// Milliseconds after `created`.
    last_used_after_ms: AtomicU64,
}

/// The headers that say which version answered.
#[derive(Clone, Debug)]
pub(crate) struct VersionHeaders([(HeaderName, HeaderValue); 3]);

impl VersionHeaders {
    fn new(model: &str, version: u64, origin: &VersionOrigin, device: &str) -> VersionHeaders {
        // Names of models and devices are plain text; a device's that is not is left out.
        let value = |text: String| HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""));
        VersionHeaders([
            (HeaderName::from_static("x-saggar-model"), value(format!("{model}@{version}"))),
            (HeaderName::from_static("x-saggar-digest"), value(format!("sha256:{}", origin.weights))),
            (HeaderName::from_static("x-saggar-device"), value(device.to_owned())),
        ])
    }

    /// Adds them to an answer's.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.0 {
            headers.insert(name, value.clone());
        }
    }
}

/// The right to use a version until this is dropped. The version is not freed before.
#[derive(Debug)]
pub struct VersionLease {
    // Dropped first: the permit that comes back last tells the drain that nobody else holds the version.
    serving: Arc<LiveVersion>,
    _place: OwnedSemaphorePermit,
}

impl LiveVersion {
    /// A version that is up. To be called within a runtime.
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

    /// The same version with other terms: new requests are served by them.
    pub(super) fn with_policy(&self, terms: ServingPolicy, metrics: &MetricsRegistry) -> LiveVersion {
        let LiveVersion { model, version, origin, device, predictor, .. } = self;
        let new =
            LiveVersion::new(model, *version, origin.clone(), device.clone(), Arc::clone(predictor), terms, metrics);
        LiveVersion { statistics: Arc::clone(&self.statistics), ..new }
    }

    /// The model itself.
    pub fn predictor(&self) -> &dyn ModelPredictor {
        &*self.predictor
    }

    /// How it serves.
    pub fn policy(&self) -> ServingPolicy {
        self.policy
    }

    pub(crate) fn queue(&self) -> &BatchQueue {
        &self.queue
    }

    pub(crate) fn metrics(&self) -> &VersionMetrics {
        &self.metrics
    }

    /// What it did since it was brought up.
    pub fn statistics(&self) -> &VersionStatistics {
        &self.statistics
    }

    pub(crate) fn cache(&self) -> Option<&ResponseCache> {
        self.cache.as_ref()
    }

    pub(crate) fn headers(&self) -> &VersionHeaders {
        &self.headers
    }

    /// When a prediction last began or ended, in milliseconds since 1970.
    pub fn last_used_ms(&self) -> u64 {
        self.last_used_ms.load(Ordering::Relaxed)
    }

    /// Since when nobody has asked for it: since it came up, where nobody ever has. Told by a clock that only goes forward,
    /// so that one that is set neither puts models to sleep nor keeps them awake.
    pub(crate) fn idle_since(&self) -> Instant {
        self.created + Duration::from_millis(self.last_used_after_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn mark_used(&self, now_ms: u64) {
        self.last_used_ms.store(now_ms, Ordering::Relaxed);
        let after_ms = u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_used_after_ms.fetch_max(after_ms, Ordering::Relaxed);
    }

    /// Whether any prediction waits or is computed.
    pub(super) fn is_busy(&self) -> bool {
        self.queue_permits.available_permits() < self.policy.capacity
    }

    /// How many predictions a new one, which has its place already, would have to wait for in vain: they and itself take
    /// more than two thirds of its time, which leaves a third for what nobody foresees. To compute it would only make
    /// others late, too. None where it has time, or need not wait.
    pub(super) fn queue_length_if_late(&self, until: Instant) -> Option<usize> {
        let before = self.policy.capacity.saturating_sub(self.queue_permits.available_permits() + 1);
        let time = self.queue.estimate_completion(before)?;
        (time + time / 2 > until.saturating_duration_since(Instant::now())).then_some(before)
    }

    /// A place in the version's queue, if one is free.
    pub fn try_lease(self: &Arc<LiveVersion>) -> Option<VersionLease> {
        let place = Arc::clone(&self.queue_permits).try_acquire_owned().ok()?;
        Some(VersionLease { serving: Arc::clone(self), _place: place })
    }

    /// Waits until every lease is back, and lets no new one out.
    pub(super) async fn drain(&self) {
        self.queue.drain();
        let all = u32::try_from(self.policy.capacity).unwrap_or(u32::MAX);
        if let Ok(places) = self.queue_permits.acquire_many(all).await {
            places.forget();
        }
    }
}

impl VersionLease {
    /// The version.
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
