//! The native prediction protocol: `POST /`, `/predict` and `/models/NAME/predict` accept JSON, a form, an image or raw
//! bytes, and return JSON, server-sent events or an image. Other protocols share
//! [`begin_call`] and [`respond`].

pub(crate) mod begin_call;
pub(crate) mod body_decoder;
pub mod decode;
pub(crate) mod describe;
pub mod encode;
pub(crate) mod event_stream;
mod http_handlers;
pub mod image;
mod image_encoder;
pub mod json_inputs;
pub(crate) mod keep_alive;
pub(crate) mod model_routes;
pub(crate) mod operations;
mod path_inputs;
pub(crate) mod piece_sink;
pub(crate) mod protocol;
pub(crate) mod respond;
pub(crate) mod response_format;
pub(crate) mod text_codec;

use std::time::Instant;

use axum::extract::{Path, Request, State};
use axum::http::Method;
use axum::http::request::Parts;
use axum::response::Response;

use crate::app::AppState;
use crate::error::ApiError;
use crate::limits::BODY_BYTES_MAX;
use crate::request_body::BufferedBody;
use crate::request_id::RequestId;
use begin_call::{begin_call_of_lease, count_body_rejection, lease_version, read_deadline};
use http_handlers::{check_prediction_method, find_handlers, respond_with_handler};
use image_encoder::JpegOptions;
use keep_alive::KeepAliveOverride;
use path_inputs::PathInputs;
use respond::{add_warnings, respond};
use response_format::ResponseFormat;
use saggar_serving::{CompletedPrediction, LiveVersion, ModelReference, PredictionInputs};

/// `POST /`, `POST /predict`: predicts with the default model.
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

/// The source of the inputs.
#[derive(Clone, Copy, Debug)]
enum InputSource<'p> {
    /// All inputs are in the body.
    Body,
    /// Some inputs are in a path that the model declares.
    Path(&'p str),
}

async fn predict(
    app: &AppState,
    reference: Option<&ModelReference>,
    request: Request,
    how: InputSource<'_>,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let (deadline, keep) = (read_deadline(&parts.headers)?, KeepAliveOverride::from_request(&parts)?);
    let wanted = ResponseFormat::from_accept(&parts.headers);
    let id = parts.extensions.remove::<RequestId>().unwrap_or_default();
    // A missing model is reported before its input is read.
    app.prediction_service().check(reference)?;
    let body = app.body_reader().read(&parts, body, BODY_BYTES_MAX).await;
    let body = body.inspect_err(|error| count_body_rejection(app.metrics(), error))?;
    let lease = lease_version(app, reference, deadline, keep).await?;
    if let InputSource::Path(path) = how {
        let version = lease.live_version();
        if let Some(found) = find_handlers(version, &parts.method, path) {
            return respond_with_handler(app, lease, deadline, found, &parts, path, body).await;
        }
        check_prediction_method(version, &parts.method, path)?;
    }
    let mut call = begin_call_of_lease(app, lease, deadline, &body).await?;
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
    let has_image = image_encoder::image_output(answer.signature()).is_some();
    match wanted {
        ResponseFormat::Png if has_image => respond(answer, "image/png", |answer| {
            image_encoder::encode_png(answer.signature(), &answer.tensors, answer.items)
        }),
        ResponseFormat::Jpeg(options) if has_image => respond_with_jpeg(answer, options),
        ResponseFormat::Png | ResponseFormat::Jpeg(_) | ResponseFormat::Json | ResponseFormat::Events => {
            respond(answer, "application/json", |answer| {
                encode::encode_json(answer.signature(), &answer.tensors, answer.items)
            })
        }
    }
}

/// Responds with the image output as a JPEG, and warns if its colours lose resolution.
fn respond_with_jpeg(answer: CompletedPrediction, options: JpegOptions) -> Result<Response, ApiError> {
    let mut warning = None;
    let response = respond(answer, "image/jpeg", |answer| {
        let (file, lost) = image_encoder::encode_jpeg(answer.signature(), &answer.tensors, answer.items, options)?;
        warning = lost;
        Ok::<_, image::ImageError>(file)
    });
    response.map(|mut response| {
        add_warnings(warning.as_slice(), response.headers_mut());
        response
    })
}

/// Decodes the inputs of a request to a path that the model declares.
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
    Ok(decode::add_given_inputs(inputs, serving.predictor().signature(), &routed.given)?)
}
