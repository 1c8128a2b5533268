//! Bringing one version up: verified, loaded, warmed with the samples that its model names, and only then ready.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_metrics::Metrics;
use saggar_plugin::Terms;
use saggar_store::models::{self, Models};
use serde_json::Value;

use super::found::origin;
use super::metered::Metered;
use super::predictor::{Candidate, LoadError, Loaded, ModelHost, Phase, Predictor};
use super::settings::Settings;
use super::version::{Origin, Serving};
use crate::predict::content;

/// A version that is to come up.
#[derive(Clone, Debug)]
pub(super) struct BringUp {
    pub(super) host: Arc<dyn ModelHost>,
    pub(super) models: Models,
    pub(super) metrics: Arc<Metrics>,
    pub(super) model: String,
    pub(super) dir: PathBuf,
    pub(super) settings: Settings,
}

/// Loads and warms it, on a thread that may block.
///
/// # Errors
/// Whatever is wrong with it; `Panicked` where loading did.
pub(super) async fn load(it: BringUp) -> Result<(Origin, Loaded), LoadError> {
    tokio::task::spawn_blocking(move || it.load()).await.unwrap_or(Err(LoadError::Panicked))
}

impl BringUp {
    fn load(&self) -> Result<(Origin, Loaded), LoadError> {
        let observe = |phase: Phase, seconds: f64| {
            self.metrics.families.cold_start.with_label_values(&[&self.model, phase.name()]).observe(seconds);
        };
        let began = Instant::now();
        // Read once: to read and hash a second time what was just checked would double the time of a wake.
        let (files, variables) = models::load(&self.dir)?;
        observe(Phase::Verify, began.elapsed().as_secs_f64());
        let (model, instances_max) = (self.model.as_str(), self.settings.instances_max.0);
        let candidate = Candidate { model, files: &files, variables: &variables, instances_max };
        let loaded = self.host.bring_up(candidate, &mut |phase, time| observe(phase, time.as_secs_f64()))?;
        self.warm(&loaded)?;
        Ok((origin(files.manifest), loaded))
    }

    /// Predicts the samples that the model's settings name.
    fn warm(&self, loaded: &Loaded) -> Result<(), LoadError> {
        for (at, it) in self.settings.warmup.iter().enumerate() {
            let refuse = |reason: String| LoadError::Warmup { reason: format!("sample {at}: {reason}") };
            let bytes = sample(&self.models, &self.model, it).map_err(refuse)?;
            predict_sample(&*loaded.predictor, &bytes, self.settings.queue.timeout.0).map_err(refuse)?;
        }
        Ok(())
    }

    /// The version, ready to serve. To be called within a runtime.
    pub(super) fn serving(&self, version: u64, origin: Origin, loaded: Loaded) -> Serving {
        let device = loaded.device.clone();
        let metered = Metered::new(loaded, Arc::clone(&self.metrics));
        let largest = metered.signature().batch_sizes.last().copied().unwrap_or(1);
        let terms = self.settings.terms(largest);
        Serving::new(&self.model, version, origin, device, Arc::new(metered), terms, &self.metrics)
    }
}

/// A warm-up sample: the file of that name beside the settings, or the inputs themselves.
pub(super) fn sample(models: &Models, model: &str, sample: &Value) -> Result<Vec<u8>, String> {
    match sample {
        Value::String(file) => {
            let note = models.note(model, file).map_err(|error| error.to_string())?;
            note.ok_or_else(|| format!("there is no file {file} beside model.json"))
        }
        inline => Ok(inline.to_string().into_bytes()),
    }
}

/// Predicts a sample, whose answer nobody reads.
pub(super) fn predict_sample(predictor: &dyn Predictor, bytes: &[u8], time: Duration) -> Result<(), String> {
    let inputs = content::sample(predictor.signature(), bytes).map_err(|error| error.to_string())?;
    predictor.predict(inputs.tensors, &Terms::within(time)).map(|_| ()).map_err(|error| error.to_string())
}
