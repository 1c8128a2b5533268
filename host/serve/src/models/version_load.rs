//! Loading of one version: its files are verified, it is loaded, warmed up with its model's samples, and only then
//! ready.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_metrics::MetricsRegistry;
use saggar_plugin::PredictionOptions;
use saggar_store::models::{self, ModelRegistry};
use serde_json::Value;

use super::device_usage::MeteredPredictor;
use super::live_version::{LiveVersion, VersionOrigin};
use super::model_config::ModelConfig;
use super::predictor::{LoadError, LoadPhase, LoadedVersion, ModelHost, ModelPredictor, VersionCandidate};
use super::version_scan::origin_from_manifest;
use crate::predict::body_decoder;

/// A version to be loaded.
#[derive(Clone, Debug)]
pub(super) struct VersionLoad {
    pub(super) host: Arc<dyn ModelHost>,
    pub(super) models: ModelRegistry,
    pub(super) metrics: Arc<MetricsRegistry>,
    pub(super) model: String,
    pub(super) dir: PathBuf,
    pub(super) settings: ModelConfig,
}

/// Loads and warms up a version on a blocking thread.
///
/// # Errors
/// Returns the error of loading, or `Panicked` if loading panicked.
pub(super) async fn load_and_warm(it: VersionLoad) -> Result<(VersionOrigin, LoadedVersion), LoadError> {
    tokio::task::spawn_blocking(move || it.load()).await.unwrap_or(Err(LoadError::Panicked))
}

impl VersionLoad {
    fn load(&self) -> Result<(VersionOrigin, LoadedVersion), LoadError> {
        let observe = |phase: LoadPhase, seconds: f64| {
            self.metrics.families.cold_start.with_label_values(&[&self.model, phase.name()]).observe(seconds);
        };
        let began = Instant::now();
        // Read once: reading and hashing the files again after the verification would double the time of a wake.
        let (files, variables) = models::load(&self.dir)?;
        observe(LoadPhase::Verify, began.elapsed().as_secs_f64());
        let (model, instances_max) = (self.model.as_str(), self.settings.instances_max.0);
        let candidate = VersionCandidate { model, files: &files, variables: &variables, instances_max };
        let loaded = self.host.load_version(candidate, &mut |phase, time| observe(phase, time.as_secs_f64()))?;
        self.warm_up(&loaded)?;
        Ok((origin_from_manifest(files.manifest), loaded))
    }

    /// Predicts the warm-up samples of the model's configuration.
    fn warm_up(&self, loaded: &LoadedVersion) -> Result<(), LoadError> {
        for (at, it) in self.settings.warmup.iter().enumerate() {
            let refuse = |reason: String| LoadError::Warmup { reason: format!("sample {at}: {reason}") };
            let bytes = read_warmup_sample(&self.models, &self.model, it).map_err(refuse)?;
            predict_warmup_sample(&*loaded.predictor, &bytes, self.settings.queue.timeout.0).map_err(refuse)?;
        }
        Ok(())
    }

    /// Returns the version, ready to serve. Call it within a runtime.
    pub(super) fn live_version(&self, version: u64, origin: VersionOrigin, loaded: LoadedVersion) -> LiveVersion {
        let device = loaded.device.clone();
        let metered = MeteredPredictor::new(loaded, Arc::clone(&self.metrics));
        let largest = metered.signature().batch_sizes.last().copied().unwrap_or(1);
        let terms = self.settings.serving_policy(largest);
        LiveVersion::new(&self.model, version, origin, device, Arc::new(metered), terms, &self.metrics)
    }
}

/// Returns a warm-up sample: the file of that name beside the configuration, or the inputs themselves.
pub(super) fn read_warmup_sample(models: &ModelRegistry, model: &str, sample: &Value) -> Result<Vec<u8>, String> {
    match sample {
        Value::String(file) => {
            let note = models.read_note(model, file).map_err(|error| error.to_string())?;
            note.ok_or_else(|| format!("there is no file {file} beside model.json"))
        }
        inline => Ok(inline.to_string().into_bytes()),
    }
}

/// Predicts a sample and discards the result.
pub(super) fn predict_warmup_sample(
    predictor: &dyn ModelPredictor,
    bytes: &[u8],
    time: Duration,
) -> Result<(), String> {
    let inputs = body_decoder::decode_untyped(predictor.signature(), bytes).map_err(|error| error.to_string())?;
    predictor
        .predict(inputs.tensors, &PredictionOptions::with_deadline(time))
        .map(|_| ())
        .map_err(|error| error.to_string())
}
