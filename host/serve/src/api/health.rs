//! Probes, the version and the metrics page.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::query::Parameters;
use crate::app::App;
use crate::error::{ApiError, not_ready};
use crate::models::state::Rest;
use crate::models::{ModelStatus, VersionState};

/// `GET /healthz`, `GET /livez`: the process answers.
pub(crate) async fn alive() -> &'static str {
    "ok"
}

/// `GET /readyz`: whether every model that is meant to be up has a version that serves, and the server is not stopping.
pub(crate) async fn ready(State(app): State<App>, parameters: Parameters) -> Response {
    let reasons = unready(&app);
    let ready = reasons.is_empty();
    let mut body = json!({ "ready": ready });
    if !ready {
        body["reasons"] = json!(reasons);
    }
    if parameters.flag("verbose") {
        body["models"] = app.models().list().iter().map(super::models::summary).collect();
    }
    if ready { Json(body).into_response() } else { not_ready(body) }
}

/// Why the server is not ready; empty where it is. A model that sleeps or that a user unloaded is as it is meant to be.
pub(crate) fn unready(app: &App) -> Vec<String> {
    let is_missing = |model: &&ModelStatus| model.serving.is_none() && model.rest == Rest::Awake;
    let mut reasons: Vec<String> = app.models().list().iter().filter(is_missing).map(why).collect();
    if *app.shutdown().borrow() {
        reasons.push("the server is stopping".to_owned());
    }
    reasons
}

fn why(model: &ModelStatus) -> String {
    let newest = model.versions.last();
    let detail = newest.map_or_else(String::new, |version| {
        let separator = if version.reason.is_empty() { "" } else { ": " };
        let state = if version.state == VersionState::Unloaded { "waiting" } else { version.state.name() };
        format!(", version {} is {state}{separator}{}", version.version, version.reason)
    });
    format!("model {} does not serve{detail}", model.name)
}

/// `GET /version`.
pub(crate) async fn version() -> Json<Value> {
    Json(json!({ "name": "saggar", "version": env!("CARGO_PKG_VERSION") }))
}

/// `GET /metrics`: Prometheus text format 0.0.4.
pub(crate) async fn metrics(State(app): State<App>) -> Result<Response, ApiError> {
    let shared = app.clone();
    let render = move |parts: &crate::Parts| {
        shared.counted().refresh(parts);
        Ok::<_, ApiError>(parts.metrics.render())
    };
    let text = app.blocking(render).await?;
    let content_type = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((content_type, text).into_response())
}
