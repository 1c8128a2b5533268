//! Predictions the plain way: `POST /`, `/predict`, `/models/NAME/predict` with JSON, a form, a picture or raw bytes, and
//! JSON, server-sent events or a picture back. What all protocols share is in [`call`].

pub(crate) mod base64;
pub(crate) mod body_decoder;
pub mod decode;
mod dense_arrays;
pub(crate) mod describe;
pub mod encode;
pub(crate) mod event_stream;
pub mod image;
pub(crate) mod json_fast_path;
pub(crate) mod json_number;
pub(crate) mod json_tokenizer;
pub(crate) mod keep_alive;
pub mod model_reference;
pub(crate) mod model_routes;
pub(crate) mod nonfinite;
pub(crate) mod outcome;
pub(crate) mod prediction_call;
pub(crate) mod text_codec;

use std::time::Instant;

use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::response::Response;

use crate::app::AppState;
use crate::error::ApiError;
use crate::limits::BODY_BYTES_MAX;
use crate::models::LiveVersion;
use crate::request_body::BufferedBody;
use crate::request_middleware::RequestId;
use decode::PredictionInputs;
use keep_alive::KeepAliveOverride;
use model_reference::ModelReference;
use model_routes::PathInputs;
use prediction_call::{PredictionCall, PredictionDeadline, count_rejection};

/// `POST /`, `POST /predict`: the default model.
pub(crate) async fn predict_default(State(app): State<AppState>, request: Request) -> Result<Response, ApiError> {
    predict(&app, None, request, InputSource::Body).await
}

/// `POST /models/{model}/predict`, with `name`, `name@version` or `name@alias`.
pub(crate) async fn predict_named(
    State(app): State<AppState>,
    Path(model): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let reference = ModelReference::parse(&model)?;
    predict(&app, Some(&reference), request, InputSource::Body).await
}

/// Where the inputs come from.
#[derive(Clone, Copy, Debug)]
enum InputSource<'p> {
    /// The body has them all.
    Body,
    /// A path of the model's own has some.
    Path(&'p str),
}

async fn predict(
    app: &AppState,
    reference: Option<&ModelReference>,
    request: Request,
    how: InputSource<'_>,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let (deadline, keep) =
        (PredictionDeadline::from_headers(&parts.headers)?, KeepAliveOverride::from_request(&parts)?);
    let wanted = ResponseFormat::from_accept(&parts.headers);
    let id = parts.extensions.remove::<RequestId>().unwrap_or_default();
    // A model that is not there is said to be so before its input is read.
    app.models().check(reference).inspect_err(|error| count_rejection(app.metrics(), error))?;
    let body = app.body_reader().read(&parts, body, BODY_BYTES_MAX).await;
    let body = body.inspect_err(|error| count_rejection(app.metrics(), error))?;
    let mut call = PredictionCall::begin(app, reference, deadline, keep, &body).await?;
    let decoding = Instant::now();
    let inputs = match how {
        InputSource::Body => body_decoder::decode_body(call.signature(), &parts.headers, &body).await,
        InputSource::Path(path) => decode_with_path_inputs(call.live_version(), path, &parts, &body).await,
    };
    let inputs = call.record_decode(decoding, inputs)?;
    drop(body);
    if wanted == ResponseFormat::Events {
        return event_stream::respond_with_events(call, inputs, id).await;
    }
    let answer = call.run(inputs).await?;
    match wanted {
        ResponseFormat::Png if image::image_output(answer.signature()).is_some() => {
            answer.respond("image/png", |answer| image::encode_png(answer.signature(), &answer.tensors, answer.items))
        }
        ResponseFormat::Png | ResponseFormat::Json | ResponseFormat::Events => answer
            .respond("application/json", |answer| {
                encode::encode_json(answer.signature(), &answer.tensors, answer.items)
            }),
    }
}

/// The inputs of a request by a path of the model's own.
async fn decode_with_path_inputs(
    serving: &LiveVersion,
    path: &str,
    parts: &Parts,
    body: &BufferedBody,
) -> Result<PredictionInputs, ApiError> {
    let routed = PathInputs::from_path(serving, path)?;
    let inputs = if body.bytes.is_empty() && (parts.method == Method::GET || routed.needs_no_body()) {
        routed.without_body()?
    } else if parts.method == Method::GET {
        return Err(ApiError::Form { reason: "a GET has no body; send it with POST".to_owned() });
    } else {
        body_decoder::decode_body(&routed.rest, &parts.headers, body).await?
    };
    Ok(inputs.with_given_inputs(serving.predictor().signature(), &routed.given)?)
}

/// Whether the client would like to get server-sent events.
pub(crate) fn wants_events(headers: &HeaderMap) -> bool {
    ResponseFormat::from_accept(headers) == ResponseFormat::Events
}

/// What the client would like to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseFormat {
    Json,
    /// Server-sent events, as they come.
    Events,
    /// A PNG, where the model makes pictures.
    Png,
}

impl ResponseFormat {
    /// The first of the accepted types that is known here; JSON where there is none.
    fn from_accept(headers: &HeaderMap) -> ResponseFormat {
        let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let kind = |range: &str| match range.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str()
        {
            "text/event-stream" => Some(ResponseFormat::Events),
            "image/png" | "image/*" => Some(ResponseFormat::Png),
            "application/json" => Some(ResponseFormat::Json),
            _ => None,
        };
        accept.split(',').find_map(kind).unwrap_or(ResponseFormat::Json)
    }
}
