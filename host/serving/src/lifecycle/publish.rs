//! Publishes a version from existing parts: another plugin with the weights of an existing version or checkpoint. Users
//! who change a model's code can thus try it without retraining.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use saggar_store::SavedVariable;
use saggar_store::error::{ModelError, StoreError};
use saggar_store::models::{ModelProvenance, ModelPublication, PublishedVersion};

use super::version_scan;
use crate::error::ServingError;
use crate::lifecycle::ModelLifecycle;
use crate::model_state::{ModelStatus, Residency};
use crate::promotion_gate::refusal_message;
use crate::unserved_reason::{FollowPolicy, UnservedReason};

/// The source of the weights of a version that is published here.
#[derive(Debug)]
pub enum WeightsSource {
    /// A version, or the newest complete one if `None`.
    Version(Option<u64>),
    /// A checkpoint of a job.
    Checkpoint {
        /// Parameters and statistics.
        variables: Vec<SavedVariable>,
        /// The job's name.
        job: String,
        /// The job's metrics at the checkpoint.
        metrics: BTreeMap<String, f64>,
        /// What the weights were made from.
        provenance: Box<ModelProvenance>,
    },
}

impl ModelLifecycle {
    /// Publishes a version of `plugin` with these weights. It gets the configuration of the version that the weights
    /// are from, or of the newest complete one, because only a training knows the configuration of a predictor, and
    /// passes it when it first publishes. Returns when the version serves or was refused; the status says which and
    /// why. A version that was serving before continues to serve. Publishing the same content again returns the
    /// existing version.
    ///
    /// # Errors
    /// Returns `NoModel`, `NoVersion` if the version does not exist, `LoadFailed` if its files are damaged, and the
    /// error of `room`, which checks the additional bytes.
    pub async fn publish(
        self: &Arc<ModelLifecycle>,
        name: &str,
        plugin: Bytes,
        weights: WeightsSource,
        room: impl FnOnce(u64) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<(PublishedVersion, ModelStatus), ServingError> {
        self.check_model_exists(name).await?;
        let (models, model, created_ms) = (self.models.clone(), name.to_owned(), self.clock.now_ms());
        let from = match &weights {
            WeightsSource::Version(from) => *from,
            WeightsSource::Checkpoint { .. } => None,
        };
        let publish = move || {
            let refuse = |error| publish_error(&model, from, error);
            let (files, variables) = models.open(&model, from).map_err(refuse)?;
            let manifest = files.manifest;
            let (variables, source_job, metrics, provenance) = match weights {
                WeightsSource::Version(_) => (variables, manifest.source_job, manifest.metrics, manifest.provenance),
                WeightsSource::Checkpoint { variables, job, metrics, provenance } => {
                    (variables, job, metrics, *provenance)
                }
            };
            let weights: usize = variables.iter().map(|variable| variable.bytes.len()).sum();
            room((weights + plugin.len() + manifest.config.len()) as u64)?;
            let publication = ModelPublication {
                model: &model,
                plugin: &plugin,
                variables: &variables,
                config: &manifest.config,
                inputs: manifest.inputs,
                source_job: &source_job,
                created_ms,
                metrics,
                card: None,
                provenance,
            };
            models.publish(&publication).map_err(refuse)
        };
        let published = tokio::task::spawn_blocking(publish).await;
        let published = published.map_err(|error| ServingError::Internal { cause: error.to_string() })?;
        let published = published?;
        let status = self.reconcile_now(name, "PUBLISHED").await?;
        Ok((published, status))
    }
}

impl ModelLifecycle {
    /// Publishes a version of another model, or of the same one, as a version of `name`, which can be a new model: with
    /// its plugin, weights, configuration, card, metrics and provenance. Returns once it is loaded, if it is to be
    /// served. Publishing the same content again returns the existing version.
    ///
    /// # Errors
    /// Returns `NoVersion` if the version does not exist, `LoadFailed` if its files are damaged, and the error of
    /// `room`, which checks the additional bytes.
    pub async fn publish_copy(
        self: &Arc<ModelLifecycle>,
        name: &str,
        (source, version): (&str, u64),
        room: impl FnOnce(u64) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<PublishedVersion, ServingError> {
        let (models, model, created_ms) = (self.models.clone(), name.to_owned(), self.clock.now_ms());
        let source = source.to_owned();
        let publish = move || {
            let refuse = |error| publish_error(&source, Some(version), error);
            let (files, variables) = models.open(&source, Some(version)).map_err(refuse)?;
            let (plugin, card) = (files.load_plugin().map_err(refuse)?, files.load_card().map_err(refuse)?);
            let manifest = files.manifest;
            let weights: usize = variables.iter().map(|variable| variable.bytes.len()).sum();
            room((weights + plugin.len() + manifest.config.len() + card.as_ref().map_or(0, String::len)) as u64)?;
            let publication = ModelPublication {
                model: &model,
                plugin: &plugin,
                variables: &variables,
                config: &manifest.config,
                inputs: manifest.inputs,
                source_job: &manifest.source_job,
                created_ms,
                metrics: manifest.metrics,
                card: card.as_deref(),
                provenance: manifest.provenance,
            };
            Ok::<_, ServingError>(models.publish(&publication)?)
        };
        let published = tokio::task::spawn_blocking(publish).await;
        let published = published.map_err(|error| ServingError::Internal { cause: error.to_string() })??;
        self.reconcile_now(name, "PUBLISHED").await?;
        Ok(published)
    }

    /// Returns notes about a version that a job has just published: its training metrics beside those of the serving
    /// version, and the reason for which it will not be served, if so. Reads the version's manifest.
    pub fn publication_notes(&self, model: &str, version: u64) -> Vec<String> {
        let status = self.router.status(model).ok();
        let serving = status.as_ref().and_then(|status| status.serving.as_ref()).filter(|it| it.version != version);
        let mut notes = Vec::new();
        let measured = self.models.manifest(model, version).map(version_scan::origin_from_manifest);
        if let (Ok(new), Some(serving)) = (&measured, serving) {
            let (measured, before) = (new.summarize_metrics(), serving.origin.summarize_metrics());
            if !measured.is_empty() && !before.is_empty() {
                let less = if new.is_less_accurate_than(&serving.origin) { "warning: less accurate: " } else { "" };
                let old = serving.version;
                notes.push(format!("{less}{model}@{version}: {measured}; {model}@{old}, which serves: {before}"));
            }
        }
        if let (Ok(new), Some(status)) = (&measured, &status)
            && status.follows_newest()
            && let Some(gate) = &status.config.promote
        {
            let origin = |version: u64| status.versions.iter().find(|it| it.version == version)?.origin.as_ref();
            let reference = status.desired.last_default.and_then(|serving| Some((serving, origin(serving)?)));
            if let Some(refusal) = gate.refusal((version, new), reference) {
                let message = refusal_message(&refusal, model, version);
                notes.push(format!("{model}@{version} is stored and not served: {message}"));
                return notes;
            }
        }
        let fixed = status.as_ref().and_then(|status| status.desired.fixed_default(self.follow));
        let idle = match fixed {
            _ if status.as_ref().is_some_and(|status| status.residency == Residency::Unloaded) => {
                UnservedReason::ModelUnloaded
            }
            Some(default) if default == version => return notes,
            Some(default) => UnservedReason::NotPromoted { default: Some(default) },
            None if self.follow == FollowPolicy::Promoted => UnservedReason::NotPromoted { default: None },
            None => return notes,
        };
        notes.push(format!("{model}@{version} is stored and not served: {}", idle.message(model, version)));
        notes
    }
}

fn publish_error(model: &str, version: Option<u64>, error: ModelError) -> ServingError {
    match error {
        ModelError::NotFound { .. } => ServingError::NoVersion { model: model.to_owned(), version },
        error @ ModelError::Incomplete { .. } => {
            ServingError::LoadFailed { model: model.to_owned(), version, reason: error.to_string() }
        }
        error => error.into(),
    }
}
