//! Health probes, the version and the metrics page.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use saggar_rest::server::{PROGRAM_NAME, ReadinessDocument, VersionDocument};
use saggar_serving::model_state::Residency;
use saggar_serving::{ModelStatus, VersionState};

use super::query::QueryParameters;
use crate::app::AppState;
use crate::content_encoding::{ContentEncoding, compress_response};
use crate::error::{ApiError, ProbeResponse};

/// Handles `GET /healthz` and `GET /livez`: liveness.
pub(crate) async fn livez() -> &'static str {
    "ok"
}

/// Handles `GET /readyz`: ready if every model that should be loaded has a serving version, and the server is not
/// stopping.
pub(crate) async fn readyz(
    State(app): State<AppState>,
    parameters: QueryParameters,
) -> ProbeResponse<ReadinessDocument> {
    let reasons = unready_reasons(&app);
    let ready = reasons.is_empty();
    let models = || app.models().list().iter().map(super::models::model_summary).collect();
    let document = ReadinessDocument {
        ready,
        reasons: (!ready).then_some(reasons),
        models: parameters.flag("verbose").then(models),
    };
    ProbeResponse { ready, document }
}

/// Returns why the server is not ready; empty if it is. Models that sleep or were unloaded by a user do not count.
pub(crate) fn unready_reasons(app: &AppState) -> Vec<String> {
    let is_missing = |model: &&ModelStatus| model.serving.is_none() && model.residency == Residency::Awake;
    let mut reasons: Vec<String> = app.models().list().iter().filter(is_missing).map(unready_reason).collect();
    if *app.shutdown().borrow() {
        reasons.push("the server is stopping".to_owned());
    }
    reasons
}

fn unready_reason(model: &ModelStatus) -> String {
    let newest = model.versions.last();
    let detail = newest.map_or_else(String::new, |version| {
        let separator = if version.reason.is_empty() { "" } else { ": " };
        let state = if version.state == VersionState::Unloaded { "waiting" } else { version.state.name() };
        format!(", version {} is {state}{separator}{}", version.version, version.reason)
    });
    format!("model {} does not serve{detail}", model.name)
}

/// Handles `GET /version`.
pub(crate) async fn version() -> Json<VersionDocument> {
    Json(VersionDocument { name: PROGRAM_NAME.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() })
}

/// Handles `GET /metrics`: OpenMetrics 1.0 if the client accepts it, else Prometheus text format 0.0.4; compressed if
/// the client accepts that.
pub(crate) async fn metrics(State(app): State<AppState>, headers: HeaderMap) -> Result<Response, ApiError> {
    let shared = app.clone();
    let is_openmetrics = prefers_openmetrics(&headers);
    let render = move |parts: &crate::AppParts| {
        shared.storage_counter().refresh_if_old(parts);
        let metrics = &parts.metrics;
        Ok::<_, ApiError>(if is_openmetrics { metrics.render_openmetrics() } else { metrics.render_prometheus() })
    };
    let text = app.run_blocking(render).await?;
    let content_type = if is_openmetrics { OPENMETRICS } else { PROMETHEUS_TEXT };
    let response = ([(header::CONTENT_TYPE, content_type)], text).into_response();
    let mut response = compress_response(response, ContentEncoding::from_accept_encoding(&headers)).await?;
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept, accept-encoding"));
    Ok(response)
}

const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns whether the client accepts OpenMetrics 1.0, or OpenMetrics without a version, at a quality not below that of
/// plain text.
fn prefers_openmetrics(headers: &HeaderMap) -> bool {
    let (mut openmetrics, mut plain) = (0.0, 0.0);
    let lines = headers.get_all(header::ACCEPT).iter().filter_map(|line| line.to_str().ok());
    for item in lines.flat_map(|line| line.split(',')) {
        let mut parts = item.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut quality, mut is_known) = (1.0_f32, true);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim() {
                "q" => quality = value.trim().parse().unwrap_or(0.0),
                "version" => is_known = value.trim().trim_matches('"') == "1.0.0",
                _ => {}
            }
        }
        match media_type.as_str() {
            "application/openmetrics-text" if is_known => openmetrics = quality.max(openmetrics),
            "text/plain" => plain = quality.max(plain),
            _ => {}
        }
    }
    openmetrics > 0.0 && openmetrics >= plain
}
