//! TensorFlow Serving's REST interface, under `/v1/`: predictions by row and by column, classification, regression,
//! version status and model metadata. Version labels are aliases. In addition, `GET /v1/models` lists the models' names
//! as in KServe V1.
//!
//! Errors have TensorFlow Serving's messages and statuses where it defines them, in this server's error body.

mod encode;
pub mod error;
mod examples;
mod path;
pub(crate) mod protocol;
mod request;
mod status;
mod tensor;

use std::time::Instant;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method as Verb, header};
use axum::response::{IntoResponse, Response};
use saggar_plugin::ModelSignature;
use saggar_serving::model_reference::is_alias;
use saggar_serving::{ModelReference, PredictionCall, PredictionInputs, ServingError, VersionSelector, VersionState};
use serde_json::{Value, json};

use crate::app::AppState;
use crate::error::ApiError;
use crate::limits::{BODY_BYTES_MAX, INLINE_BYTES_MAX};
use crate::predict::begin_call::{begin_call, count_body_rejection, read_deadline};
use crate::predict::keep_alive::KeepAliveOverride;
use crate::predict::respond::respond;
use error::TfsError;
use examples::ExamplesMethod;
use path::{ServableTarget, ServableVersion, TfsRequest};

const JSON: &str = "application/json";

/// Handles every request under `/v1/`.
pub(crate) async fn handle(State(app): State<AppState>, request: Request) -> Result<Response, ApiError> {
    if request.method() == Verb::OPTIONS {
        return preflight(request.headers());
    }
    let asked = path::parse_path(request.method().as_str(), request.uri().path())?;
    match asked {
        TfsRequest::Models => {
            let names: Vec<String> = app.models().list().into_iter().map(|model| model.name).collect();
            Ok(Json(json!({ "models": names })).into_response())
        }
        TfsRequest::Status(target) => model_status(&app, &target),
        TfsRequest::Metadata(target) => {
            let serving =
                app.models().find_live(Some(&target.reference()?)).map_err(|error| target.map_error(error.into()))?;
            Ok(Json(status::signature_metadata(&serving)).into_response())
        }
        TfsRequest::Predict(target) => {
            let (call, (inputs, form)) =
                begin_decoded_call(&app, &target, request, request::read_predict_request).await?;
            let answer = call.run(inputs).await?;
            respond(answer, JSON, |answer| {
                encode::encode_predictions(answer.signature(), &answer.tensors, answer.items, form)
            })
        }
        TfsRequest::Classify(target) => predict_examples(&app, &target, request, ExamplesMethod::Classify).await,
        TfsRequest::Regress(target) => predict_examples(&app, &target, request, ExamplesMethod::Regress).await,
    }
}

/// Decodes a body of `:predict`.
///
/// # Errors
/// Returns why the body is no request to the model.
pub fn decode_predict_body(signature: &ModelSignature, body: &[u8]) -> Result<PredictionInputs, ApiError> {
    request::read_predict_request(signature, body).map(|(inputs, _)| inputs)
}

/// Decodes a body of `:classify`.
///
/// # Errors
/// Returns why the body is no request to the model.
pub fn decode_classify_body(signature: &ModelSignature, body: &[u8]) -> Result<PredictionInputs, ApiError> {
    examples::read_examples(signature, body, ExamplesMethod::Classify)
}

async fn predict_examples(
    app: &AppState,
    target: &ServableTarget,
    request: Request,
    method: ExamplesMethod,
) -> Result<Response, ApiError> {
    let model = target.model.clone();
    let decode = move |signature: &ModelSignature, body: &[u8]| {
        let plan = examples::select_output(&model, signature, method)?;
        Ok((examples::read_examples(signature, body, method)?, plan))
    };
    let (call, (inputs, plan)) = begin_decoded_call(app, target, request, decode).await?;
    respond(call.run(inputs).await?, JSON, |answer| examples::encode_results(answer, plan))
}

/// Reads the request's body and decodes it to inputs with `decode`; large bodies are decoded on a blocking thread.
async fn begin_decoded_call<T: Send + 'static>(
    app: &AppState,
    target: &ServableTarget,
    request: Request,
    decode: impl FnOnce(&ModelSignature, &[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<(PredictionCall, T), ApiError> {
    let (parts, body) = request.into_parts();
    let (deadline, keep) = (read_deadline(&parts.headers)?, KeepAliveOverride::from_request(&parts)?);
    let reference = target.reference()?;
    // A missing model is reported before the input is read.
    app.prediction_service().check(Some(&reference)).map_err(|error| target.map_error(error.into()))?;
    let body = app.body_reader().read(&parts, body, BODY_BYTES_MAX).await;
    let body = body.inspect_err(|error| count_body_rejection(app.metrics(), error))?;
    let call = begin_call(app, Some(&reference), deadline, keep, &body).await;
    let mut call = call.map_err(|error| target.map_error(error))?;
    if body.bytes.len() <= INLINE_BYTES_MAX {
        let decoded = call.decode(|signature| decode(signature, &body.bytes))?;
        return Ok((call, decoded));
    }
    let began = Instant::now();
    let (signature, thread) = (call.signature().clone(), body.acquire_thread().await?);
    let work = tokio::task::spawn_blocking(move || {
        let _thread = thread;
        decode(&signature, &body.bytes)
    });
    let decoded = work.await.unwrap_or_else(|error| Err(ApiError::Internal { cause: format!("decoding: {error}") }));
    let decoded = call.record_decode(began, decoded)?;
    Ok((call, decoded))
}

fn model_status(app: &AppState, target: &ServableTarget) -> Result<Response, ApiError> {
    let missing = |what| ApiError::from(TfsError::NoVersions { what });
    let model = app.models().status(&target.model);
    let model = model.map_err(|_| missing(format!("any versions of model {}", target.display_name())))?;
    let wanted = match &target.which {
        ServableVersion::Latest => None,
        ServableVersion::Number(version) => Some(*version),
        ServableVersion::Label(_) => {
            let serving = app.models().find_live(Some(&target.reference()?));
            Some(serving.map_err(|error| target.map_error(error.into()))?.version)
        }
    };
    let versions = || model.versions.iter().filter(|version| wanted.is_none_or(|wanted| wanted == version.version));
    if let (Some(wanted), None) = (wanted, versions().next()) {
        return Err(missing(format!("version {wanted} of model {}", target.display_name())));
    }
    let mut answer = status::version_statuses(versions());
    // KServe's client of protocol V1 expects `ready` under the same path. A sleeping model counts as ready, since a
    // request loads it.
    let is_ready = match wanted {
        Some(_) => versions().all(|version| version.state == VersionState::Ready),
        None => model.serving.is_some() || model.residency.wakes_on_request(),
    };
    answer["name"] = Value::from(model.name.as_str());
    answer["ready"] = Value::from(is_ready);
    Ok(Json(answer).into_response())
}

/// Handles a browser's CORS preflight request. Without headers that allow it, the browser does not send the cross-site
/// request.
fn preflight(headers: &HeaderMap) -> Result<Response, ApiError> {
    let origin = headers.get(header::ORIGIN).map(|origin| origin.as_bytes().to_ascii_lowercase()).unwrap_or_default();
    if origin.starts_with(b"http://") || origin.starts_with(b"https://") {
        return Ok(([(header::CONTENT_TYPE, JSON)], Body::empty()).into_response());
    }
    Err(TfsError::NoOrigin.into())
}

impl ServableTarget {
    /// Returns the reference by which the model is looked up.
    fn reference(&self) -> Result<ModelReference, TfsError> {
        let which = match &self.which {
            ServableVersion::Latest => VersionSelector::Default,
            ServableVersion::Number(version) => VersionSelector::Version(*version),
            ServableVersion::Label(label) if is_alias(label) => VersionSelector::Alias(label.clone()),
            ServableVersion::Label(_) => return Err(self.label_not_found()),
        };
        Ok(ModelReference { model: self.model.clone(), version: which })
    }

    /// Returns the model's name, shortened for errors.
    fn display_name(&self) -> String {
        self.model.chars().take(80).collect()
    }

    fn label_not_found(&self) -> TfsError {
        let ServableVersion::Label(label) = &self.which else { return TfsError::Label { label: String::new() } };
        TfsError::Label { label: label.chars().take(80).collect() }
    }

    /// Returns TensorFlow Serving's error for a model, version or label that does not exist.
    fn map_error(&self, error: ApiError) -> ApiError {
        let ApiError::Serving(reason) = &error else { return error };
        match (reason, &self.which) {
            (ServingError::NoModel { .. }, ServableVersion::Number(version)) => {
                self.servable_not_found(Some(*version)).into()
            }
            (ServingError::NoModel { .. }, _) => self.servable_not_found(None).into(),
            (ServingError::VersionNotServing { state: Some(VersionState::Loading), .. }, _) => error,
            (ServingError::VersionNotServing { version, .. }, _) => self.servable_not_found(Some(*version)).into(),
            (ServingError::NoAlias { .. }, ServableVersion::Label(_)) => self.label_not_found().into(),
            _ => error,
        }
    }

    fn servable_not_found(&self, version: Option<u64>) -> TfsError {
        let model = self.display_name();
        let request = version.map_or_else(|| format!("Latest({model})"), |v| format!("Specific({model}, {v})"));
        TfsError::NoServable { request }
    }
}
