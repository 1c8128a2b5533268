//! `ModelStreamInfer`: predictions on one stream in both directions.
//!
//! The predictions run at the same time, up to a limit, and their responses are sent in the order of the requests. What a
//! model sends early are separate responses with the parameter `triton_final_response` false; the last response has
//! all outputs, and the parameter true. A request that fails is answered with an error message, and the stream
//! continues.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::response::Response;
use futures::stream;
use saggar_plugin::PieceSink;
use saggar_serving::PredictionDeadline;
use saggar_serving::shutdown::wait_for_shutdown;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout_at;
use tracing::Instrument;

use super::infer::begin_prediction;
use super::infer_request::{GrpcInferHead, read_head};
use super::infer_response::{GrpcPieces, ResponseEnvelope, encode_answer, encode_stream_error};
use crate::access::{AccessError, StreamAuthorization};
use crate::app::AppState;
use crate::content_encoding::ContentEncoding;
use crate::error::ApiError;
use crate::grpc::call_head::CallHead;
use crate::grpc::response::{FramedMessage, stream_response};
use crate::grpc::status::GrpcStatus;
use crate::limits::{INFER_BYTES_MAX, PIECES_WAITING_MAX, STREAM_PREDICTIONS_MAX};
use crate::predict::begin_call::count_body_rejection;
use crate::predict::keep_alive::KeepAliveOverride;
use crate::predict::piece_sink::EncodedPieceSink;
use crate::request_body::BufferedBody;
use crate::request_body::message_stream::MessageStream;

/// Handles `ModelStreamInfer`.
pub(crate) async fn model_stream_infer(
    State(app): State<AppState>,
    authorization: StreamAuthorization,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let (head, keep) = (CallHead::read(&parts)?, KeepAliveOverride::from_request(&parts)?);
    let messages = app.body_reader().messages(&parts, body, head.coding, INFER_BYTES_MAX);
    let (started, pending) = mpsc::channel(STREAM_PREDICTIONS_MAX);
    let stopping = app.shutdown();
    let reader = StreamRequests { app, messages, authorization, head, keep, started, stopping };
    // Dropping the set, as when the client disconnects, cancels the predictions.
    let mut reading = JoinSet::new();
    reading.spawn(reader.run().in_current_span());
    let coding = head.response_coding;
    let responses = StreamResponses { reading, pending, current: None, coding };
    let until = head.time_left().map(|left| Instant::now() + left);
    let next = move |responses: StreamResponses| async move {
        match until {
            None => responses.next().await,
            Some(until) => {
                let next = timeout_at(until.into(), responses.next()).await;
                next.unwrap_or_else(|_| Err(GrpcStatus::deadline_exceeded()))
            }
        }
    };
    Ok(stream_response(stream::try_unfold(responses, next), coding))
}

/// The responses to one request, as they are computed.
type RequestResponses = mpsc::Receiver<FramedMessage>;

/// The responses of a stream.
struct StreamResponses {
    /// The task that reads the requests.
    reading: JoinSet<Result<(), ApiError>>,
    /// The requests that were read, in order.
    pending: mpsc::Receiver<RequestResponses>,
    /// The request whose responses are sent now.
    current: Option<RequestResponses>,
    coding: Option<ContentEncoding>,
}

impl StreamResponses {
    async fn next(mut self) -> Result<Option<(FramedMessage, StreamResponses)>, GrpcStatus> {
        loop {
            if let Some(current) = &mut self.current
                && let Some(message) = current.recv().await
            {
                let message = match self.coding {
                    Some(coding) => message.compress(coding).await.map_err(|error| status(&error))?,
                    None => message,
                };
                return Ok(Some((message, self)));
            }
            self.current = self.pending.recv().await;
            if self.current.is_none() {
                break;
            }
        }
        match self.reading.join_next().await {
            None | Some(Ok(Ok(()))) => Ok(None),
            Some(Ok(Err(error))) => Err(status(&error)),
            Some(Err(error)) => Err(status(&lost(&error))),
        }
    }
}

fn status(error: &ApiError) -> GrpcStatus {
    GrpcStatus::from_error(&error.body())
}

fn lost(error: &JoinError) -> ApiError {
    ApiError::Internal { cause: format!("predicting: {error}") }
}

/// The requests of a stream.
struct StreamRequests {
    app: AppState,
    messages: MessageStream,
    authorization: StreamAuthorization,
    head: CallHead,
    /// Applied to the model of the first request.
    keep: Option<KeepAliveOverride>,
    started: mpsc::Sender<RequestResponses>,
    stopping: watch::Receiver<bool>,
}

impl StreamRequests {
    /// Reads requests and computes them until the client ends its side.
    async fn run(mut self) -> Result<(), ApiError> {
        let mut predictions = JoinSet::new();
        let read = self.read_all(&mut predictions).await;
        while let Some(ended) = predictions.join_next().await {
            ended.map_err(|error| lost(&error))?;
        }
        read
    }

    async fn read_all(&mut self, predictions: &mut JoinSet<()>) -> Result<(), ApiError> {
        let mut is_first = true;
        loop {
            let received = tokio::select! {
                received = self.messages.next() => received,
                () = wait_for_shutdown(&mut self.stopping) => return Err(ApiError::Stopping),
            };
            let received = received.inspect_err(|error| count_body_rejection(self.app.metrics(), error))?;
            let Some(message) = received else { return Ok(()) };
            let (queue, responses) = mpsc::channel(PIECES_WAITING_MAX);
            // Waits while as many predictions run as are allowed. The client has gone if this fails.
            if self.started.send(responses).await.is_err() {
                return Ok(());
            }
            // The first request was counted with the stream.
            let counted = if is_first { Ok(()) } else { self.count_request() };
            is_first = false;
            match counted {
                Ok(()) => {
                    let prediction = StreamPrediction { app: self.app.clone(), head: self.head, queue };
                    predictions.spawn(prediction.run(message, self.keep.take()).in_current_span());
                }
                Err(error @ AccessError::UnknownKey) => return Err(error.into()),
                Err(error) => refuse(&message, &queue, &error.into()).await,
            }
            while let Some(ended) = predictions.try_join_next() {
                ended.map_err(|error| lost(&error))?;
            }
        }
    }

    fn count_request(&self) -> Result<(), AccessError> {
        self.app.access().count_stream_request(&self.authorization, self.app.now_ms())
    }
}

/// Answers a request that is not computed.
async fn refuse(message: &BufferedBody, queue: &mpsc::Sender<FramedMessage>, error: &ApiError) {
    let id = read_head(&message.bytes).map(|head| head.id).unwrap_or_default();
    // The client has gone if this fails.
    let _ = queue.send(encode_stream_error(&id, error)).await;
}

/// One prediction of a stream.
struct StreamPrediction {
    app: AppState,
    head: CallHead,
    queue: mpsc::Sender<FramedMessage>,
}

impl StreamPrediction {
    async fn run(self, message: BufferedBody, keep: Option<KeepAliveOverride>) {
        let head = read_head(&message.bytes);
        let id = head.as_ref().map(|head| head.id.clone()).unwrap_or_default();
        let predicted = match head {
            Ok(head) => self.predict(message, &head, keep).await,
            Err(error) => Err(error),
        };
        let last = predicted.unwrap_or_else(|error| encode_stream_error(&id, &error));
        // The client has gone if this fails.
        let _ = self.queue.send(last).await;
    }

    /// Computes a prediction and returns its last response.
    async fn predict(
        &self,
        message: BufferedBody,
        head: &GrpcInferHead,
        keep: Option<KeepAliveOverride>,
    ) -> Result<FramedMessage, ApiError> {
        let deadline = PredictionDeadline::default_from(Instant::now());
        let (mut call, request) = begin_prediction(&self.app, message, head, deadline, keep).await?;
        if let Some(left) = self.head.time_left() {
            call.cap_deadline(left);
        }
        let pieces = GrpcPieces::new(call.live_version(), call.signature(), &head.id);
        let sink = Arc::new(EncodedPieceSink::new(&call, request.inputs.items, pieces, self.queue.clone()));
        let pieces: Arc<dyn PieceSink> = Arc::<EncodedPieceSink<GrpcPieces>>::clone(&sink);
        let mut answer = call.run_with_sink(request.inputs, Some(pieces)).await?;
        sink.send_remaining_text().await;
        let encode = |answer: &_| encode_answer(answer, &request.outputs, &head.id, ResponseEnvelope::Stream);
        let bytes = answer.encode(|answer| encode(answer).map_err(ApiError::from))?;
        let charge = answer.take_response_charge(Some(bytes.len() as u64));
        Ok(FramedMessage { bytes: bytes.into(), charge: Some(charge) })
    }
}
