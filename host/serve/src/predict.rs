//! Predictions the plain way: `POST /`, `/predict`, `/models/NAME/predict` with JSON, a form, a picture or raw bytes, and
//! JSON, server-sent events or a picture back. What all protocols share is in [`call`].

pub(crate) mod base64;
pub(crate) mod call;
pub(crate) mod content;
pub mod decode;
mod dense;
pub(crate) mod describe;
pub mod encode;
pub mod image;
pub(crate) mod keep;
pub(crate) mod nonfinite;
pub(crate) mod number;
pub(crate) mod outcome;
pub(crate) mod plain;
pub mod reference;
pub(crate) mod route;
pub(crate) mod scan;
pub(crate) mod stream;
pub(crate) mod text;

use std::time::Instant;

use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::response::Response;

use crate::app::App;
use crate::body::Whole;
use crate::error::ApiError;
use crate::limits::BODY_BYTES_MAX;
use crate::models::Serving;
use crate::observe::RequestId;
use call::{Call, Deadline, rejected};
use decode::Inputs;
use keep::KeepAliveOverride;
use reference::Reference;
use route::Routed;

/// `POST /`, `POST /predict`: the default model.
pub(crate) async fn by_default(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    answer(&app, None, request, Answering::Plainly).await
}

/// `POST /models/{model}/predict`, with `name`, `name@version` or `name@alias`.
pub(crate) async fn by_name(
    State(app): State<App>,
    Path(model): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let reference = Reference::parse(&model)?;
    answer(&app, Some(&reference), request, Answering::Plainly).await
}

/// Where the inputs come from.
#[derive(Clone, Copy, Debug)]
enum Answering<'p> {
    /// The body has them all.
    Plainly,
    /// A path of the model's own has some.
    ByPath(&'p str),
}

async fn answer(
    app: &App,
    reference: Option<&Reference>,
    request: Request,
    how: Answering<'_>,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let (deadline, keep) = (Deadline::of(&parts.headers)?, KeepAliveOverride::of(&parts)?);
    let wanted = Wanted::of(&parts.headers);
    let id = parts.extensions.remove::<RequestId>().unwrap_or_default();
    // A model that is not there is said to be so before its input is read.
    app.models().check(reference).inspect_err(|error| rejected(app.metrics(), error))?;
    let body = app.bodies().read(&parts, body, BODY_BYTES_MAX).await;
    let body = body.inspect_err(|error| rejected(app.metrics(), error))?;
    let mut call = Call::begin(app, reference, deadline, keep, &body).await?;
    let decoding = Instant::now();
    let inputs = match how {
        Answering::Plainly => content::inputs(call.signature(), &parts.headers, &body).await,
        Answering::ByPath(path) => routed(call.serving(), path, &parts, &body).await,
    };
    let inputs = call.decoded(decoding, inputs)?;
    drop(body);
    if wanted == Wanted::Events {
        return stream::answer(call, inputs, id).await;
    }
    let answer = call.run(inputs).await?;
    match wanted {
        Wanted::Picture if image::output(answer.signature()).is_some() => {
            answer.respond("image/png", |answer| image::encode(answer.signature(), &answer.tensors, answer.items))
        }
        Wanted::Picture | Wanted::Json | Wanted::Events => {
            answer.respond("application/json", |answer| encode::json(answer.signature(), &answer.tensors, answer.items))
        }
    }
}

/// The inputs of a request by a path of the model's own.
async fn routed(serving: &Serving, path: &str, parts: &Parts, body: &Whole) -> Result<Inputs, ApiError> {
    let routed = Routed::of(serving, path)?;
    let inputs = if body.bytes.is_empty() && (parts.method == Method::GET || routed.is_whole()) {
        routed.alone()?
    } else if parts.method == Method::GET {
        return Err(ApiError::Form { reason: "a GET has no body; send it with POST".to_owned() });
    } else {
        content::inputs(&routed.rest, &parts.headers, body).await?
    };
    Ok(inputs.with(serving.predictor().signature(), &routed.given)?)
}

/// Whether the client would like to get server-sent events.
pub(crate) fn wants_events(headers: &HeaderMap) -> bool {
    Wanted::of(headers) == Wanted::Events
}

/// What the client would like to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Json,
    /// Server-sent events, as they come.
    Events,
    /// A PNG, where the model makes pictures.
    Picture,
}

impl Wanted {
    /// The first of the accepted types that is known here; JSON where there is none.
    fn of(headers: &HeaderMap) -> Wanted {
        let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let kind = |range: &str| match range.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str()
        {
            "text/event-stream" => Some(Wanted::Events),
            "image/png" | "image/*" => Some(Wanted::Picture),
            "application/json" => Some(Wanted::Json),
            _ => None,
        };
        accept.split(',').find_map(kind).unwrap_or(Wanted::Json)
    }
}
