//! Predictions as things of their own, in the form that Cog gave them: `POST /predictions` makes one, waits for its end or
//! answers at once, or tells it as events; `GET` looks at it, `/cancel` ends it, and `PUT` makes it under the client's own
//! identifier, once however often it is sent.
//!
//! A prediction belongs to the key that it was asked for with ([`PredictionOwner`]): to others, those with the scope `admin` included, it
//! is not there, and they may use its identifier for one of theirs.
//!
//! A prediction that waits for its client ends with it; one that the client can come back to does not. Whatever is wrong
//! with a request is said before anything is made of it.

pub mod error;
mod events;
mod owner;
mod prediction;
mod request;
mod run;
mod store;
pub mod webhook;

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use saggar_plugin::Signature;
use saggar_store::records::id;
use tokio::time::timeout;

use crate::access::Actor;
use crate::app::App;
use crate::audit::Action;
use crate::body::Whole;
use crate::error::{ApiError, accepted, found};
use crate::limits::{BODY_BYTES_MAX, INLINE_BYTES_MAX};
use crate::predict::call::{Call, Deadline, rejected};
use crate::predict::decode::{self, Inputs};
use crate::predict::keep::KeepAliveOverride;
use error::PredictionError;
use owner::PredictionOwner;
use prediction::{End, Prediction};
use request::{Asked, Patience};
use run::Guard;
use store::Store;
use webhook::{WebhookPrefix, Webhooks};

/// Every prediction that is running or ended a short while ago.
#[derive(Debug)]
pub(crate) struct Predictions {
    store: Store,
    webhooks: Webhooks,
}

impl Predictions {
    /// None yet. Their events may go to addresses that begin as one of `webhooks`.
    pub(crate) fn new(webhooks: Vec<WebhookPrefix>) -> Predictions {
        Predictions { store: Store::default(), webhooks: Webhooks::new(webhooks) }
    }

    /// Ends a prediction, unless it is over; what is computed for it stops.
    fn cancel(prediction: &Prediction, now_ms: u64) {
        if prediction.end(End::Canceled, now_ms) {
            tracing::debug!(prediction = prediction.id, "canceled");
        }
    }
}

/// `POST /predictions`.
pub(crate) async fn create(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    make(app, request, None).await
}

/// `PUT /predictions/{id}`.
pub(crate) async fn put(
    State(app): State<App>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    make(app, request, Some(request::id(&id)?)).await
}

/// `GET /predictions/{id}`: where it stands, at once, at its end with `Prefer: wait=SECONDS`, or as events.
pub(crate) async fn one(
    State(app): State<App>,
    Path(id): Path<String>,
    owner: PredictionOwner,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let prediction = get(&app, &owner, &id)?;
    match Patience::of(&headers) {
        Patience::Events(after) => return Ok(events::answer(prediction, after, None)),
        Patience::Until(wait) => drop(timeout(wait, prediction.over()).await),
        Patience::Whole => {}
    }
    Ok(found(prediction.json()))
}

/// `POST /predictions/{id}/cancel`.
pub(crate) async fn cancel(
    State(app): State<App>,
    Path(id): Path<String>,
    owner: PredictionOwner,
    actor: Actor,
) -> Result<Response, ApiError> {
    let prediction = get(&app, &owner, &id).map_err(ApiError::from);
    app.audit().record(&actor, Action::PredictionCancel, &id, "", &prediction);
    let prediction = prediction?;
    Predictions::cancel(&prediction, app.now_ms());
    Ok(found(prediction.json()))
}

fn get(app: &App, owner: &PredictionOwner, id: &str) -> Result<Arc<Prediction>, PredictionError> {
    let found = app.predictions().store.get(owner, id, Instant::now());
    found.ok_or_else(|| PredictionError::NotFound { id: id.chars().take(128).collect() })
}

async fn make(app: App, request: Request, id: Option<String>) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let (deadline, keep) = (Deadline::of(&parts.headers)?, KeepAliveOverride::of(&parts)?);
    let owner = PredictionOwner::of(&parts.extensions);
    let patience = Patience::of(&parts.headers);
    if !request::is_json(&parts.headers) {
        let got = parts.headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let got = got.unwrap_or_default().chars().take(80).collect();
        return Err(ApiError::MediaType { got, expected: "application/json" });
    }
    let body = app.bodies().read(&parts, body, BODY_BYTES_MAX).await;
    let body = body.inspect_err(|error| rejected(app.metrics(), error))?;
    let asked = Asked::of(&body.bytes)?;
    let digest = if id.is_some() { Some(asked.digest()?) } else { None };
    if let (Some(id), Some(digest)) = (&id, &digest)
        && let Some(there) = app.predictions().store.get(&owner, id, Instant::now())
    {
        if !there.is_of(digest) {
            return Err(PredictionError::Conflict { id: id.clone() }.into());
        }
        return Ok(respond(&app, there, patience, false).await);
    }
    if let Some(address) = &asked.webhook {
        app.predictions().webhooks.check(address)?;
    }
    let mut call = Call::begin(&app, asked.model.as_ref(), deadline, keep, &body).await?;
    let began = Instant::now();
    let inputs = inputs(call.signature(), &asked, &body).await;
    let inputs = call.decoded(began, inputs)?;
    let now_ms = app.now_ms();
    let own = id.is_none();
    let id = id.unwrap_or_else(|| id::new(now_ms).to_ascii_lowercase());
    let by = (call.serving().model.clone(), call.serving().version);
    let prediction = Prediction::new((owner, id), by, digest, &asked.input, now_ms);
    let prediction = app.predictions().store.add(prediction, Instant::now())?;
    let webhook = asked.webhook.map(|address| app.predictions().webhooks.open(address, asked.filter));
    drop(body);
    let pieces = matches!(patience, Patience::Events(_));
    run::start(&app, &prediction, call, inputs, pieces, webhook);
    Ok(respond(&app, prediction, patience, own).await)
}

/// The inputs, decoded on a thread that may take long where they are large.
async fn inputs(signature: &Signature, asked: &Asked, body: &Whole) -> Result<Inputs, ApiError> {
    if asked.input.len() <= INLINE_BYTES_MAX {
        return Ok(decode::json(signature, &asked.input)?);
    }
    let (signature, input, thread) = (signature.clone(), asked.input.clone(), body.thread().await?);
    let decode = move || {
        let _thread = thread;
        decode::json(&signature, &input)
    };
    let decoded = tokio::task::spawn_blocking(decode).await;
    Ok(decoded.map_err(|error| ApiError::Internal { cause: format!("decoding: {error}") })??)
}

/// The answer that the client waits for. One whose client alone knows of it (`own`) ends when that client goes, unless it
/// asked not to wait.
async fn respond(app: &App, prediction: Arc<Prediction>, patience: Patience, own: bool) -> Response {
    match patience {
        Patience::Events(after) => {
            let guard = own.then(|| Guard::new(app, &prediction));
            events::answer(prediction, after, guard)
        }
        Patience::Whole => {
            let _guard = own.then(|| Guard::new(app, &prediction));
            prediction.over().await;
            found(prediction.json())
        }
        Patience::Until(wait) => {
            if timeout(wait, prediction.over()).await.is_ok() && !wait.is_zero() {
                return found(prediction.json());
            }
            let mut response = accepted(prediction.json());
            let headers = response.headers_mut();
            if let Ok(location) = HeaderValue::try_from(format!("/predictions/{}", prediction.id)) {
                headers.insert(header::LOCATION, location);
            }
            let applied = HeaderName::from_static("preference-applied");
            headers.insert(applied, HeaderValue::from_static("respond-async"));
            response
        }
    }
}
