//! One prediction, independent of the protocol: it leases a version, waits in its queue, computes, and returns the
//! outputs with timings. Protocols decode inputs and encode outputs by the version's signature.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use saggar_metrics::MetricsRegistry;
use saggar_plugin::{ModelSignature, NamedTensor, PieceSink};

use super::decode::PredictionInputs;
use super::keep_alive::KeepAliveOverride;
use super::model_reference::ModelReference;
use super::outcome::{PredictionPhase, PredictionRecord};
use crate::app::AppState;
use crate::error::ApiError;
use crate::limits::{DEADLINE_DEFAULT, DEADLINE_MAX};
use crate::models::LiveVersion;
use crate::models::batch_queue;
use crate::models::response_cache::ResponseCache;
use crate::request_body::BufferedBody;
use crate::request_memory::{MemoryCharge, ResponseCharge, decode_bytes_max, prediction_bytes_max};

/// The request header with the deadline of a prediction in milliseconds.
const DEADLINE_HEADER: &str = "x-saggar-deadline-ms";

/// The response header with a warning about how the inputs were decoded. There can be several.
const WARNING_HEADER: &str = "x-saggar-warning";

/// The deadline of a prediction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PredictionDeadline {
    began: Instant,
    /// The time that the client allows, or `None` for the default.
    limit: Option<Duration>,
}

impl PredictionDeadline {
    /// Returns the deadline that the client sets, or the default, starting now. Call it when the request has arrived.
    ///
    /// # Errors
    /// Returns `Parameter` if the header is not a positive number.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Result<PredictionDeadline, ApiError> {
        let began = Instant::now();
        let Some(value) = headers.get(DEADLINE_HEADER) else { return Ok(PredictionDeadline { began, limit: None }) };
        let milliseconds = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok()).filter(|&ms| ms > 0);
        let milliseconds = milliseconds.ok_or_else(|| ApiError::Parameter {
            name: "X-Saggar-Deadline-Ms",
            expected: "a whole number of milliseconds above 0",
            got: String::from_utf8_lossy(value.as_bytes()).chars().take(80).collect(),
        })?;
        Ok(PredictionDeadline::starting_at(began, Duration::from_millis(milliseconds)))
    }

    /// Returns the deadline `limit` after `began`, for protocols that set it in another way.
    pub(crate) fn starting_at(began: Instant, limit: Duration) -> PredictionDeadline {
        PredictionDeadline { began, limit: Some(limit.min(DEADLINE_MAX)) }
    }

    /// Returns the deadline with this limit if the client set none.
    fn or_default_limit(self, limit: Duration) -> PredictionDeadline {
        PredictionDeadline { limit: Some(self.limit.unwrap_or(limit)), ..self }
    }

    fn limit(&self) -> Duration {
        self.limit.unwrap_or(DEADLINE_DEFAULT)
    }

    /// Returns the time of the deadline.
    pub(crate) fn until(&self) -> Instant {
        self.began + self.limit()
    }
}

/// A prediction that holds a lease of its version.
#[derive(Debug)]
pub(crate) struct PredictionCall {
    app: AppState,
    record: PredictionRecord,
    deadline: PredictionDeadline,
    /// The memory that it takes: for decoding, then for inputs, outputs and the encoded response.
    charge: MemoryCharge,
}

impl PredictionCall {
    /// Leases the version that `reference` refers to, or the default model if `None`. A sleeping model is woken, and
    /// the request waits for it. Call it once the body is complete, because a slow client must not keep a version from
    /// draining. `keep` is the keep-alive time that the client requests. Charges the memory for decoding the body.
    ///
    /// # Errors
    /// Returns an error if the model or version does not exist or is not ready or its queue is full, the errors of
    /// [`KeepAliveOverride::apply`], `MemoryFull` or `MemoryShare`.
    pub(crate) async fn begin(
        app: &AppState,
        reference: Option<&ModelReference>,
        deadline: PredictionDeadline,
        keep: Option<KeepAliveOverride>,
        body: &BufferedBody,
    ) -> Result<PredictionCall, ApiError> {
        let lease = app.models().lease(reference, deadline.until()).await;
        let lease = lease.inspect_err(|error| count_rejection(app.metrics(), error))?;
        if let Some(keep) = keep {
            keep.apply(app, &lease.live_version().model).await?;
        }
        let deadline = deadline.or_default_limit(lease.live_version().policy().deadline);
        let mut charge = body.new_charge();
        let bytes = decode_bytes_max(lease.live_version().predictor().signature(), &body.bytes);
        let charged = charge.resize(bytes, Some(deadline.until())).await;
        charged.inspect_err(|error| count_rejection(app.metrics(), error))?;
        Ok(PredictionCall { app: app.clone(), record: PredictionRecord::new(Arc::new(lease)), deadline, charge })
    }

    /// Returns the inputs and outputs of the version.
    pub(crate) fn signature(&self) -> &ModelSignature {
        self.live_version().predictor().signature()
    }

    /// Returns the version.
    pub(crate) fn live_version(&self) -> &Arc<LiveVersion> {
        self.record.live_version()
    }

    /// Returns the deadline.
    pub(crate) fn deadline(&self) -> PredictionDeadline {
        self.deadline
    }

    /// Limits the deadline to `limit` after the request's arrival.
    pub(crate) fn cap_deadline(&mut self, limit: Duration) {
        self.deadline.limit = Some(self.deadline.limit().min(limit));
    }

    /// Runs `decode`, which decodes a body into inputs. Records its duration and failure.
    ///
    /// # Errors
    /// Returns the errors of `decode`.
    pub(crate) fn decode<T, E: Into<ApiError>>(
        &mut self,
        decode: impl FnOnce(&ModelSignature) -> Result<T, E>,
    ) -> Result<T, ApiError> {
        let began = Instant::now();
        let result = decode(self.signature()).map_err(Into::into);
        self.record_decode(began, result)
    }

    /// Records the result of decoding that started at `began`, as [`PredictionCall::decode`] does.
    pub(crate) fn record_decode<T>(&mut self, began: Instant, result: Result<T, ApiError>) -> Result<T, ApiError> {
        self.record.observe_phase(PredictionPhase::Decode, began.elapsed());
        if result.is_err() {
            self.record.finish(self.app.metrics(), &result);
        }
        result
    }

    /// Computes the prediction. Dropping the future cancels it.
    ///
    /// # Errors
    /// Returns `DeadlineQueued`, `MemoryFull`, `MemoryShare`, or the plugin's error.
    pub(crate) async fn run(self, inputs: PredictionInputs) -> Result<CompletedPrediction, ApiError> {
        self.run_with_sink(inputs, None).await
    }

    /// Computes as [`PredictionCall::run`] does. Chunks that the plugin sends early go to `sink`.
    pub(crate) async fn run_with_sink(
        mut self,
        mut inputs: PredictionInputs,
        sink: Option<Arc<dyn PieceSink>>,
    ) -> Result<CompletedPrediction, ApiError> {
        let (items, warnings) = (inputs.items, std::mem::take(&mut inputs.warnings));
        self.record.set_computing();
        let result = self.find_cached_or_compute(inputs, sink).await;
        if let Err(error) = &result {
            count_rejection(self.app.metrics(), error);
        }
        self.record.finish(self.app.metrics(), &result);
        let (tensors, times, cached) = result?;
        if cached != Some(true) {
            self.record.observe_phase(PredictionPhase::Queue, times.queue);
            self.record.observe_phase(PredictionPhase::Compute, times.compute);
        }
        self.record.set_answer(items.unwrap_or(1), cached);
        Ok(CompletedPrediction { tensors, items, warnings, timings: times, cached, call: self })
    }

    /// Returns the cached answer if the model has a cache that contains it, else computes.
    async fn find_cached_or_compute(
        &mut self,
        inputs: PredictionInputs,
        sink: Option<Arc<dyn PieceSink>>,
    ) -> Result<(Vec<NamedTensor>, ComputeTimings, Option<bool>), ApiError> {
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
    ) -> Result<(Vec<NamedTensor>, ComputeTimings), ApiError> {
        let (until, limit) = (self.deadline.until(), self.deadline.limit());
        if until <= Instant::now() {
            return Err(ApiError::DeadlineQueued { limit });
        }
        self.charge.resize(prediction_bytes_max(self.signature(), &inputs), Some(until)).await?;
        let lease = Arc::clone(self.record.lease());
        let shadow = self.app.models().draw_shadow(self.live_version(), &inputs, &self.charge);
        // The charge moves with the inputs, which can outlive this call if its deadline passes.
        let charge = self.charge.take();
        let (computed, charge) =
            batch_queue::enqueue_and_wait(batch_queue::PredictionRequest { inputs, until, limit, sink, lease, charge })
                .await?;
        self.charge = charge;
        let times = ComputeTimings { queue: computed.queue, compute: computed.compute };
        self.live_version().mark_used(self.app.now_ms());
        if let Some(shadow) = shadow {
            shadow.spawn_and_compare(until, limit, &computed.tensors);
        }
        Ok((computed.tensors, times))
    }
}

/// The reasons under which [`count_rejection`] counts.
pub(crate) const REJECTION_REASONS: [&str; 5] = ["queue_full", "deadline", "not_ready", "too_large", "memory"];

/// Counts a request that was refused before it reached its model.
pub(crate) fn count_rejection(metrics: &MetricsRegistry, error: &ApiError) {
    let reason = match error {
        ApiError::QueueFull { .. } | ApiError::NoTimeLeft { .. } => "queue_full",
        ApiError::DeadlineQueued { .. } => "deadline",
        ApiError::NotReady { .. } | ApiError::NothingReady | ApiError::VersionNotServing { .. } => "not_ready",
        ApiError::TooLarge { .. } => "too_large",
        ApiError::MemoryFull | ApiError::MemoryShare { .. } => "memory",
        _ => return,
    };
    debug_assert!(REJECTION_REASONS.contains(&reason), "{reason}");
    metrics.families.requests_rejected.with_label_values(&[reason]).inc();
}

/// Durations of the phases of a prediction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ComputeTimings {
    pub(crate) queue: Duration,
    pub(crate) compute: Duration,
}

/// The result of a prediction.
#[derive(Debug)]
pub(crate) struct CompletedPrediction {
    /// The outputs in the signature's order, of shape `[items, item...]`; one item if no batch was requested.
    pub(crate) tensors: Vec<NamedTensor>,
    /// The requested batch size, or `None` for one item without a batch dimension.
    pub(crate) items: Option<usize>,
    /// Warnings to the client about how the inputs were decoded.
    warnings: Vec<String>,
    /// The durations.
    pub(crate) timings: ComputeTimings,
    /// Whether it came from the model's cache, or `None` if it has no cache.
    cached: Option<bool>,
    call: PredictionCall,
}

impl CompletedPrediction {
    /// Returns the inputs and outputs of the version.
    pub(crate) fn signature(&self) -> &ModelSignature {
        self.call.signature()
    }

    /// Returns the version that answered.
    pub(crate) fn live_version(&self) -> &Arc<LiveVersion> {
        self.call.live_version()
    }

    /// Runs `encode`. Records its duration and failure.
    ///
    /// # Errors
    /// Returns the errors of `encode`.
    pub(crate) fn encode<T, E: Into<ApiError>>(
        &mut self,
        encode: impl FnOnce(&CompletedPrediction) -> Result<T, E>,
    ) -> Result<T, ApiError> {
        let began = Instant::now();
        let encoded = encode(self).map_err(Into::into);
        self.call.record.observe_phase(PredictionPhase::Encode, began.elapsed());
        if encoded.is_err() {
            self.call.record.finish(self.call.app.metrics(), &encoded);
        }
        encoded
    }

    /// Returns the charge of the encoded response, of `bytes` if known. Drops the outputs.
    pub(crate) fn take_response_charge(&mut self, bytes: Option<u64>) -> MemoryCharge {
        self.tensors = Vec::new();
        let mut charge = self.call.charge.take();
        // A text that is longer than estimated is already allocated, so a failed charge is ignored.
        let _ = charge.try_resize(bytes.unwrap_or(charge.bytes()));
        charge
    }

    /// Encodes the result into a response with the headers that name the version.
    ///
    /// # Errors
    /// Returns the errors of `encode`.
    pub(crate) fn respond<B: Into<Body>, E: Into<ApiError>>(
        mut self,
        content_type: &'static str,
        encode: impl FnOnce(&CompletedPrediction) -> Result<B, E>,
    ) -> Result<Response, ApiError> {
        let body: Body = self.encode(encode)?.into();
        let charge = self.take_response_charge(body.size_hint().exact());
        let mut response = Response::new(body);
        response.extensions_mut().insert(ResponseCharge::new(charge));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        self.live_version().headers().add_to(headers);
        if let Ok(timing) = HeaderValue::from_str(&self.timings.server_timing(self.call.deadline.began.elapsed())) {
            headers.insert("server-timing", timing);
        }
        add_warnings(&self.warnings, headers);
        if let Some(hit) = self.cached {
            headers.insert("x-saggar-cache", HeaderValue::from_static(if hit { "hit" } else { "miss" }));
        }
        Ok(response)
    }
}

/// Adds the warnings about how the inputs were decoded to the headers.
pub(super) fn add_warnings(warnings: &[String], headers: &mut HeaderMap) {
    for value in warnings.iter().filter_map(|warning| HeaderValue::from_bytes(warning.as_bytes()).ok()) {
        headers.append(WARNING_HEADER, value);
    }
}

impl ComputeTimings {
    fn server_timing(&self, total: Duration) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        format!("queue;dur={:.3}, compute;dur={:.3}, total;dur={:.3}", ms(self.queue), ms(self.compute), ms(total))
    }
}
