//! TensorFlow Serving's REST interface, under `/v1/`: predictions by row and by column, classification, regression, the
//! status of versions and what they take. Labels are aliases. Beside it `GET /v1/models` lists names, as KServe V1 has it.
//!
//! Errors have TensorFlow Serving's words and statuses where it has any, in the body of every error of this server.

mod encode;
pub mod error;
mod examples;
mod path;
mod request;
mod status;
mod tensor;

use std::time::Instant;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method as Verb, header};
use axum::response::{IntoResponse, Response};
use saggar_plugin::Signature;
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::limits::{BODY_BYTES_MAX, INLINE_BYTES_MAX};
use crate::models::VersionState;
use crate::predict::call::{Call, Deadline, rejected};
use crate::predict::keep::KeepAliveOverride;
use crate::predict::reference::{Reference, Which, is_alias};
use error::TfsError;
use examples::Method;
use path::{Asked, Target, TargetVersion};

const JSON: &str = "application/json";

/// Every request under `/v1/`.
pub(crate) async fn handle(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    if request.method() == Verb::OPTIONS {
        return preflight(request.headers());
    }
    let asked = path::parse(request.method().as_str(), request.uri().path())?;
    match asked {
        Asked::Models => {
            let names: Vec<String> = app.models().list().into_iter().map(|model| model.name).collect();
            Ok(Json(json!({ "models": names })).into_response())
        }
        Asked::Status(target) => status_of(&app, &target),
        Asked::Metadata(target) => {
            let serving = app.models().find(Some(&target.reference()?)).map_err(|error| target.refused(error))?;
            Ok(Json(status::metadata(&serving)).into_response())
        }
        Asked::Predict(target) => {
            let (call, (inputs, form)) = begin(&app, &target, request, request::predict).await?;
            let answer = call.run(inputs).await?;
            answer.respond(JSON, |answer| encode::json(answer.signature(), &answer.tensors, answer.items, form))
        }
        Asked::Classify(target) => examples_of(&app, &target, request, Method::Classify).await,
        Asked::Regress(target) => examples_of(&app, &target, request, Method::Regress).await,
    }
}

async fn examples_of(app: &App, target: &Target, request: Request, method: Method) -> Result<Response, ApiError> {
    let model = target.model.clone();
    let decode = move |signature: &Signature, body: &[u8]| {
        let plan = examples::plan(&model, signature, method)?;
        Ok((examples::inputs(signature, body, method)?, plan))
    };
    let (call, (inputs, plan)) = begin(app, target, request, decode).await?;
    call.run(inputs).await?.respond(JSON, |answer| examples::json(answer, plan))
}

/// Reads the request's body and has `decode` make inputs of it, on a thread that may take long where it is large.
async fn begin<T: Send + 'static>(
    app: &App,
    target: &Target,
    request: Request,
    decode: impl FnOnce(&Signature, &[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<(Call, T), ApiError> {
    let (parts, body) = request.into_parts();
    let (deadline, keep) = (Deadline::of(&parts.headers)?, KeepAliveOverride::of(&parts)?);
    let reference = target.reference()?;
    // A model that is not there is said to be so before its input is read.
    let found = app.models().check(Some(&reference)).inspect_err(|error| rejected(app.metrics(), error));
    found.map_err(|error| target.refused(error))?;
    let body = app.bodies().read(&parts, body, BODY_BYTES_MAX).await;
    let body = body.inspect_err(|error| rejected(app.metrics(), error))?;
    let call = Call::begin(app, Some(&reference), deadline, keep, &body).await;
    let mut call = call.map_err(|error| target.refused(error))?;
    if body.bytes.len() <= INLINE_BYTES_MAX {
        let decoded = call.decode(|signature| decode(signature, &body.bytes))?;
        return Ok((call, decoded));
    }
    let began = Instant::now();
    let (signature, thread) = (call.signature().clone(), body.thread().await?);
    let work = tokio::task::spawn_blocking(move || {
        let _thread = thread;
        decode(&signature, &body.bytes)
    });
    let decoded = work.await.unwrap_or_else(|error| Err(ApiError::Internal { cause: format!("decoding: {error}") }));
    let decoded = call.decoded(began, decoded)?;
    Ok((call, decoded))
}

fn status_of(app: &App, target: &Target) -> Result<Response, ApiError> {
    let missing = |what| ApiError::from(TfsError::NoVersions { what });
    let model = app.models().status(&target.model);
    let model = model.map_err(|_| missing(format!("any versions of model {}", target.shown())))?;
    let wanted = match &target.which {
        TargetVersion::Latest => None,
        TargetVersion::Number(version) => Some(*version),
        TargetVersion::Label(_) => {
            let serving = app.models().find(Some(&target.reference()?));
            Some(serving.map_err(|error| target.refused(error))?.version)
        }
    };
    let versions = || model.versions.iter().filter(|version| wanted.is_none_or(|wanted| wanted == version.version));
    if let (Some(wanted), None) = (wanted, versions().next()) {
        return Err(missing(format!("version {wanted} of model {}", target.shown())));
    }
    let mut answer = status::versions(versions());
    // What KServe's client of protocol V1 asks for under the same path. A model that sleeps answers, and so it is ready.
    let is_ready = match wanted {
        Some(_) => versions().all(|version| version.state == VersionState::Ready),
        None => model.serving.is_some() || model.rest.wakes(),
    };
    answer["name"] = Value::from(model.name.as_str());
    answer["ready"] = Value::from(is_ready);
    Ok(Json(answer).into_response())
}

/// A browser's question before a request from another site's page. Without headers that allow it the browser makes none.
fn preflight(headers: &HeaderMap) -> Result<Response, ApiError> {
    let origin = headers.get(header::ORIGIN).map(|origin| origin.as_bytes().to_ascii_lowercase()).unwrap_or_default();
    if origin.starts_with(b"http://") || origin.starts_with(b"https://") {
        return Ok(([(header::CONTENT_TYPE, JSON)], Body::empty()).into_response());
    }
    Err(TfsError::NoOrigin.into())
}

impl Target {
    /// The version, as the models are asked for it.
    fn reference(&self) -> Result<Reference, TfsError> {
        let which = match &self.which {
            TargetVersion::Latest => Which::Default,
            TargetVersion::Number(version) => Which::Version(*version),
            TargetVersion::Label(label) if is_alias(label) => Which::Alias(label.clone()),
            TargetVersion::Label(_) => return Err(self.no_label()),
        };
        Ok(Reference { model: self.model.clone(), which })
    }

    /// The model's name, for an error.
    fn shown(&self) -> String {
        self.model.chars().take(80).collect()
    }

    fn no_label(&self) -> TfsError {
        let TargetVersion::Label(label) = &self.which else { return TfsError::Label { label: String::new() } };
        TfsError::Label { label: label.chars().take(80).collect() }
    }

    /// The words for a model, version or label that is not there.
    fn refused(&self, error: ApiError) -> ApiError {
        match (&error, &self.which) {
            (ApiError::NoModel { .. }, TargetVersion::Number(version)) => self.no_servable(Some(*version)).into(),
            (ApiError::NoModel { .. }, _) => self.no_servable(None).into(),
            (ApiError::VersionNotServing { state: "LOADING", .. }, _) => error,
            (ApiError::VersionNotServing { version, .. }, _) => self.no_servable(Some(*version)).into(),
            (ApiError::NotFound { .. }, TargetVersion::Label(_)) => self.no_label().into(),
            _ => error,
        }
    }

    fn no_servable(&self, version: Option<u64>) -> TfsError {
        let model = self.shown();
        let request = version.map_or_else(|| format!("Latest({model})"), |v| format!("Specific({model}, {v})"));
        TfsError::NoServable { request }
    }
}
