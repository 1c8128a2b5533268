//! The metric handles of one version, looked up once, because each prediction updates a dozen series.

use std::sync::Arc;
use std::time::Duration;

use saggar_metrics::{Histogram, IntCounter, IntCounterVec, IntGauge, MetricsRegistry, ModelTraffic};

use super::prediction_outcome::{PHASES, PredictionOutcome, PredictionPhase};

/// The reason for which a batch was dispatched, as a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DispatchTrigger {
    /// The batch was full.
    Full,
    /// The batch window of one of its requests had ended.
    Deadline,
    /// The model was idle.
    Idle,
    /// The version is being replaced.
    Draining,
}

impl DispatchTrigger {
    pub(crate) const ALL: [DispatchTrigger; 4] =
        [DispatchTrigger::Full, DispatchTrigger::Deadline, DispatchTrigger::Idle, DispatchTrigger::Draining];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            DispatchTrigger::Full => "full",
            DispatchTrigger::Deadline => "deadline",
            DispatchTrigger::Idle => "idle",
            DispatchTrigger::Draining => "draining",
        }
    }
}

/// The results of `saggar_shadow_requests_total`.
pub(crate) const SHADOW_RESULTS: [&str; 4] = ["same", "different", "failed", "dropped"];

/// The results of `saggar_cache_requests_total`, indexed by whether the response was cached.
pub(crate) const CACHE_RESULTS: [&str; 2] = ["miss", "hit"];

/// Handles of a version's series. All are created together, so that counters start at 0 and a late event of a version
/// whose series were removed does not create them again.
#[derive(Debug)]
pub(crate) struct VersionMetrics {
    outcomes: [IntCounter; PredictionOutcome::ALL.len()],
    duration: Histogram,
    phases: [Histogram; PHASES.len()],
    items: IntCounter,
    executions: IntCounter,
    in_flight: IntGauge,
    queue_length: IntGauge,
    batch_items: Histogram,
    dispatches: [IntCounter; DispatchTrigger::ALL.len()],
    /// Misses and hits, if the version has a cache.
    cache_results: Option<[IntCounter; 2]>,
    /// The series of requests to handlers, if the version has any.
    handlers: Option<HandlerSeries>,
    /// The counters that all versions of the model share.
    traffic: Arc<ModelTraffic>,
}

/// The series of requests that a version's plugin answers with its own code.
#[derive(Debug)]
struct HandlerSeries {
    outcomes: [IntCounter; PredictionOutcome::ALL.len()],
    duration: Histogram,
    in_flight: IntGauge,
}

impl VersionMetrics {
    pub(crate) fn new(
        metrics: &MetricsRegistry,
        model: &str,
        version: u64,
        has_cache: bool,
        has_handlers: bool,
    ) -> VersionMetrics {
        let families = &metrics.families;
        let version = version.to_string();
        let labels = [model, &version];
        let counter = |family: &IntCounterVec, last: &str| family.with_label_values(&[model, &version, last]);
        let cached = || CACHE_RESULTS.map(|result| counter(&families.cache_requests, result));
        VersionMetrics {
            outcomes: PredictionOutcome::ALL.map(|outcome| counter(&families.predict_requests, outcome.name())),
            duration: families.predict_duration.with_label_values(&labels),
            phases: PHASES.map(|phase| families.predict_phase.with_label_values(&[model, &version, phase])),
            items: families.predict_items.with_label_values(&labels),
            executions: families.predict_executions.with_label_values(&labels),
            in_flight: families.predict_in_flight.with_label_values(&labels),
            queue_length: families.predict_queue_length.with_label_values(&labels),
            batch_items: families.batch_items.with_label_values(&labels),
            dispatches: DispatchTrigger::ALL.map(|release| counter(&families.batches_dispatched, release.name())),
            cache_results: has_cache.then(cached),
            handlers: has_handlers.then(|| HandlerSeries {
                outcomes: PredictionOutcome::ALL.map(|outcome| counter(&families.handler_requests, outcome.name())),
                duration: families.handler_duration.with_label_values(&labels),
                in_flight: families.handler_in_flight.with_label_values(&labels),
            }),
            traffic: metrics.traffic.of_model(model),
        }
    }

    /// Records the outcome of a prediction and its total duration.
    pub(crate) fn record_outcome(&self, outcome: PredictionOutcome, time: Duration) {
        self.outcomes[outcome as usize].inc();
        self.duration.observe(time.as_secs_f64());
        self.traffic.record_request(time, outcome.is_error());
    }

    /// Records the outcome of a request to a handler and its total duration.
    pub(crate) fn record_handler(&self, outcome: PredictionOutcome, time: Duration) {
        if let Some(handlers) = &self.handlers {
            handlers.outcomes[outcome as usize].inc();
            handlers.duration.observe(time.as_secs_f64());
            self.traffic.record_request(time, outcome.is_error());
        }
    }

    /// Records the duration of a phase of a prediction.
    pub(crate) fn observe_phase(&self, phase: PredictionPhase, time: Duration) {
        self.phases[phase as usize].observe(time.as_secs_f64());
    }

    /// Records the dispatch of a batch of `items` items.
    pub(crate) fn record_dispatch(&self, release: DispatchTrigger, items: usize) {
        self.dispatches[release as usize].inc();
        self.batch_items.observe(items as f64);
    }

    /// Records the execution of a batch of `items` items.
    pub(crate) fn record_execution(&self, items: usize) {
        self.items.inc_by(items as u64);
        self.executions.inc();
        self.traffic.record_execution(items);
    }

    /// Records a cache hit or miss.
    pub(crate) fn record_cache_result(&self, hit: bool) {
        if let Some(cached) = &self.cache_results {
            cached[usize::from(hit)].inc();
        }
    }

    /// Counts a request to a handler as in flight until the returned guard is dropped. Returns `None` if the version has
    /// no handlers.
    pub(crate) fn track_handler(&self) -> Option<GaugeGuard> {
        self.handlers.as_ref().map(|handlers| GaugeGuard::new(&handlers.in_flight, 1))
    }

    /// Counts requests as in flight until the returned guard is dropped.
    pub(crate) fn track_in_flight(&self, requests: usize) -> GaugeGuard {
        GaugeGuard::new(&self.in_flight, requests)
    }

    /// Counts a request as queued until the returned guard is dropped.
    pub(crate) fn track_queued(&self) -> GaugeGuard {
        GaugeGuard::new(&self.queue_length, 1)
    }
}

/// Decrements a gauge when it is dropped.
#[derive(Debug)]
pub(crate) struct GaugeGuard(IntGauge, i64);

impl GaugeGuard {
    fn new(gauge: &IntGauge, by: usize) -> GaugeGuard {
        let by = i64::try_from(by).unwrap_or(i64::MAX);
        gauge.add(by);
        GaugeGuard(gauge.clone(), by)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.sub(self.1);
    }
}
