//! Predictions as resources, with the HTTP interface of Cog. `POST /predictions` creates one and waits for its end,
//! responds immediately, or streams events. `GET` returns its state, `/cancel` cancels it, and `PUT` creates it
//! idempotently under the client's identifier.
//!
//! A prediction belongs to the key that requested it ([`PredictionOwner`]). For other keys, including those with the
//! scope `admin`, it does not exist, and they can use the same identifier.
//!
//! A prediction that only its waiting client can access is cancelled when that client disconnects. One that the client
//! can query later continues. Requests are validated before a prediction is created.

pub mod error;
mod events;
mod execution;
mod operations;
mod owner;
mod prediction;
mod prediction_status;
pub(crate) mod predictions;
pub(crate) mod protocol;
mod request;
mod response;
mod shared_json;
mod shared_predictions;
mod snapshot;
mod store;
pub mod webhook;

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use saggar_plugin::ModelSignature;
use saggar_serving::PredictionInputs;
use saggar_store::digest::Digest;
use saggar_store::records::id;
use tokio::time::timeout;

use crate::access::Actor;
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::ApiError;
use crate::limits::{BODY_BYTES_MAX, INLINE_BYTES_MAX};
use crate::predict::begin_call::{begin_call, count_body_rejection, read_deadline};
use crate::predict::json_inputs;
use crate::predict::keep_alive::KeepAliveOverride;
use crate::request_body::BufferedBody;
use error::PredictionError;
use execution::CancelPredictionOnDrop;
use owner::PredictionOwner;
use prediction::{CogPrediction, CogPredictionDocument};
use predictions::CogPredictions;
use request::{CogPredictionRequest, WaitPreference};
use response::{CreatePredictionResponse, PredictionResponse};

/// `POST /predictions`.
async fn create(State(app): State<AppState>, request: Request) -> Result<CreatePredictionResponse, ApiError> {
    create_or_find(app, request, None).await
}

/// `PUT /predictions/{id}`.
async fn put(
    State(app): State<AppState>,
    Path(id): Path<String>,
    request: Request,
) -> Result<CreatePredictionResponse, ApiError> {
    create_or_find(app, request, Some(request::parse_id(&id)?)).await
}

/// `GET /predictions/{id}`: its state, immediately, at its end with `Prefer: wait=SECONDS`, or as events.
async fn show(
    State(app): State<AppState>,
    Path(id): Path<String>,
    owner: PredictionOwner,
    headers: HeaderMap,
) -> Result<PredictionResponse, ApiError> {
    let prediction = find_prediction(&app, &owner, &id).await?;
    match WaitPreference::from_headers(&headers) {
        WaitPreference::Events(after) => {
            return Ok(PredictionResponse::Events(events::stream_events(prediction, after, None)));
        }
        WaitPreference::UpTo(wait) => drop(timeout(wait, prediction.wait_until_finished()).await),
        WaitPreference::UntilFinished => {}
    }
    Ok(PredictionResponse::State(prediction))
}

/// `POST /predictions/{id}/cancel`.
async fn cancel(
    State(app): State<AppState>,
    Path(id): Path<String>,
    owner: PredictionOwner,
    actor: Actor,
) -> Result<Json<CogPredictionDocument>, ApiError> {
    let canceled = cancel_anywhere(&app, &owner, &id).await;
    app.audit().record(&actor, AuditAction::PredictionCancel, &id, "", &canceled);
    Ok(Json(canceled?.document()))
}

/// Cancels a prediction on the server that computes it, and returns it.
async fn cancel_anywhere(app: &AppState, owner: &PredictionOwner, id: &str) -> Result<Arc<CogPrediction>, ApiError> {
    if let Some(shared) = &app.predictions().shared
        && shared.cancel(owner, id, app.now_ms()).await?
    {
        // Its row is over. On the server that computes it, the prediction ends as the row says.
        let prediction = find_prediction(app, owner, id).await?;
        if let Some((end, completed_ms)) = shared.recorded_end(owner, id).await? {
            prediction.finish(end, completed_ms);
        }
        return Ok(prediction);
    }
    let prediction = find_prediction(app, owner, id).await?;
    CogPredictions::cancel_prediction(&prediction, app.now_ms());
    Ok(prediction)
}

async fn find_prediction(app: &AppState, owner: &PredictionOwner, id: &str) -> Result<Arc<CogPrediction>, ApiError> {
    let found = find_anywhere(app, owner, id).await?;
    Ok(found.ok_or_else(|| PredictionError::NotFound { id: id.chars().take(128).collect() })?)
}

/// Returns the prediction of this owner and identifier, wherever it is computed, or `None`.
///
/// # Errors
/// Returns an error if the records of other servers' predictions cannot be read.
async fn find_anywhere(
    app: &AppState,
    owner: &PredictionOwner,
    id: &str,
) -> Result<Option<Arc<CogPrediction>>, ApiError> {
    let found = app.predictions().store.get(owner, id, Instant::now());
    match &app.predictions().shared {
        Some(shared) if found.is_none() => shared.find(owner, id).await,
        _ => Ok(found),
    }
}

/// Returns a prediction that exists, if the request is the one that it answers.
fn check_same_request(prediction: Arc<CogPrediction>, digest: &Digest) -> Result<Arc<CogPrediction>, ApiError> {
    if prediction.matches_request(digest) {
        return Ok(prediction);
    }
    Err(PredictionError::Conflict { id: prediction.id.clone() }.into())
}

async fn create_or_find(
    app: AppState,
    request: Request,
    id: Option<String>,
) -> Result<CreatePredictionResponse, ApiError> {
    let (parts, body) = request.into_parts();
    let (deadline, keep) = (read_deadline(&parts.headers)?, KeepAliveOverride::from_request(&parts)?);
    let owner = PredictionOwner::from_extensions(&parts.extensions);
    let patience = WaitPreference::from_headers(&parts.headers);
    if !request::is_json_content_type(&parts.headers) {
        let got = parts.headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let got = got.unwrap_or_default().chars().take(80).collect();
        return Err(ApiError::MediaType { got, expected: "application/json" });
    }
    let body = app.body_reader().read(&parts, body, BODY_BYTES_MAX).await;
    let body = body.inspect_err(|error| count_body_rejection(app.metrics(), error))?;
    let asked = CogPredictionRequest::parse(&body.bytes)?;
    let digest = if id.is_some() { Some(asked.digest()?) } else { None };
    if let (Some(id), Some(digest)) = (&id, &digest)
        && let Some(there) = find_anywhere(&app, &owner, id).await?
    {
        return Ok(respond(&app, check_same_request(there, digest)?, patience, false).await);
    }
    if let Some(address) = &asked.webhook {
        app.predictions().webhooks.check(address)?;
    }
    let mut call = begin_call(&app, asked.model.as_ref(), deadline, keep, &body).await?;
    let began = Instant::now();
    let inputs = decode_inputs(call.signature(), &asked, &body).await;
    let inputs = call.record_decode(began, inputs)?;
    let now_ms = app.now_ms();
    let own = id.is_none();
    let id = id.unwrap_or_else(|| id::new(now_ms).to_ascii_lowercase());
    let by = (call.live_version().model.clone(), call.live_version().version);
    let prediction = CogPrediction::new((owner, id), by, digest, &asked.input, now_ms);
    let is_public = !own || matches!(patience, WaitPreference::UpTo(_));
    let prediction = match add_prediction(&app, prediction, is_public).await? {
        AddedPrediction::New(prediction) => prediction,
        AddedPrediction::Existing(there) => return Ok(respond(&app, there, patience, false).await),
    };
    let trace = body.trace.as_ref().and_then(|trace| trace.context()).cloned();
    let webhook = asked.webhook.map(|address| app.predictions().webhooks.start(address, asked.webhook_filter, trace));
    drop(body);
    let pieces = matches!(patience, WaitPreference::Events(_));
    execution::spawn_prediction(&app, &prediction, call, inputs, pieces, webhook);
    Ok(respond(&app, prediction, patience, own).await)
}

/// What became of a prediction that was to be added.
enum AddedPrediction {
    /// This server computes it.
    New(Arc<CogPrediction>),
    /// Another server was faster with the same request.
    Existing(Arc<CogPrediction>),
}

/// Adds a prediction that begins, on all servers if clients can query it while it runs (`is_public`).
async fn add_prediction(
    app: &AppState,
    prediction: CogPrediction,
    is_public: bool,
) -> Result<AddedPrediction, ApiError> {
    let store = &app.predictions().store;
    let Some(shared) = app.predictions().shared.as_ref().filter(|_| is_public) else {
        return Ok(AddedPrediction::New(store.add(prediction, Instant::now())?));
    };
    store.check_space()?;
    prediction.mark_started(app.now_ms());
    let prediction = Arc::new(prediction);
    if shared.begin(&prediction).await? {
        store.add_shared(&prediction, Instant::now());
        return Ok(AddedPrediction::New(prediction));
    }
    let there = find_prediction(app, &prediction.owner, &prediction.id).await?;
    match prediction.digest() {
        Some(digest) => Ok(AddedPrediction::Existing(check_same_request(there, digest)?)),
        None => Err(PredictionError::Conflict { id: prediction.id.clone() }.into()),
    }
}

/// Decodes the body of a request to create a prediction.
///
/// # Errors
/// Returns why the body is no request to the model.
pub fn decode_prediction_body(signature: &ModelSignature, body: &Bytes) -> Result<PredictionInputs, ApiError> {
    let asked = CogPredictionRequest::parse(body)?;
    Ok(json_inputs::decode_json(signature, &asked.input)?)
}

/// Decodes the inputs, on a blocking thread if they are large.
async fn decode_inputs(
    signature: &ModelSignature,
    asked: &CogPredictionRequest,
    body: &BufferedBody,
) -> Result<PredictionInputs, ApiError> {
    if asked.input.len() <= INLINE_BYTES_MAX {
        return Ok(json_inputs::decode_json(signature, &asked.input)?);
    }
    let (signature, input, thread) = (signature.clone(), asked.input.clone(), body.acquire_thread().await?);
    let decode = move || {
        let _thread = thread;
        json_inputs::decode_json(&signature, &input)
    };
    let decoded = tokio::task::spawn_blocking(decode).await;
    Ok(decoded.map_err(|error| ApiError::Internal { cause: format!("decoding: {error}") })??)
}

/// Returns the response in the form that the client prefers. If only this client can access the prediction (`own`), it
/// is cancelled when the client disconnects, unless the client asked not to wait.
async fn respond(
    app: &AppState,
    prediction: Arc<CogPrediction>,
    patience: WaitPreference,
    own: bool,
) -> CreatePredictionResponse {
    let response = match patience {
        WaitPreference::Events(after) => {
            let guard = own.then(|| CancelPredictionOnDrop::new(app, &prediction));
            PredictionResponse::Events(events::stream_events(prediction, after, guard))
        }
        WaitPreference::UntilFinished => {
            let _guard = own.then(|| CancelPredictionOnDrop::new(app, &prediction));
            prediction.wait_until_finished().await;
            PredictionResponse::State(prediction)
        }
        WaitPreference::UpTo(wait) => {
            if timeout(wait, prediction.wait_until_finished()).await.is_err() || wait.is_zero() {
                return CreatePredictionResponse::Continues(prediction);
            }
            PredictionResponse::State(prediction)
        }
    };
    CreatePredictionResponse::Response(response)
}
