//! `POST /v2/models/{model}[/versions/{version}]/infer`.

use std::time::Instant;

use axum::extract::{Path, Request, State};
use axum::http::HeaderValue;
use axum::response::Response;
use saggar_serving::{CompletedPrediction, ModelReference, PredictionCall};
use tokio::task::JoinError;

use super::binary::{HEADER_LENGTH, header_length};
use super::request::{self, InferRequest};
use super::response::{ResponseSource, encode};
use crate::app::AppState;
use crate::content_encoding::{ContentEncoding, compress_response};
use crate::error::ApiError;
use crate::limits::{INFER_BYTES_MAX, INLINE_BYTES_MAX};
use crate::predict::begin_call::{begin_call, count_body_rejection, read_deadline};
use crate::predict::encode::EncodeError;
use crate::predict::keep_alive::KeepAliveOverride;
use crate::predict::respond::respond;
use crate::request_body::BufferedBody;

/// Handles `POST /v2/models/{model}/infer`, with the version that default requests use.
pub(super) async fn infer_default_version(
    State(app): State<AppState>,
    Path(model): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    infer(&app, &super::parse_reference(&model, None)?, request).await
}

/// Handles `POST /v2/models/{model}/versions/{version}/infer`.
pub(super) async fn infer_version(
    State(app): State<AppState>,
    Path((model, version)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    infer(&app, &super::parse_reference(&model, Some(&version))?, request).await
}

async fn infer(app: &AppState, reference: &ModelReference, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let (deadline, keep) = (read_deadline(&parts.headers)?, KeepAliveOverride::from_request(&parts)?);
    // A missing model is reported before the input is read.
    app.prediction_service().check(Some(reference))?;
    let body = app.body_reader().read_decompressed(&parts, body, INFER_BYTES_MAX).await;
    let body = body.inspect_err(|error| count_body_rejection(app.metrics(), error))?;
    // The content type is not considered: some clients in use send none.
    let json_bytes = header_length(&parts.headers, &body.bytes)?;
    let mut call = begin_call(app, Some(reference), deadline, keep, &body).await?;
    let InferRequest { inputs, outputs, id, limit } = read_request(&mut call, body, json_bytes).await?;
    if let Some(limit) = limit {
        call.cap_deadline(limit);
    }
    let answer = call.run(inputs).await?;
    let is_binary = outputs.iter().any(|output| output.is_binary);
    let content_type = if is_binary { "application/octet-stream" } else { "application/json" };
    let mut json_bytes = None;
    let encode = |answer: &CompletedPrediction| {
        let serving = answer.live_version();
        let from = ResponseSource { model: &serving.model, version: serving.version, id: id.as_deref() };
        let encoded = encode(answer.signature(), &answer.tensors, answer.items, &outputs, from)?;
        json_bytes = encoded.json_bytes;
        Ok::<_, EncodeError>(encoded.bytes)
    };
    let mut response = respond(answer, content_type, encode)?;
    if let Some(json_bytes) = json_bytes {
        response.headers_mut().insert(HEADER_LENGTH, HeaderValue::from(json_bytes));
    }
    compress_response(response, ContentEncoding::from_accept_encoding(&parts.headers)).await
}

/// Parses the request on the executor, or on a blocking thread if it has much JSON.
async fn read_request(
    call: &mut PredictionCall,
    body: BufferedBody,
    json_bytes: Option<usize>,
) -> Result<InferRequest, ApiError> {
    if json_bytes.unwrap_or(body.bytes.len()) <= INLINE_BYTES_MAX {
        return call
            .decode(|signature| request::read_request(signature, &body.bytes, json_bytes).map_err(ApiError::from));
    }
    let (began, signature, thread) = (Instant::now(), call.signature().clone(), body.acquire_thread().await?);
    let read = move || {
        let _thread = thread;
        request::read_request(&signature, &body.bytes, json_bytes)
    };
    let read = tokio::task::spawn_blocking(read).await;
    let lost = |error: JoinError| ApiError::Internal { cause: format!("decoding: {error}") };
    call.record_decode(began, read.map_err(lost).and_then(|asked| Ok(asked?)))
}
