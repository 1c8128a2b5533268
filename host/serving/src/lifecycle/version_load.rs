//! Loading of one version: its files are verified, it is loaded, warmed up with its model's samples, and only then
//! ready.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_compile::DisabledOptimizations;
use saggar_metrics::MetricsRegistry;
use saggar_plugin::{ModelSignature, PredictionOptions};
use saggar_store::models::{self, ModelRegistry};
use serde_json::Value;

use super::version_scan::origin_from_manifest;
use crate::live_version::LiveVersion;
use crate::metrics::metered_predictor::MeteredPredictor;
use crate::model_config::ModelConfig;
use crate::prediction::prediction_inputs::PredictionInputs;
use crate::predictor::{LoadError, LoadPhase, LoadedVersion, ModelHost, ModelPredictor, VersionCandidate};
use crate::version_origin::VersionOrigin;

/// Decodes a warm-up sample, in one of the forms that the server accepts as a prediction's body. Returns the problem with
/// it as text.
pub type SampleDecoder = fn(&ModelSignature, &[u8]) -> Result<PredictionInputs, String>;

/// A version to be loaded.
#[derive(Clone, Debug)]
pub(crate) struct VersionLoad {
    pub(crate) host: Arc<dyn ModelHost>,
    pub(crate) models: ModelRegistry,
    pub(crate) metrics: Arc<MetricsRegistry>,
    pub(crate) model: String,
    pub(crate) dir: PathBuf,
    pub(crate) settings: ModelConfig,
    /// The optimizations that are switched off for the model.
    pub(crate) without: DisabledOptimizations,
    pub(crate) decode_sample: SampleDecoder,
}

/// Loads and warms up a version on a blocking thread.
///
/// # Errors
/// Returns the error of loading, or `Panicked` if loading panicked.
pub(crate) async fn load_and_warm(it: VersionLoad) -> Result<(VersionOrigin, LoadedVersion), LoadError> {
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
        let (model, instances_max) = (self.model.as_str(), self.settings.instances.max.0);
        let without = self.without;
        let candidate = VersionCandidate { model, files: &files, variables: &variables, instances_max, without };
        let loaded = self.host.load_version(candidate, &mut |phase, time| observe(phase, time.as_secs_f64()))?;
        self.warm_up(&loaded)?;
        Ok((origin_from_manifest(files.manifest), loaded))
    }

    /// Predicts the warm-up samples of the model's configuration.
    fn warm_up(&self, loaded: &LoadedVersion) -> Result<(), LoadError> {
        for (at, it) in self.settings.warmup.iter().enumerate() {
            let refuse = |reason: String| LoadError::Warmup { reason: format!("sample {at}: {reason}") };
            let bytes = read_warmup_sample(&self.models, &self.model, it).map_err(refuse)?;
            let time = self.settings.queue.timeout.0;
            predict_warmup_sample(&*loaded.predictor, self.decode_sample, &bytes, time).map_err(refuse)?;
        }
        Ok(())
    }

    /// Returns the version, ready to serve. Call it within a runtime.
    pub(crate) fn live_version(&self, version: u64, origin: VersionOrigin, loaded: LoadedVersion) -> LiveVersion {
        let device = loaded.device.clone();
        let metered = MeteredPredictor::new(loaded, Arc::clone(&self.metrics));
        let largest = metered.signature().batch_sizes.last().copied().unwrap_or(1);
        let terms = self.settings.serving_policy(largest).without(self.without);
        LiveVersion::new(&self.model, version, origin, device, Arc::new(metered), terms, &self.metrics)
    }
}

/// Returns a warm-up sample: the file of that name beside the configuration, or the inputs themselves.
pub(crate) fn read_warmup_sample(models: &ModelRegistry, model: &str, sample: &Value) -> Result<Vec<u8>, String> {
    match sample {
        Value::String(file) => {
            let note = models.read_note(model, file).map_err(|error| error.to_string())?;
            note.ok_or_else(|| format!("there is no file {file} beside model.json"))
        }
        inline => Ok(inline.to_string().into_bytes()),
    }
}

/// Predicts a sample and discards the result.
pub(crate) fn predict_warmup_sample(
    predictor: &dyn ModelPredictor,
    decode_sample: SampleDecoder,
    bytes: &[u8],
    time: Duration,
) -> Result<(), String> {
    let inputs = decode_sample(predictor.signature(), bytes)?;
    predictor
        .predict(inputs.tensors, &PredictionOptions::with_deadline(time))
        .map(|_| ())
        .map_err(|error| error.to_string())
}
