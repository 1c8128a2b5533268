//! Shadow traffic: a version repeats predictions of another one. Its answers are only compared and counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_metrics::MetricsRegistry;
use saggar_plugin::NamedTensor;

use super::memory_estimate::prediction_bytes_max;
use super::prediction_inputs::PredictionInputs;
use crate::batching::queued_prediction::PredictionRequest;
use crate::live_version::{LiveVersion, VersionLease};
use crate::metrics::version_metrics::SHADOW_RESULTS;
use crate::request_memory::MemoryCharge;

/// A prediction to be repeated, with a lease of the shadow version.
#[derive(Debug)]
pub(crate) struct ShadowPrediction {
    lease: Arc<VersionLease>,
    inputs: PredictionInputs,
    charge: MemoryCharge,
    metrics: Arc<MetricsRegistry>,
}

impl ShadowPrediction {
    /// Creates a repetition on `serving`. Returns `None` if its signature does not accept these inputs, its queue is
    /// full, or the client's memory share is exhausted, so that shadows never delay a client.
    pub(crate) fn try_new(
        serving: &Arc<LiveVersion>,
        inputs: &PredictionInputs,
        mut charge: MemoryCharge,
        metrics: &Arc<MetricsRegistry>,
    ) -> Option<ShadowPrediction> {
        let ports = &serving.predictor().signature().inputs;
        let is_accepted = ports.len() == inputs.tensors.len()
            && ports.iter().zip(&inputs.tensors).all(|(port, tensor)| {
                let item = tensor.descriptor.shape.dims().get(1..);
                port.name == tensor.name
                    && port.item.dtype == tensor.descriptor.dtype
                    && item == Some(port.item.shape.dims())
            });
        let is_accepted =
            is_accepted && charge.try_resize(prediction_bytes_max(serving.predictor().signature(), inputs));
        match serving.try_lease().filter(|_| is_accepted) {
            Some(lease) => {
                let (inputs, metrics) = (inputs.clone(), Arc::clone(metrics));
                Some(ShadowPrediction { lease: Arc::new(lease), inputs, charge, metrics })
            }
            None => {
                count_shadow_result(metrics, serving, "dropped");
                None
            }
        }
    }

    /// Repeats the prediction in the background and compares the result with `expected`.
    pub(crate) fn spawn_and_compare(self, until: Instant, limit: Duration, expected: &[NamedTensor]) {
        let ShadowPrediction { lease, inputs, charge, metrics } = self;
        let expected = expected.to_vec();
        tokio::spawn(async move {
            let request = PredictionRequest {
                inputs,
                until,
                limit,
                sink: None,
                _lease: Arc::<VersionLease>::clone(&lease),
                charge,
            };
            let result = match lease.live_version().queue().enqueue_and_wait(request).await {
                Ok((computed, _)) if computed.tensors == expected => "same",
                Ok(_) => "different",
                Err(_) => "failed",
            };
            count_shadow_result(&metrics, lease.live_version(), result);
        });
    }
}

fn count_shadow_result(metrics: &MetricsRegistry, serving: &LiveVersion, result: &'static str) {
    let version = serving.version.to_string();
    // A version can become a shadow at any time, so its counters are created together at its first prediction.
    let counters =
        SHADOW_RESULTS.map(|it| metrics.families.shadow_requests.with_label_values(&[&serving.model, &version, it]));
    if let Some(at) = SHADOW_RESULTS.iter().position(|it| *it == result) {
        counters[at].inc();
    }
}
