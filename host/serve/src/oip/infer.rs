//! `POST /v2/models/{model}[/versions/{version}]/infer`.

use std::time::Instant;

use axum::extract::{Path, Request, State};
use axum::http::HeaderValue;
use axum::response::Response;
use tokio::task::JoinError;

use super::answer::{From, encode};
use super::binary::{HEADER_LENGTH, header_length};
use super::request::{self, Asked};
use crate::app::App;
use crate::body::Whole;
use crate::coding::{Coding, compressed};
use crate::error::ApiError;
use crate::limits::{INFER_BYTES_MAX, INLINE_BYTES_MAX};
use crate::predict::call::{Answer, Call, Deadline, rejected};
use crate::predict::encode::EncodeError;
use crate::predict::keep::KeepAliveOverride;
use crate::predict::reference::Reference;

/// `POST /v2/models/{model}/infer`: the version that default requests get.
pub(super) async fn by_name(
    State(app): State<App>,
    Path(model): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    infer(&app, &super::reference(&model, None)?, request).await
}

/// `POST /v2/models/{model}/versions/{version}/infer`.
pub(super) async fn by_version(
    State(app): State<App>,
    Path((model, version)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    infer(&app, &super::reference(&model, Some(&version))?, request).await
}

async fn infer(app: &App, reference: &Reference, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let (deadline, keep) = (Deadline::of(&parts.headers)?, KeepAliveOverride::of(&parts)?);
    // A model that is not there is said to be so before its input is read.
    app.models().check(Some(reference)).inspect_err(|error| rejected(app.metrics(), error))?;
    let body = app.bodies().read_coded(&parts, body, INFER_BYTES_MAX).await;
    let body = body.inspect_err(|error| rejected(app.metrics(), error))?;
    // Never by the content type: clients in use send none.
    let json_bytes = header_length(&parts.headers, &body.bytes)?;
    let mut call = Call::begin(app, Some(reference), deadline, keep, &body).await?;
    let Asked { inputs, outputs, id, limit } = read(&mut call, body, json_bytes).await?;
    if let Some(limit) = limit {
        call.within(limit);
    }
    let answer = call.run(inputs).await?;
    let is_binary = outputs.iter().any(|output| output.is_binary);
    let content_type = if is_binary { "application/octet-stream" } else { "application/json" };
    let mut json_bytes = None;
    let encode = |answer: &Answer| {
        let serving = answer.serving();
        let from = From { model: &serving.model, version: serving.version, id: id.as_deref() };
        let encoded = encode(answer.signature(), &answer.tensors, answer.items, &outputs, from)?;
        json_bytes = encoded.json_bytes;
        Ok::<_, EncodeError>(encoded.bytes)
    };
    let mut response = answer.respond(content_type, encode)?;
    if let Some(json_bytes) = json_bytes {
        response.headers_mut().insert(HEADER_LENGTH, HeaderValue::from(json_bytes));
    }
    compressed(response, Coding::accepted(&parts.headers)).await
}

/// Reads the request where it arrived, or, where it has much JSON, on a thread that may take long.
async fn read(call: &mut Call, body: Whole, json_bytes: Option<usize>) -> Result<Asked, ApiError> {
    if json_bytes.unwrap_or(body.bytes.len()) <= INLINE_BYTES_MAX {
        return call.decode(|signature| request::read(signature, &body.bytes, json_bytes));
    }
    let (began, signature, thread) = (Instant::now(), call.signature().clone(), body.thread().await?);
    let read = move || {
        let _thread = thread;
        request::read(&signature, &body.bytes, json_bytes)
    };
    let read = tokio::task::spawn_blocking(read).await;
    let lost = |error: JoinError| ApiError::Internal { cause: format!("decoding: {error}") };
    call.decoded(began, read.map_err(lost).and_then(|asked| Ok(asked?)))
}
