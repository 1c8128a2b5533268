//! `GET /`: what this server is and has, for programs as JSON, for people as the console.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::app::AppState;
use crate::console;

/// `GET /`. A client that names HTML gets the console, every other one the JSON.
pub(crate) async fn index(State(app): State<AppState>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accept.contains("text/html") {
        return console::console_page(&headers);
    }
    let models: Vec<_> = app.models().list().iter().map(super::models::model_summary_json).collect();
    let version = env!("CARGO_PKG_VERSION");
    // The status is what KServe's client of protocol V1 asks for.
    let index = json!({ "name": "saggar", "status": "alive", "version": version, "routes": AppState::route_paths(), "models": models });
    ([(header::VARY, HeaderValue::from_static("accept"))], Json(index)).into_response()
}
