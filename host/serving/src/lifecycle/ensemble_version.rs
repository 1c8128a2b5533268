//! The single version of an ensemble. It is replaced when its steps change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use saggar_store::digest::Digest;

use super::model_record::{ModelRecord, ReconcileCause};
use crate::ensemble::EnsembleModel;
use crate::lifecycle::ModelLifecycle;
use crate::live_version::LiveVersion;
use crate::model_config::EnsembleConfig;
use crate::model_state::{ListedVersion, VersionSwap};
use crate::predictor::{LoadKind, ModelPredictor};
use crate::version_origin::VersionOrigin;

/// An ensemble has one version.
const ENSEMBLE_VERSION: u64 = 1;

impl ModelLifecycle {
    /// Reconnects the steps of an ensemble if the steps or their signatures have changed.
    pub(crate) fn reconcile_ensemble(
        self: &Arc<ModelLifecycle>,
        name: &str,
        memory: &mut ModelRecord,
        ensemble: &EnsembleConfig,
        cause: ReconcileCause,
    ) {
        let model = match EnsembleModel::new(&self.router, name, ensemble) {
            Ok(model) => model,
            Err(error) => {
                let reason = error.to_string();
                let known = memory.refuse(ENSEMBLE_VERSION, Digest::of(b""), &reason, None);
                if known.is_none_or(|before| before.failure.reason != reason) {
                    tracing::warn!(model = name, reason, "the ensemble is not ready");
                }
                return self.router.update_model(name, |model| {
                    let listed = ListedVersion { origin: None, reason, failed: true };
                    model.listed = BTreeMap::from([(ENSEMBLE_VERSION, listed)]);
                });
            }
        };
        memory.refused.clear();
        let digest = Digest::of(format!("{ensemble:?}{:?}", model.signature()).as_bytes());
        let is_up = self.router.ready_version(name, ENSEMBLE_VERSION).is_some();
        if is_up && memory.loaded.get(&ENSEMBLE_VERSION) == Some(&digest) {
            return;
        }
        // A time of 0: an ensemble is never published, so it is the default model only if its configuration says so.
        let origin = VersionOrigin {
            plugin: digest,
            weights: digest,
            created_ms: 0,
            source_job: String::new(),
            metrics: BTreeMap::new(),
        };
        let largest = model.signature().batch_sizes.last().copied().unwrap_or(1);
        let without = self.disabled_optimizations(&memory.config);
        let (terms, device) = (memory.config.serving_policy(largest).without(without), "ensemble".to_owned());
        let model = Arc::new(model);
        self.router.add_version(LiveVersion::new(name, ENSEMBLE_VERSION, origin, device, model, terms, &self.metrics));
        memory.loaded.insert(ENSEMBLE_VERSION, digest);
        let swap = VersionSwap {
            at_ms: self.clock.now_ms(),
            from: is_up.then_some(ENSEMBLE_VERSION),
            to: Some(ENSEMBLE_VERSION),
            kind: LoadKind::Full.name(),
            reason: cause.reason,
            seconds: cause.began.elapsed().as_secs_f64(),
        };
        self.router.update_model(name, |model| model.listed = BTreeMap::new());
        self.router.set_default_version(name, Some(ENSEMBLE_VERSION), &BTreeSet::from([ENSEMBLE_VERSION]), Some(swap));
        tracing::info!(model = name, steps = ensemble.steps.len(), "ensemble is ready");
    }
}
