//! Metric series that carry a model's version: they are removed some time after the version is unloaded, so that a
//! model that is trained anew every minute does not fill `/metrics`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use saggar_metrics::Metrics;

use super::queue::Release;
use super::shadow::SHADOW_RESULTS;
use super::version::VersionState;
use super::version_series::CACHE_RESULTS;
use crate::limits::UNLOADED_SERIES_MAX;
use crate::predict::outcome::{Outcome, PHASES};

#[derive(Debug, Default)]
struct Shown {
    states: BTreeMap<u64, VersionState>,
    /// Unloaded versions whose series are still there, oldest first.
    unloaded: VecDeque<u64>,
    /// Labels under which reloads were counted.
    reloads: BTreeSet<[&'static str; 3]>,
}

#[derive(Debug)]
pub(super) struct Series {
    metrics: Arc<Metrics>,
    models: Mutex<BTreeMap<String, Shown>>,
}

impl Series {
    pub(super) fn new(metrics: Arc<Metrics>) -> Series {
        Series { metrics, models: Mutex::default() }
    }

    /// Sets `saggar_model_state` for the versions of a model. Those that are merely files have no series.
    pub(super) fn show(&self, model: &str, states: &BTreeMap<u64, VersionState>) {
        let mut models = self.models();
        let shown = models.entry(model.to_owned()).or_default();
        let mut next = states.clone();
        next.retain(|_, state| *state != VersionState::Unloaded);
        for version in shown.states.keys().filter(|version| !next.contains_key(version)) {
            for state in VersionState::ALL {
                // A series that is gone already is no error.
                let labels = [model, &version.to_string(), state.name()];
                let _ = self.metrics.families.model_state.remove_label_values(&labels);
            }
        }
        for (version, now) in &next {
            for state in VersionState::ALL {
                let labels = [model, &version.to_string(), state.name()];
                self.metrics.families.model_state.with_label_values(&labels).set((state == *now).into());
            }
        }
        shown.states = next;
    }

    /// Counts an attempt at a version: kind, result and reason.
    pub(super) fn reloaded(&self, model: &str, labels: [&'static str; 3]) {
        let [kind, result, reason] = labels;
        self.metrics.families.model_reloads.with_label_values(&[model, kind, result, reason]).inc();
        self.models().entry(model.to_owned()).or_default().reloads.insert(labels);
    }

    /// The version serves: its series stay.
    pub(super) fn serves(&self, model: &str, version: u64) {
        self.models().entry(model.to_owned()).or_default().unloaded.retain(|&unloaded| unloaded != version);
    }

    /// The version was unloaded: its series go when enough others were unloaded after it.
    pub(super) fn unloaded(&self, model: &str, version: u64) {
        let mut models = self.models();
        let shown = models.entry(model.to_owned()).or_default();
        shown.unloaded.retain(|&unloaded| unloaded != version);
        shown.unloaded.push_back(version);
        if shown.unloaded.len() > UNLOADED_SERIES_MAX
            && let Some(oldest) = shown.unloaded.pop_front()
        {
            self.forget(model, oldest);
        }
    }

    /// The model is gone, and its series with it.
    pub(super) fn removed(&self, model: &str) {
        let Some(shown) = self.models().remove(model) else { return };
        for version in shown.unloaded {
            self.forget(model, version);
        }
        let families = &self.metrics.families;
        for [kind, result, reason] in shown.reloads {
            let _ = families.model_reloads.remove_label_values(&[model, kind, result, reason]);
        }
        let _ = families.model_swap_duration.remove_label_values(&[model]);
        for phase in ["verify", "compile", "load", "warmup"] {
            let _ = families.cold_start.remove_label_values(&[model, phase]);
        }
    }

    fn forget(&self, model: &str, version: u64) {
        let families = &self.metrics.families;
        let labels = [model, &version.to_string()];
        let _ = families.predict_items.remove_label_values(&labels);
        let _ = families.predict_executions.remove_label_values(&labels);
        let _ = families.predict_duration.remove_label_values(&labels);
        let _ = families.predict_in_flight.remove_label_values(&labels);
        let _ = families.predict_queue_length.remove_label_values(&labels);
        let _ = families.batch_items.remove_label_values(&labels);
        let _ = families.model_setups.remove_label_values(&labels);
        for outcome in Outcome::ALL {
            let _ = families.predict_requests.remove_label_values(&[model, labels[1], outcome.name()]);
        }
        for release in Release::ALL {
            let _ = families.batch_releases.remove_label_values(&[model, labels[1], release.name()]);
        }
        for result in CACHE_RESULTS {
            let _ = families.cache_requests.remove_label_values(&[model, labels[1], result]);
        }
        for result in SHADOW_RESULTS {
            let _ = families.shadow_requests.remove_label_values(&[model, labels[1], result]);
        }
        for phase in PHASES {
            let _ = families.predict_phase.remove_label_values(&[model, labels[1], phase]);
        }
    }

    fn models(&self) -> MutexGuard<'_, BTreeMap<String, Shown>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
