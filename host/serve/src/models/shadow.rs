//! A shadow: a version that repeats predictions of another one. Nobody gets its answers; they are compared and counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_metrics::Metrics;

use super::queue::{self, Request};
use super::version::{Lease, Serving};
use crate::memory::{MemoryCharge, run_bytes};
use crate::predict::decode::{Inputs, Tensor};

/// A prediction that is to be repeated, with a place in the shadow's queue.
#[derive(Debug)]
pub(crate) struct Shadow {
    lease: Arc<Lease>,
    inputs: Inputs,
    charge: MemoryCharge,
    metrics: Arc<Metrics>,
}

impl Shadow {
    /// A repetition by `serving`; none where its signature does not take these inputs, or its queue is full, or the
    /// client has no memory left for it in `charge`: shadows never hold up anybody.
    pub(super) fn of(
        serving: &Arc<Serving>,
        inputs: &Inputs,
        mut charge: MemoryCharge,
        metrics: &Arc<Metrics>,
    ) -> Option<Shadow> {
        let ports = &serving.predictor().signature().inputs;
        let takes = ports.len() == inputs.tensors.len()
            && ports.iter().zip(&inputs.tensors).all(|(port, tensor)| {
                let item = tensor.descriptor.shape.dims().get(1..);
                port.name == tensor.name
                    && port.item.dtype == tensor.descriptor.dtype
                    && item == Some(port.item.shape.dims())
            });
        let takes = takes && charge.try_resize(run_bytes(serving.predictor().signature(), inputs));
        match serving.lease().filter(|_| takes) {
            Some(lease) => {
                let (inputs, metrics) = (inputs.clone(), Arc::clone(metrics));
                Some(Shadow { lease: Arc::new(lease), inputs, charge, metrics })
            }
            None => {
                count(metrics, serving, "dropped");
                None
            }
        }
    }

    /// Repeats the prediction, which gave `expected`, in the background.
    pub(crate) fn follow(self, until: Instant, limit: Duration, expected: &[Tensor]) {
        let Shadow { lease, inputs, charge, metrics } = self;
        let expected = expected.to_vec();
        tokio::spawn(async move {
            let request = Request { inputs, until, limit, sink: None, lease: Arc::clone(&lease), charge };
            let result = match queue::compute(request).await {
                Ok((computed, _)) if computed.tensors == expected => "same",
                Ok(_) => "different",
                Err(_) => "failed",
            };
            count(&metrics, lease.serving(), result);
        });
    }
}

/// Results of `saggar_shadow_requests_total`.
pub(super) const SHADOW_RESULTS: [&str; 4] = ["same", "different", "failed", "dropped"];

fn count(metrics: &Metrics, serving: &Serving, result: &'static str) {
    let version = serving.version.to_string();
    // A shadow is one by its model's settings, so its counters begin together, with its first prediction.
    let counters =
        SHADOW_RESULTS.map(|it| metrics.families.shadow_requests.with_label_values(&[&serving.model, &version, it]));
    if let Some(at) = SHADOW_RESULTS.iter().position(|it| *it == result) {
        counters[at].inc();
    }
}
