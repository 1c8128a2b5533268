//! Metric series with a model's version as a label. They are removed some time after the version is unloaded, so that
//! frequent retraining of a model does not fill `/metrics`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use saggar_metrics::MetricsRegistry;

use super::prediction_outcome::{PHASES, PredictionOutcome};
use super::version_metrics::{CACHE_RESULTS, DispatchTrigger, SHADOW_RESULTS};
use crate::limits::UNLOADED_SERIES_MAX;
use crate::version_state::VersionState;

#[derive(Debug, Default)]
struct ExportedModelSeries {
    states: BTreeMap<u64, VersionState>,
    /// Unloaded versions whose series still exist, oldest first.
    unloaded: VecDeque<u64>,
    /// Label values under which reloads were counted.
    reloads: BTreeSet<[&'static str; 3]>,
}

#[derive(Debug)]
pub(crate) struct ModelMetrics {
    metrics: Arc<MetricsRegistry>,
    models: Mutex<BTreeMap<String, ExportedModelSeries>>,
}

impl ModelMetrics {
    pub(crate) fn new(metrics: Arc<MetricsRegistry>) -> ModelMetrics {
        ModelMetrics { metrics, models: Mutex::default() }
    }

    /// Sets `saggar_model_state` for the versions of a model. Versions that are only stored have no series.
    pub(crate) fn set_version_states(&self, model: &str, states: &BTreeMap<u64, VersionState>) {
        let mut models = self.lock_models();
        let series = models.entry(model.to_owned()).or_default();
        let mut next = states.clone();
        next.retain(|_, state| *state != VersionState::Unloaded);
        for version in series.states.keys().filter(|version| !next.contains_key(version)) {
            for state in VersionState::ALL {
                // The series can already be removed, which is not an error.
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
        series.states = next;
    }

    /// Counts an attempt to load a version: kind, result and reason.
    pub(crate) fn count_reload(&self, model: &str, labels: [&'static str; 3]) {
        let [kind, result, reason] = labels;
        self.metrics.families.model_reloads.with_label_values(&[model, kind, result, reason]).inc();
        self.lock_models().entry(model.to_owned()).or_default().reloads.insert(labels);
    }

    /// Keeps the series of a version that serves.
    pub(crate) fn keep_version_series(&self, model: &str, version: u64) {
        self.lock_models().entry(model.to_owned()).or_default().unloaded.retain(|&unloaded| unloaded != version);
    }

    /// Schedules the series of an unloaded version for removal, after a number of further versions were unloaded.
    pub(crate) fn expire_version_series(&self, model: &str, version: u64) {
        let mut models = self.lock_models();
        let series = models.entry(model.to_owned()).or_default();
        series.unloaded.retain(|&unloaded| unloaded != version);
        series.unloaded.push_back(version);
        if series.unloaded.len() > UNLOADED_SERIES_MAX
            && let Some(oldest) = series.unloaded.pop_front()
        {
            self.remove_version_series(model, oldest);
        }
    }

    /// Removes the series of a model that was removed.
    pub(crate) fn remove_model(&self, model: &str) {
        self.metrics.traffic.remove_model(model);
        let Some(series) = self.lock_models().remove(model) else { return };
        for version in series.unloaded {
            self.remove_version_series(model, version);
        }
        let families = &self.metrics.families;
        for [kind, result, reason] in series.reloads {
            let _ = families.model_reloads.remove_label_values(&[model, kind, result, reason]);
        }
        let _ = families.model_swap_duration.remove_label_values(&[model]);
        for phase in ["verify", "compile", "load", "warmup"] {
            let _ = families.cold_start.remove_label_values(&[model, phase]);
        }
    }

    fn remove_version_series(&self, model: &str, version: u64) {
        let families = &self.metrics.families;
        let labels = [model, &version.to_string()];
        let _ = families.predict_items.remove_label_values(&labels);
        let _ = families.predict_executions.remove_label_values(&labels);
        let _ = families.predict_duration.remove_label_values(&labels);
        let _ = families.predict_in_flight.remove_label_values(&labels);
        let _ = families.predict_queue_length.remove_label_values(&labels);
        let _ = families.batch_items.remove_label_values(&labels);
        let _ = families.model_setups.remove_label_values(&labels);
        let _ = families.handler_duration.remove_label_values(&labels);
        let _ = families.handler_in_flight.remove_label_values(&labels);
        for outcome in PredictionOutcome::ALL {
            let _ = families.handler_requests.remove_label_values(&[model, labels[1], outcome.name()]);
            let _ = families.predict_requests.remove_label_values(&[model, labels[1], outcome.name()]);
        }
        for release in DispatchTrigger::ALL {
            let _ = families.batches_dispatched.remove_label_values(&[model, labels[1], release.name()]);
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

    fn lock_models(&self) -> MutexGuard<'_, BTreeMap<String, ExportedModelSeries>> {
        self.models.lock()
    }
}
