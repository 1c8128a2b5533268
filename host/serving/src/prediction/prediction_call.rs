//! One prediction, independent of the protocol: it holds a lease of its version, waits in the version's queue,
//! computes, and returns the outputs with timings. Protocols decode inputs and encode outputs by the version's
//! signature.

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_plugin::{ModelSignature, NamedTensor, PieceSink};
use saggar_telemetry::RequestTrace;
use saggar_telemetry::request_trace::BatchTimes;

use super::deadline::PredictionDeadline;
use super::memory_estimate::prediction_bytes_max;
use super::prediction_inputs::PredictionInputs;
use super::prediction_record::PredictionRecord;
use super::prediction_sampler::{PredictionSample, SampleTicket};
use super::prediction_service::PredictionService;
use super::response_cache::ResponseCache;
use crate::batching::queued_prediction::PredictionRequest;
use crate::error::ServingError;
use crate::live_version::{LiveVersion, VersionLease};
use crate::metrics::prediction_outcome::{PredictionFailure, PredictionPhase};
use crate::metrics::statistics::RequestTimings;
use crate::request_memory::MemoryCharge;

/// A prediction that holds a lease of its version.
#[derive(Debug)]
pub struct PredictionCall {
    service: PredictionService,
    record: PredictionRecord,
    deadline: PredictionDeadline,
    /// The memory that it takes: for decoding, then for inputs, outputs and the encoded response.
    charge: MemoryCharge,
}

impl PredictionCall {
    /// Begins a prediction with a leased version. Sets `charge` to `decode_bytes`, the memory for decoding the body. If
    /// its request is observed, `trace` gets its phases when it ends.
    ///
    /// # Errors
    /// Returns `MemoryFull` or `MemoryShare`.
    pub async fn begin(
        service: &PredictionService,
        lease: VersionLease,
        deadline: PredictionDeadline,
        mut charge: MemoryCharge,
        decode_bytes: u64,
        trace: Option<RequestTrace>,
    ) -> Result<PredictionCall, ServingError> {
        let deadline = deadline.or_default_limit(lease.live_version().policy().deadline);
        let charged = charge.resize(decode_bytes, Some(deadline.until())).await;
        charged.inspect_err(|error| service.count_rejection(error))?;
        let (service, record) = (service.clone(), PredictionRecord::new(Arc::new(lease), trace, deadline.elapsed()));
        Ok(PredictionCall { service, record, deadline, charge })
    }

    /// Returns the inputs and outputs of the version.
    pub fn signature(&self) -> &ModelSignature {
        self.live_version().predictor().signature()
    }

    /// Returns the version.
    pub fn live_version(&self) -> &Arc<LiveVersion> {
        self.record.live_version()
    }

    /// Returns the deadline.
    pub fn deadline(&self) -> PredictionDeadline {
        self.deadline
    }

    /// Limits the deadline to `limit` after the request's arrival.
    pub fn cap_deadline(&mut self, limit: Duration) {
        self.deadline = self.deadline.capped(limit);
    }

    /// Runs `decode`, which decodes a body into inputs. Records its duration and failure.
    ///
    /// # Errors
    /// Returns the errors of `decode`.
    pub fn decode<T, E: PredictionFailure>(
        &mut self,
        decode: impl FnOnce(&ModelSignature) -> Result<T, E>,
    ) -> Result<T, E> {
        let began = Instant::now();
        let result = decode(self.signature());
        self.record_decode(began, result)
    }

    /// Records the result of decoding that started at `began`, as [`PredictionCall::decode`] does.
    ///
    /// # Errors
    /// Returns the error of `result`.
    pub fn record_decode<T, E: PredictionFailure>(&mut self, began: Instant, result: Result<T, E>) -> Result<T, E> {
        self.record.observe_phase(PredictionPhase::Decode, began.elapsed());
        if result.is_err() {
            self.record.finish(self.service.metrics(), &result);
        }
        result
    }

    /// Computes the prediction. Dropping the future cancels it.
    ///
    /// # Errors
    /// Returns `DeadlineQueued`, `MemoryFull`, `MemoryShare`, or the plugin's error.
    pub async fn run(self, inputs: PredictionInputs) -> Result<CompletedPrediction, ServingError> {
        self.run_with_sink(inputs, None).await
    }

    /// Computes as [`PredictionCall::run`] does. Chunks that the plugin sends early go to `sink`.
    ///
    /// # Errors
    /// Returns the errors of [`PredictionCall::run`].
    pub async fn run_with_sink(
        mut self,
        mut inputs: PredictionInputs,
        sink: Option<Arc<dyn PieceSink>>,
    ) -> Result<CompletedPrediction, ServingError> {
        let (items, warnings) = (inputs.items, std::mem::take(&mut inputs.warnings));
        let sample = self.draw_sample(&inputs);
        self.record.set_computing();
        let result = self.find_cached_or_compute(inputs, sink).await;
        if let Err(error) = &result {
            self.service.count_rejection(error);
        }
        self.record.finish(self.service.metrics(), &result);
        let (tensors, times, cached) = result?;
        if cached != Some(true) {
            self.record.observe_phase(PredictionPhase::Queue, times.queue);
            self.record.observe_phase(PredictionPhase::Compute, times.compute);
            self.record.set_batch(times.batch);
        }
        self.record.set_answer(items.unwrap_or(1), cached);
        if let Some((ticket, inputs)) = sample {
            self.keep_sample(inputs, &tensors, items.unwrap_or(1), ticket);
        }
        Ok(CompletedPrediction { tensors, items, warnings, timings: times, cached, call: self })
    }

    /// Returns a copy of the inputs, if this prediction is sampled.
    fn draw_sample(&self, inputs: &PredictionInputs) -> Option<(SampleTicket, Vec<NamedTensor>)> {
        let sampler = self.service.sampler()?;
        let given: usize = inputs.tensors.iter().map(|tensor| tensor.bytes.len()).sum();
        let item: usize = self.signature().outputs.iter().map(|port| port.item.bytes()).sum();
        let bytes = given.saturating_add(item.saturating_mul(inputs.items.unwrap_or(1)));
        let ticket = sampler.draw(&self.live_version().model, bytes)?;
        Some((ticket, inputs.tensors.clone()))
    }

    fn keep_sample(&self, inputs: Vec<NamedTensor>, outputs: &[NamedTensor], items: usize, ticket: SampleTicket) {
        let Some(sampler) = self.service.sampler() else { return };
        let (model, signature) = (self.live_version().model.clone(), self.signature().clone());
        sampler.keep(PredictionSample { model, signature, inputs, outputs: outputs.to_vec(), items, ticket });
    }

    /// Returns the cached answer if the model has a cache that contains it, else computes.
    async fn find_cached_or_compute(
        &mut self,
        inputs: PredictionInputs,
        sink: Option<Arc<dyn PieceSink>>,
    ) -> Result<(Vec<NamedTensor>, ComputeTimings, Option<bool>), ServingError> {
        let serving = Arc::clone(self.live_version());
        let Some(cache) = serving.cache().filter(|_| sink.is_none()) else {
            let (tensors, times) = self.compute(inputs, sink).await?;
            return Ok((tensors, times, None));
        };
        let key = ResponseCache::key(&inputs);
        let found = cache.get(&key);
        serving.metrics().record_cache_result(found.is_some());
        if let Some(tensors) = found {
            return Ok((Arc::unwrap_or_clone(tensors), ComputeTimings::default(), Some(true)));
        }
        let (tensors, times) = self.compute(inputs, sink).await?;
        cache.insert(key, &tensors);
        Ok((tensors, times, Some(false)))
    }

    async fn compute(
        &mut self,
        inputs: PredictionInputs,
        sink: Option<Arc<dyn PieceSink>>,
    ) -> Result<(Vec<NamedTensor>, ComputeTimings), ServingError> {
        let (until, limit) = (self.deadline.until(), self.deadline.limit());
        if until <= Instant::now() {
            return Err(ServingError::DeadlineQueued { limit });
        }
        self.charge.resize(prediction_bytes_max(self.signature(), &inputs), Some(until)).await?;
        let lease = Arc::clone(self.record.lease());
        let shadow = self.service.router().draw_shadow(self.live_version(), &inputs, &self.charge);
        // The charge moves with the inputs, which can outlive this call if its deadline passes.
        let charge = self.charge.take();
        let request = PredictionRequest { inputs, until, limit, sink, _lease: lease, charge };
        let (computed, charge) = self.live_version().queue().enqueue_and_wait(request).await?;
        self.charge = charge;
        let times = ComputeTimings { queue: computed.queue, compute: computed.compute, batch: Some(computed.batch) };
        self.live_version().mark_used(self.service.now_ms());
        if let Some(shadow) = shadow {
            shadow.spawn_and_compare(until, limit, &computed.tensors);
        }
        Ok((computed.tensors, times))
    }
}

/// Durations of the phases of a prediction.
#[derive(Clone, Copy, Debug, Default)]
pub struct ComputeTimings {
    /// Time in the queue.
    pub queue: Duration,
    /// Duration of the batch.
    pub compute: Duration,
    /// The batch, or `None` if the answer came from the cache.
    pub batch: Option<BatchTimes>,
}

/// The result of a prediction.
#[derive(Debug)]
pub struct CompletedPrediction {
    /// The outputs in the signature's order, of shape `[items, item...]`; one item if no batch was requested.
    pub tensors: Vec<NamedTensor>,
    /// The requested batch size, or `None` for one item without a batch dimension.
    pub items: Option<usize>,
    /// Warnings to the client about how the inputs were decoded.
    pub warnings: Vec<String>,
    /// The durations.
    pub timings: ComputeTimings,
    /// Whether it came from the model's cache, or `None` if it has no cache.
    pub cached: Option<bool>,
    call: PredictionCall,
}

impl CompletedPrediction {
    /// Returns the inputs and outputs of the version.
    pub fn signature(&self) -> &ModelSignature {
        self.call.signature()
    }

    /// Returns the version that answered.
    pub fn live_version(&self) -> &Arc<LiveVersion> {
        self.call.live_version()
    }

    /// Returns the durations of the phases that are over, and as `total` the time since the request's arrival.
    pub fn phase_timings(&self) -> RequestTimings {
        RequestTimings { total: self.call.deadline.elapsed(), ..self.call.record.timings() }
    }

    /// Runs `encode`. Records its duration and failure.
    ///
    /// # Errors
    /// Returns the errors of `encode`.
    pub fn encode<T, E: PredictionFailure>(
        &mut self,
        encode: impl FnOnce(&CompletedPrediction) -> Result<T, E>,
    ) -> Result<T, E> {
        let began = Instant::now();
        let encoded = encode(self);
        self.call.record.observe_phase(PredictionPhase::Encode, began.elapsed());
        if encoded.is_err() {
            self.call.record.finish(self.call.service.metrics(), &encoded);
        }
        encoded
    }

    /// Returns the charge of the encoded response, of `bytes` if known. Drops the outputs.
    pub fn take_response_charge(&mut self, bytes: Option<u64>) -> MemoryCharge {
        self.tensors = Vec::new();
        let mut charge = self.call.charge.take();
        // A text that is longer than estimated is already allocated, so a failed charge is ignored.
        let _ = charge.try_resize(bytes.unwrap_or(charge.bytes()));
        charge
    }
}
