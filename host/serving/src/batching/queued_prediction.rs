//! A prediction in the queue of its version, and its result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use saggar_plugin::{NamedTensor, PieceSink, PluginError};
use saggar_telemetry::request_trace::BatchTimes;
use tokio::sync::oneshot;

use crate::metrics::version_metrics::GaugeGuard;
use crate::prediction::prediction_inputs::PredictionInputs;
use crate::request_memory::MemoryCharge;

/// A prediction to be computed.
pub(crate) struct PredictionRequest {
    pub(crate) inputs: PredictionInputs,
    /// The client's deadline, and its duration from the start of the request.
    pub(crate) until: Instant,
    pub(crate) limit: Duration,
    /// Receives chunks of the outputs. A request with a sink runs alone.
    pub(crate) sink: Option<Arc<dyn PieceSink>>,
    /// Keeps the version loaded until the request is answered.
    pub(crate) _lease: Arc<dyn Send + Sync>,
    /// The memory charge of its inputs and outputs.
    pub(crate) charge: MemoryCharge,
}

/// The result of a request.
#[derive(Debug)]
pub(crate) struct ComputedPrediction {
    /// The outputs in the signature's order.
    pub(crate) tensors: Vec<NamedTensor>,
    /// Time in the queue.
    pub(crate) queue: Duration,
    /// Duration of the batch.
    pub(crate) compute: Duration,
    /// The batch.
    pub(crate) batch: BatchTimes,
}

/// The result of a request, with the memory charge that came with it.
pub(super) type PredictionResult = Result<(ComputedPrediction, MemoryCharge), PluginError>;

/// A request in the queue or in a batch.
pub(super) struct QueuedPrediction {
    pub(super) request: PredictionRequest,
    pub(super) items: usize,
    pub(super) since: Instant,
    /// Set when the client no longer waits for the result.
    pub(super) cancelled: Arc<AtomicBool>,
    /// Whether it must not share a batch with others.
    pub(super) is_alone: bool,
    pub(super) reply: oneshot::Sender<PredictionResult>,
    pub(super) ticket: u64,
    /// Counts it as queued until it is taken into a batch.
    pub(super) queued: Option<GaugeGuard>,
}

impl QueuedPrediction {
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Sends the result and releases the version.
    pub(super) fn reply(self, result: Result<ComputedPrediction, PluginError>) {
        let QueuedPrediction { request, reply, .. } = self;
        // The receiver is gone if the client no longer waits.
        let _ = reply.send(result.map(|computed| (computed, request.charge)));
    }
}
