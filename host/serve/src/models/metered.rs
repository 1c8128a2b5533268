//! A model version whose use of its device shows in the metrics: what it holds, and what it took.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use saggar_device::Meter;
use saggar_metrics::Metrics;
use saggar_plugin::{PieceSink, PluginError, Signature};

use super::predictor::{Loaded, Predictor};
use crate::predict::decode::Tensor;

/// The owner that models are in `saggar_gpu_memory_bytes`.
const OWNER: &str = "models";

/// What was told the metrics so far.
#[derive(Debug, Default)]
struct Told {
    bytes: u64,
    busy: Duration,
    dispatches: u64,
    submissions: u64,
}

/// Adds to the metrics what changed, after each prediction and when the version is freed.
#[derive(Debug)]
pub(super) struct Metered {
    /// None only while it is dropped.
    predictor: Option<Box<dyn Predictor>>,
    signature: Signature,
    meter: Meter,
    device: String,
    metrics: Arc<Metrics>,
    told: Mutex<Told>,
}

impl Metered {
    pub(super) fn new(loaded: Loaded, metrics: Arc<Metrics>) -> Metered {
        let Loaded { predictor, device, meter } = loaded;
        let signature = predictor.signature().clone();
        let metered = Metered { predictor: Some(predictor), signature, meter, device, metrics, told: Mutex::default() };
        metered.tell();
        metered
    }

    fn tell(&self) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Told {
            bytes: self.meter.bytes(),
            busy: self.meter.busy(),
            dispatches: self.meter.dispatches(),
            submissions: self.meter.submissions(),
        };
        let families = &self.metrics.families;
        let device = [self.device.as_str()];
        // Versions share the series, so each adds its own part.
        families.gpu_memory.with_label_values(&[&self.device, OWNER]).add(now.bytes as f64 - told.bytes as f64);
        let busy = now.busy.saturating_sub(told.busy).as_secs_f64();
        families.gpu_busy_seconds.with_label_values(&device).inc_by(busy);
        let dispatches = now.dispatches.saturating_sub(told.dispatches);
        families.gpu_dispatches.with_label_values(&device).inc_by(dispatches as f64);
        let submissions = now.submissions.saturating_sub(told.submissions);
        families.gpu_submissions.with_label_values(&device).inc_by(submissions as f64);
        *told = now;
    }
}

impl Predictor for Metered {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn predict(
        &self,
        inputs: Vec<Tensor>,
        limit: Duration,
        pieces: Option<Arc<dyn PieceSink>>,
    ) -> Result<Vec<Tensor>, PluginError> {
        let predictor = self.predictor.as_ref().expect("it is taken when this is dropped, which nobody calls after");
        let outputs = predictor.predict(inputs, limit, pieces);
        self.tell();
        outputs
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        drop(self.predictor.take());
        self.tell();
    }
}
