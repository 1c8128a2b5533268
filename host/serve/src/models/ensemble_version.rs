//! The one version of an ensemble: it stands for the steps as they are, and comes up again where those change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use saggar_store::digest::Digest;

use super::ensemble::EnsembleModel;
use super::lifecycle::{Cause, Lifecycle, Memory};
use super::predictor::{Kind, Predictor};
use super::settings::Ensemble;
use super::state::{Listed, Swap};
use super::version::{Origin, Serving};

/// An ensemble has one version.
const ENSEMBLE_VERSION: u64 = 1;

impl Lifecycle {
    /// Connects the steps of an ensemble anew where they are others, or take or give something else, than before.
    pub(super) fn settle_ensemble(
        self: &Arc<Lifecycle>,
        name: &str,
        memory: &mut Memory,
        ensemble: &Ensemble,
        cause: Cause,
    ) {
        let model = match EnsembleModel::new(&self.router, name, ensemble) {
            Ok(model) => model,
            Err(error) => {
                let reason = error.to_string();
                let known = memory.refused.insert(ENSEMBLE_VERSION, (Digest::of(b""), reason.clone()));
                if known.is_none_or(|(_, before)| before != reason) {
                    tracing::warn!(model = name, reason, "the ensemble is not ready");
                }
                return self.router.change(name, |model| {
                    let listed = Listed { origin: None, reason, failed: true };
                    model.listed = BTreeMap::from([(ENSEMBLE_VERSION, listed)]);
                });
            }
        };
        memory.refused.clear();
        let digest = Digest::of(format!("{ensemble:?}{:?}", model.signature()).as_bytes());
        let is_up = self.router.ready(name, ENSEMBLE_VERSION).is_some();
        if is_up && memory.up.get(&ENSEMBLE_VERSION) == Some(&digest) {
            return;
        }
        // It was never published: a request that names no model gets it only where its settings say so.
        let origin = Origin {
            plugin: digest,
            weights: digest,
            created_ms: 0,
            source_job: String::new(),
            metrics: BTreeMap::new(),
        };
        let largest = model.signature().batch_sizes.last().copied().unwrap_or(1);
        let (terms, device) = (memory.settings.terms(largest), "ensemble".to_owned());
        let model = Arc::new(model);
        self.router.add(Serving::new(name, ENSEMBLE_VERSION, origin, device, model, terms, &self.metrics));
        memory.up.insert(ENSEMBLE_VERSION, digest);
        let swap = Swap {
            at_ms: self.clock.now_ms(),
            from: is_up.then_some(ENSEMBLE_VERSION),
            to: Some(ENSEMBLE_VERSION),
            kind: Kind::Full.name(),
            reason: cause.reason,
            seconds: cause.began.elapsed().as_secs_f64(),
        };
        self.router.change(name, |model| model.listed = BTreeMap::new());
        self.router.settle(name, Some(ENSEMBLE_VERSION), &BTreeSet::from([ENSEMBLE_VERSION]), Some(swap));
        tracing::info!(model = name, steps = ensemble.steps.len(), "ensemble is ready");
    }
}
