//! `ModelInfer`, and the steps of a prediction that `ModelStreamInfer` shares.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::response::Response;
use saggar_serving::{PredictionCall, PredictionDeadline};
use tokio::task::JoinError;

use super::infer_request::{GrpcInferHead, GrpcInferRequest, read_head, read_request};
use super::infer_response::{ResponseEnvelope, encode_answer};
use crate::app::AppState;
use crate::error::ApiError;
use crate::grpc::call_head::CallHead;
use crate::grpc::response::{FramedMessage, unary_response};
use crate::limits::{INFER_BYTES_MAX, INLINE_BYTES_MAX};
use crate::predict::begin_call::{begin_call_of_numbers, count_body_rejection};
use crate::predict::keep_alive::KeepAliveOverride;
use crate::predict::respond::add_answer_headers;
use crate::request_body::BufferedBody;

/// The fewest bytes of a number: a varint.
const NUMBER_BYTES_MIN: usize = 1;

/// Handles `ModelInfer`.
pub(crate) async fn model_infer(State(app): State<AppState>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let (call_head, keep) = (CallHead::read(&parts)?, KeepAliveOverride::from_request(&parts)?);
    let messages = app.body_reader().messages(&parts, body, call_head.coding, INFER_BYTES_MAX);
    let message = messages.read_single().await;
    let message = message.inspect_err(|error| count_body_rejection(app.metrics(), error))?;
    let head = read_head(&message.bytes)?;
    let (call, request) = begin_prediction(&app, message, &head, call_head.deadline, keep).await?;
    let mut answer = call.run(request.inputs).await?;
    let encode = |answer: &_| encode_answer(answer, &request.outputs, &head.id, ResponseEnvelope::Unary);
    let bytes = answer.encode(|answer| encode(answer).map_err(ApiError::from))?;
    let charge = answer.take_response_charge(Some(bytes.len() as u64));
    let mut framed = FramedMessage { bytes: bytes.into(), charge: Some(charge) };
    if let Some(coding) = call_head.response_coding {
        framed = framed.compress(coding).await?;
    }
    let mut response = unary_response(framed, call_head.response_coding);
    add_answer_headers(&answer, response.headers_mut());
    Ok(response)
}

/// Leases the version and reads the request: on the executor, or on a blocking thread if it has many typed elements.
///
/// # Errors
/// Returns an error if the model does not exist or is not ready, or if the request does not fit it.
pub(super) async fn begin_prediction(
    app: &AppState,
    message: BufferedBody,
    head: &GrpcInferHead,
    deadline: PredictionDeadline,
    keep: Option<KeepAliveOverride>,
) -> Result<(PredictionCall, GrpcInferRequest), ApiError> {
    let reference = Some(&head.reference);
    app.prediction_service().check(reference)?;
    let mut call = begin_call_of_numbers(app, reference, deadline, keep, &message, NUMBER_BYTES_MIN).await?;
    let request = if head.typed_bytes <= INLINE_BYTES_MAX {
        call.decode(|signature| read_request(signature, &message.bytes).map_err(ApiError::from))?
    } else {
        let (began, version, thread) =
            (Instant::now(), Arc::clone(call.live_version()), message.acquire_thread().await?);
        let read = move || {
            let _thread = thread;
            read_request(version.predictor().signature(), &message.bytes)
        };
        let read = tokio::task::spawn_blocking(read).await;
        let lost = |error: JoinError| ApiError::Internal { cause: format!("decoding: {error}") };
        call.record_decode(began, read.map_err(lost).and_then(|request| Ok(request?)))?
    };
    if let Some(limit) = request.limit {
        call.cap_deadline(limit);
    }
    Ok((call, request))
}
