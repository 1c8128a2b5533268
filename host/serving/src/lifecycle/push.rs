//! Publishes versions whose content comes from clients: a plugin with weights made elsewhere, or a bundle. The content is
//! loaded and predicts once before anything of it is stored, so that content that cannot be served leaves nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use saggar_plugin::DeclaredWeights;
use saggar_plugin::limits::CONFIG_BYTES_MAX;
use saggar_store::error::{ModelError, StoreError};
use saggar_store::limits::CARD_BYTES_MAX;
use saggar_store::models::bundle::ModelBundle;
use saggar_store::models::{self, ModelProvenance, ModelPublication, PublishedVersion};
use saggar_store::read_image_inputs;

use crate::error::ServingError;
use crate::import::import_error::ImportError;
use crate::lifecycle::ModelLifecycle;
use crate::model_state::ModelStatus;
use crate::predictor::CandidateContent;

/// The configuration of a version that is pushed without one: a JSON object without members.
const EMPTY_CONFIG: &str = "{}";

/// The content of a version that a client pushes.
#[derive(Clone, Debug)]
pub struct PushedContent {
    /// The plugin's component.
    pub plugin: Bytes,
    /// A safetensors file, or `None` for a plugin without weights.
    pub weights: Option<Bytes>,
    /// The configuration passed to the plugin's `predictor.load`: by default `{}`.
    pub config: Option<Bytes>,
    /// The preprocessing of its image inputs as JSON: by default none.
    pub image_inputs: Option<Bytes>,
    /// Markdown about the version for people.
    pub card: Option<Bytes>,
}

/// A version of content that a client pushed.
#[derive(Clone, Debug)]
pub struct PushedVersion {
    /// The version.
    pub version: PublishedVersion,
    /// The names of the tensors of its weights that the plugin did not ask for, in order.
    pub unread_weights: Vec<String>,
}

impl ModelLifecycle {
    /// Publishes a version of a plugin and weights that a client sent. Returns before the version is loaded. Publishing
    /// the same content again returns the existing version. `room` checks the additional bytes.
    ///
    /// # Errors
    /// Returns `BadWeights`, `BadText` and `ImageInputs` for content that cannot be read, `Plugin` with
    /// [`PluginError::Weights`](saggar_plugin::PluginError::Weights) if the weights do not fit the plugin, `Plugin` and
    /// `Load` if it cannot be served, and the error of `room`. Nothing was stored then.
    pub async fn push(
        self: &Arc<ModelLifecycle>,
        model: &str,
        content: PushedContent,
        room: impl FnOnce(u64) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<PushedVersion, ImportError> {
        let (lifecycle, model) = (Arc::clone(self), model.to_owned());
        run_blocking(move || {
            let config = read_text("configuration", content.config.as_ref(), CONFIG_BYTES_MAX)?.unwrap_or(EMPTY_CONFIG);
            let card = read_text("card", content.card.as_ref(), CARD_BYTES_MAX as usize)?;
            let weights = content.weights.as_ref().map(|file| models::read_weights(file, &[])).transpose();
            let weights = weights.map_err(|error| match error {
                ModelError::Weights { reason } => ImportError::BadWeights { reason },
                error => error.into(),
            })?;
            let variables = weights.unwrap_or_default();
            let inputs = content.image_inputs.as_deref().map(read_image_inputs).transpose()?.unwrap_or_default();
            let candidate = CandidateContent {
                plugin: &content.plugin,
                variables: &variables,
                config,
                inputs: &inputs,
                has_kinds: false,
            };
            let DeclaredWeights { variables, unread } = lifecycle.host.check_content(candidate)?;
            let bytes: usize = variables.iter().map(|variable| variable.bytes.len()).sum();
            room((bytes + content.plugin.len() + config.len() + card.map_or(0, str::len)) as u64)?;
            let program = env!("CARGO_PKG_VERSION").to_owned();
            let version = lifecycle.models.publish(&ModelPublication {
                model: &model,
                plugin: &content.plugin,
                variables: &variables,
                config,
                inputs,
                source_job: "",
                created_ms: lifecycle.clock.now_ms(),
                metrics: BTreeMap::new(),
                card,
                provenance: ModelProvenance { program, ..ModelProvenance::default() },
            })?;
            Ok(PushedVersion { version, unread_weights: unread })
        })
        .await
    }

    /// Publishes the version in a bundle, with the same files. Returns before the version is loaded. Importing it again
    /// returns the existing version. `room` checks the additional bytes.
    ///
    /// # Errors
    /// Returns `Plugin` and `Load` if it cannot be served, and the error of `room`. Nothing was stored then.
    pub async fn import_bundle(
        self: &Arc<ModelLifecycle>,
        model: &str,
        bundle: ModelBundle,
        room: impl FnOnce(u64) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<PublishedVersion, ImportError> {
        let (lifecycle, model) = (Arc::clone(self), model.to_owned());
        run_blocking(move || {
            let (plugin, variables, config) = (bundle.plugin(), bundle.variables(), &bundle.manifest.config);
            lifecycle.host.check_content(CandidateContent {
                plugin,
                variables,
                config,
                inputs: &bundle.manifest.inputs,
                has_kinds: true,
            })?;
            room(bundle.manifest.bytes())?;
            Ok(lifecycle.models.publish_bundle(&model, &bundle)?)
        })
        .await
    }

    /// Loads a version that was just published, if it is to be served, and returns the model's status.
    ///
    /// # Errors
    /// Returns `NoModel`.
    pub async fn load_published(self: &Arc<ModelLifecycle>, model: &str) -> Result<ModelStatus, ServingError> {
        self.reconcile_now(model, "PUBLISHED").await
    }
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImportError> + Send + 'static,
) -> Result<T, ImportError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ImportError::Internal { cause: format!("publishing: {error}") })?
}

/// Returns a part that must be text of at most `bytes_max` bytes.
fn read_text<'a>(
    part: &'static str,
    bytes: Option<&'a Bytes>,
    bytes_max: usize,
) -> Result<Option<&'a str>, ImportError> {
    let Some(bytes) = bytes else { return Ok(None) };
    let refuse = |reason: String| ImportError::BadText { part, reason };
    if bytes.len() > bytes_max {
        return Err(refuse(format!("it has {} bytes, and at most {bytes_max} are accepted", bytes.len())));
    }
    std::str::from_utf8(bytes).map(Some).map_err(|error| refuse(error.to_string()))
}
