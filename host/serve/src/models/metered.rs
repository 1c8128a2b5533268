//! A model version whose use of its device shows in the metrics: what it holds, and what it took.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use saggar_device::Meter;
use saggar_metrics::Metrics;
use saggar_plugin::{LoadedModel, PluginError, Signature, Terms};

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
    written_bytes: u64,
    read_bytes: u64,
}

/// A meter, and what the metrics were told of it. Where versions share one, its use is told once.
#[derive(Debug)]
pub struct Account {
    meter: Meter,
    told: Mutex<Told>,
}

impl Account {
    /// An account of what the meter counts.
    pub fn new(meter: Meter) -> Account {
        Account { meter, told: Mutex::default() }
    }

    /// Device bytes held now.
    pub fn bytes(&self) -> u64 {
        self.meter.bytes()
    }

    /// Adds to the metrics what changed since they were told last. Nothing where another thread is about it.
    fn tell(&self, metrics: &Metrics, device: &str, wait: bool) {
        let mut told = if wait {
            self.told.lock().unwrap_or_else(PoisonError::into_inner)
        } else {
            let Ok(told) = self.told.try_lock() else { return };
            told
        };
        let meter = &self.meter;
        let (bytes, busy) = (meter.bytes(), meter.busy_time());
        let (dispatches, submissions) = (meter.dispatches(), meter.submissions());
        let (written_bytes, read_bytes) = (meter.written_bytes(), meter.read_bytes());
        let families = &metrics.families;
        if bytes != told.bytes {
            // Versions share the series, so each adds its own part.
            families.gpu_memory.with_label_values(&[device, OWNER]).add(bytes as f64 - told.bytes as f64);
        }
        if dispatches != told.dispatches {
            let of = [device];
            families.gpu_busy_seconds.with_label_values(&of).inc_by(busy.saturating_sub(told.busy).as_secs_f64());
            families.gpu_dispatches.with_label_values(&of).inc_by(dispatches.saturating_sub(told.dispatches) as f64);
            families.gpu_submissions.with_label_values(&of).inc_by(submissions.saturating_sub(told.submissions) as f64);
        }
        for (direction, now, before) in
            [("host_to_device", written_bytes, told.written_bytes), ("device_to_host", read_bytes, told.read_bytes)]
        {
            if now != before {
                families.tensor_copy.with_label_values(&[device, direction]).inc_by(now.saturating_sub(before));
            }
        }
        *told = Told { bytes, busy, dispatches, submissions, written_bytes, read_bytes };
    }
}

/// Tells the metrics after each batch and when the version is freed.
#[derive(Debug)]
pub(super) struct Metered {
    /// None only while it is dropped.
    predictor: Option<Arc<dyn Predictor>>,
    signature: Signature,
    accounts: Vec<Arc<Account>>,
    device: String,
    metrics: Arc<Metrics>,
}

impl Metered {
    pub(super) fn new(loaded: Loaded, metrics: Arc<Metrics>) -> Metered {
        let Loaded { predictor, device, accounts, .. } = loaded;
        let signature = predictor.signature().clone();
        let metered = Metered { predictor: Some(predictor), signature, accounts, device, metrics };
        metered.tell(true);
        metered
    }

    fn tell(&self, wait: bool) {
        for account in &self.accounts {
            account.tell(&self.metrics, &self.device, wait);
        }
    }
}

impl Predictor for Metered {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn bytes(&self) -> u64 {
        self.accounts.iter().map(|account| account.bytes()).sum()
    }

    fn calls_driver(&self) -> bool {
        self.predictor.as_ref().is_some_and(|predictor| predictor.calls_driver())
    }

    fn on_device(&self) -> Option<&LoadedModel> {
        self.predictor.as_ref()?.on_device()
    }

    fn called_on_device(&self) {
        self.tell(false);
    }

    fn predict(&self, inputs: Vec<Tensor>, terms: &Terms) -> Result<Vec<Tensor>, PluginError> {
        let predictor = self.predictor.as_ref().expect("it is taken when this is dropped, which nobody calls after");
        let outputs = predictor.predict(inputs, terms);
        self.tell(false);
        outputs
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        drop(self.predictor.take());
        self.tell(true);
    }
}
