//! A version that serves, and the leases by which requests hold on to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use saggar_metrics::Metrics;
use saggar_store::digest::Digest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::cache::Cache;
use super::predictor::Predictor;
use super::queue::{Queue, Rules};
use super::statistics::Statistics;
use super::version_series::VersionSeries;

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
pub struct Origin {
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

impl Origin {
    /// Returns the measurements that matter most, for people: accuracies, then losses, then others, of each kind those on
    /// data that was held out first. Empty where there are none.
    pub fn measured(&self) -> String {
        let mut metrics: Vec<(&String, &f64)> = self.metrics.iter().collect();
        metrics.sort_by_key(|(name, _)| (!is_accuracy(name), !name.contains("loss"), !is_held_out(name)));
        let shown = metrics.into_iter().take(MEASUREMENTS_SHOWN);
        shown.map(|(name, value)| format!("{name} {}", significant(*value))).collect::<Vec<_>>().join(", ")
    }

    /// Whether this version reached less than `other` in an accuracy that both measured: on held-out data, if they did so.
    pub fn is_less_accurate_than(&self, other: &Origin) -> bool {
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
fn significant(value: f64) -> String {
    if value == 0.0 || (1e-3..1e6).contains(&value.abs()) { format!("{value:.4}") } else { format!("{value:.3e}") }
}

/// How a version serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How batches are formed.
    pub rules: Rules,
    /// Predictions that wait or are computed at once; further ones are refused.
    pub capacity: usize,
    /// The time that a prediction gets where its client names none.
    pub deadline: Duration,
    /// Bytes of answers that are kept for requests that come again; 0 keeps none.
    pub cache_bytes: usize,
}

/// A version that serves, or did until a moment ago.
#[derive(Debug)]
pub struct Serving {
    /// The model.
    pub model: String,
    /// The version.
    pub version: u64,
    /// Where it comes from.
    pub origin: Origin,
    /// The device it runs on.
    pub device: String,
    predictor: Arc<dyn Predictor>,
    terms: Terms,
    /// One permit for each prediction that is queued or computed.
    places: Arc<Semaphore>,
    queue: Queue,
    cache: Option<Cache>,
    series: VersionSeries,
    statistics: Arc<Statistics>,
    about: About,
    /// By the time of day, to be shown.
    used_ms: AtomicU64,
    made: Instant,
    /// Milliseconds after `made`.
    used_after_ms: AtomicU64,
}

/// The headers that say which version answered.
#[derive(Clone, Debug)]
pub(crate) struct About([(HeaderName, HeaderValue); 3]);

impl About {
    fn new(model: &str, version: u64, origin: &Origin, device: &str) -> About {
        // Names of models and devices are plain text; a device's that is not is left out.
        let value = |text: String| HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""));
        About([
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
pub struct Lease {
    // Dropped first: the permit that comes back last tells the drain that nobody else holds the version.
    serving: Arc<Serving>,
    _place: OwnedSemaphorePermit,
}

impl Serving {
    /// A version that is up. To be called within a runtime.
    pub fn new(
        model: &str,
        version: u64,
        origin: Origin,
        device: String,
        predictor: Arc<dyn Predictor>,
        terms: Terms,
        metrics: &Metrics,
    ) -> Serving {
        Serving {
            about: About::new(model, version, &origin, &device),
            model: model.to_owned(),
            version,
            origin,
            device,
            predictor,
            terms,
            places: Arc::new(Semaphore::new(terms.capacity)),
            queue: Queue::new(terms.rules),
            cache: (terms.cache_bytes > 0).then(|| Cache::new(terms.cache_bytes)),
            series: VersionSeries::new(metrics, model, version, terms.cache_bytes > 0),
            statistics: Arc::default(),
            used_ms: AtomicU64::new(0),
            made: Instant::now(),
            used_after_ms: AtomicU64::new(0),
        }
    }

    /// The same version with other terms: new requests are served by them.
    pub(super) fn on(&self, terms: Terms, metrics: &Metrics) -> Serving {
        let Serving { model, version, origin, device, predictor, .. } = self;
        let new = Serving::new(model, *version, origin.clone(), device.clone(), Arc::clone(predictor), terms, metrics);
        Serving { statistics: Arc::clone(&self.statistics), ..new }
    }

    /// The model itself.
    pub fn predictor(&self) -> &dyn Predictor {
        &*self.predictor
    }

    /// How it serves.
    pub fn terms(&self) -> Terms {
        self.terms
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(crate) fn series(&self) -> &VersionSeries {
        &self.series
    }

    /// What it did since it was brought up.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.cache.as_ref()
    }

    pub(crate) fn about(&self) -> &About {
        &self.about
    }

    /// When a prediction last began or ended, in milliseconds since 1970.
    pub fn used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }

    /// Since when nobody has asked for it: since it came up, where nobody ever has. Told by a clock that only goes forward,
    /// so that one that is set neither puts models to sleep nor keeps them awake.
    pub(crate) fn idle_since(&self) -> Instant {
        self.made + Duration::from_millis(self.used_after_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn used(&self, now_ms: u64) {
        self.used_ms.store(now_ms, Ordering::Relaxed);
        let after_ms = u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.used_after_ms.fetch_max(after_ms, Ordering::Relaxed);
    }

    /// Whether any prediction waits or is computed.
    pub(super) fn is_busy(&self) -> bool {
        self.places.available_permits() < self.terms.capacity
    }

    /// How many predictions a new one, which has its place already, would have to wait for in vain: they and itself take
    /// more than two thirds of its time, which leaves a third for what nobody foresees. To compute it would only make
    /// others late, too. None where it has time, or need not wait.
    pub(super) fn no_time_before(&self, until: Instant) -> Option<usize> {
        let before = self.terms.capacity.saturating_sub(self.places.available_permits() + 1);
        let time = self.queue.time_after(before)?;
        (time + time / 2 > until.saturating_duration_since(Instant::now())).then_some(before)
    }

    /// A place in the version's queue, if one is free.
    pub fn lease(self: &Arc<Serving>) -> Option<Lease> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        Some(Lease { serving: Arc::clone(self), _place: place })
    }

    /// Waits until every lease is back, and lets no new one out.
    pub(super) async fn drained(&self) {
        self.queue.drain();
        let all = u32::try_from(self.terms.capacity).unwrap_or(u32::MAX);
        if let Ok(places) = self.places.acquire_many(all).await {
            places.forget();
        }
    }
}

impl Lease {
    /// The version.
    pub fn serving(&self) -> &Arc<Serving> {
        &self.serving
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(metrics: &[(&str, f64)]) -> Origin {
        let metrics = metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let digest = Digest::of(b"");
        Origin { plugin: digest, weights: digest, created_ms: 0, source_job: String::new(), metrics }
    }

    #[test]
    fn accuracy_comes_first_and_is_compared() {
        let good = origin(&[("a", 1.0), ("b", 2.0), ("loss", 0.125), ("test_accuracy", 0.98), ("lr", 1e-7)]);
        assert_eq!(good.measured(), "test_accuracy 0.9800, loss 0.1250, a 1.0000");
        assert_eq!(origin(&[("lr", 1e-7)]).measured(), "lr 1.000e-7");
        let bad = origin(&[("test_accuracy", 0.09), ("loss", 2.3)]);
        assert!(bad.is_less_accurate_than(&good) && !good.is_less_accurate_than(&bad));
        let overfitted = origin(&[("accuracy", 1.0), ("test_accuracy", 0.5)]);
        let general = origin(&[("accuracy", 0.9), ("test_accuracy", 0.8)]);
        assert!(overfitted.is_less_accurate_than(&general) && !general.is_less_accurate_than(&overfitted));
        assert_eq!(general.measured(), "test_accuracy 0.8000, accuracy 0.9000");
        assert!(!origin(&[("accuracy", 0.0)]).is_less_accurate_than(&good), "other series are not compared");
        assert!(!origin(&[]).is_less_accurate_than(&good) && !bad.is_less_accurate_than(&bad));
    }
}
