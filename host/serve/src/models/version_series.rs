//! The metric series of one version, looked up once: a prediction touches a dozen of them.

use std::sync::OnceLock;
use std::time::Duration;

use saggar_metrics::{Families, Histogram, IntCounter, IntGauge, Metrics};

use super::queue::Release;
use crate::predict::outcome::{Outcome, PHASES, Phase};

/// Handles of a version's series.
#[derive(Debug)]
pub(crate) struct VersionSeries {
    families: Families,
    labels: [String; 2],
    outcomes: [OnceLock<IntCounter>; Outcome::ALL.len()],
    duration: Histogram,
    phases: [Histogram; PHASES.len()],
    items: IntCounter,
    executions: IntCounter,
    in_flight: IntGauge,
    queue_length: IntGauge,
    batch_items: Histogram,
    releases: [OnceLock<IntCounter>; Release::ALL.len()],
    cached: [OnceLock<IntCounter>; 2],
}

impl VersionSeries {
    pub(super) fn new(metrics: &Metrics, model: &str, version: u64) -> VersionSeries {
        let families = metrics.families.clone();
        let version = version.to_string();
        let labels = [model, &version];
        VersionSeries {
            outcomes: Default::default(),
            duration: families.predict_duration.with_label_values(&labels),
            phases: PHASES.map(|phase| families.predict_phase.with_label_values(&[model, &version, phase])),
            items: families.predict_items.with_label_values(&labels),
            executions: families.predict_executions.with_label_values(&labels),
            in_flight: families.predict_in_flight.with_label_values(&labels),
            queue_length: families.predict_queue_length.with_label_values(&labels),
            batch_items: families.batch_items.with_label_values(&labels),
            releases: Default::default(),
            cached: Default::default(),
            labels: [model.to_owned(), version],
            families,
        }
    }

    fn with(&self, last: &'static str) -> [&str; 3] {
        [&self.labels[0], &self.labels[1], last]
    }

    /// A prediction ended, so long after it was asked for.
    pub(crate) fn ended(&self, outcome: Outcome, time: Duration) {
        let counter = || self.families.predict_requests.with_label_values(&self.with(outcome.name()));
        self.outcomes[outcome as usize].get_or_init(counter).inc();
        self.duration.observe(time.as_secs_f64());
    }

    /// A part of a prediction took so long.
    pub(crate) fn phase(&self, phase: Phase, time: Duration) {
        self.phases[phase as usize].observe(time.as_secs_f64());
    }

    /// A batch of so many items went to the model.
    pub(super) fn released(&self, release: Release, items: usize) {
        let counter = || self.families.batch_releases.with_label_values(&self.with(release.name()));
        self.releases[release as usize].get_or_init(counter).inc();
        self.batch_items.observe(items as f64);
    }

    /// A batch was computed.
    pub(super) fn executed(&self, items: usize) {
        self.items.inc_by(items as u64);
        self.executions.inc();
    }

    /// The answer was in the cache, or was not.
    pub(crate) fn cached(&self, hit: bool) {
        let result = if hit { "hit" } else { "miss" };
        let counter = || self.families.cache_requests.with_label_values(&self.with(result));
        self.cached[usize::from(hit)].get_or_init(counter).inc();
    }

    /// Counts requests as being computed until the result is dropped.
    pub(super) fn running(&self, requests: usize) -> Counted {
        Counted::new(&self.in_flight, requests)
    }

    /// Counts a request as waiting until the result is dropped.
    pub(super) fn queued(&self) -> Counted {
        Counted::new(&self.queue_length, 1)
    }
}

/// A gauge that goes down when this is dropped.
#[derive(Debug)]
pub(crate) struct Counted(IntGauge, i64);

impl Counted {
    fn new(gauge: &IntGauge, by: usize) -> Counted {
        let by = i64::try_from(by).unwrap_or(i64::MAX);
        gauge.add(by);
        Counted(gauge.clone(), by)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.sub(self.1);
    }
}
