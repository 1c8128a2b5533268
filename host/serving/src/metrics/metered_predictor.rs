//! A predictor that adds its device usage to the metrics.

use std::sync::Arc;

use saggar_metrics::MetricsRegistry;
use saggar_plugin::{
    HandlerOptions, HandlerRequest, HandlerResponse, LoadedModel, ModelSignature, NamedTensor, PluginError,
    PredictionOptions,
};

use super::device_usage::DeviceUsageAccount;
use crate::predictor::{LoadedVersion, ModelPredictor};

/// A predictor that reports its device usage after each batch and when the version is freed.
#[derive(Debug)]
pub(crate) struct MeteredPredictor {
    /// `None` only while it is dropped.
    predictor: Option<Arc<dyn ModelPredictor>>,
    signature: ModelSignature,
    device_usage: Vec<Arc<DeviceUsageAccount>>,
    device: String,
    metrics: Arc<MetricsRegistry>,
}

impl MeteredPredictor {
    pub(crate) fn new(loaded: LoadedVersion, metrics: Arc<MetricsRegistry>) -> MeteredPredictor {
        let LoadedVersion { predictor, device, device_usage: accounts, .. } = loaded;
        let signature = predictor.signature().clone();
        let metered =
            MeteredPredictor { predictor: Some(predictor), signature, device_usage: accounts, device, metrics };
        metered.report(true);
        metered
    }

    fn report(&self, wait: bool) {
        for account in &self.device_usage {
            account.report(&self.metrics, &self.device, wait);
        }
    }
}

impl ModelPredictor for MeteredPredictor {
    fn signature(&self) -> &ModelSignature {
        &self.signature
    }

    fn device_bytes(&self) -> u64 {
        self.device_usage.iter().map(|account| account.bytes()).sum()
    }

    fn calls_driver(&self) -> bool {
        self.predictor.as_ref().is_some_and(|predictor| predictor.calls_driver())
    }

    fn device_model(&self) -> Option<&LoadedModel> {
        self.predictor.as_ref()?.device_model()
    }

    fn report_device_use(&self) {
        self.report(false);
    }

    fn predict(&self, inputs: Vec<NamedTensor>, terms: &PredictionOptions) -> Result<Vec<NamedTensor>, PluginError> {
        let predictor = self.predictor.as_ref().expect("it is only taken when this is dropped");
        let outputs = predictor.predict(inputs, terms);
        self.report(false);
        outputs
    }

    fn handle(
        &self,
        request: HandlerRequest,
        options: &HandlerOptions,
    ) -> Result<Option<HandlerResponse>, PluginError> {
        let predictor = self.predictor.as_ref().expect("it is only taken when this is dropped");
        let response = predictor.handle(request, options);
        self.report(false);
        response
    }
}

impl Drop for MeteredPredictor {
    fn drop(&mut self) {
        drop(self.predictor.take());
        self.report(true);
    }
}
