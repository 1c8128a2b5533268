//! Predictions the plain way: `POST /`, `/predict`, `/models/NAME/predict` with JSON, a form, a picture or raw bytes, and
//! JSON or server-sent events back. What all protocols share is in [`call`].

pub(crate) mod call;
pub(crate) mod content;
pub mod decode;
mod dense;
pub mod encode;
pub mod image;
mod number;
pub(crate) mod outcome;
pub(crate) mod plain;
pub mod reference;
mod stream;
mod text;

use std::time::Instant;

use axum::extract::{Path, Request, State};
use axum::response::Response;

use crate::app::App;
use crate::error::ApiError;
use crate::limits::BODY_BYTES_MAX;
use crate::observe::RequestId;
use call::{Call, Deadline, rejected};
use reference::Reference;

/// `POST /`, `POST /predict`: the default model.
pub(crate) async fn by_default(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    predict(&app, None, request).await
}

/// `POST /models/{model}/predict`, with `name`, `name@version` or `name@alias`.
pub(crate) async fn by_name(
    State(app): State<App>,
    Path(model): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let reference = Reference::parse(&model)?;
    predict(&app, Some(&reference), request).await
}

async fn predict(app: &App, reference: Option<&Reference>, request: Request) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let deadline = Deadline::of(&parts.headers)?;
    let streams = stream::is_wanted(&parts.headers);
    let id = parts.extensions.remove::<RequestId>().unwrap_or_default();
    // A model that is not there is said to be so before its input is read.
    app.models().check(reference).inspect_err(|error| rejected(app.metrics(), error))?;
    let body = app.bodies().read(&parts.headers, body, BODY_BYTES_MAX).await;
    let body = body.inspect_err(|error| rejected(app.metrics(), error))?;
    let mut call = Call::begin(app, reference, deadline).await?;
    let decoding = Instant::now();
    let inputs = content::inputs(call.signature(), &parts.headers, &body).await;
    let inputs = call.decoded(decoding, inputs)?;
    drop(body);
    if streams {
        return stream::answer(call, inputs, id).await;
    }
    let answer = call.run(inputs).await?;
    answer.respond("application/json", |answer| encode::json(answer.signature(), &answer.tensors, answer.items))
}
