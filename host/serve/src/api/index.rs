//! `GET /`: an index of this server, as JSON for programs and as the console for browsers.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::app::AppState;
use crate::pages::console;

/// Handles `GET /`. A client that accepts HTML gets the console, any other the JSON.
pub(crate) async fn index(State(app): State<AppState>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accept.contains("text/html") {
        return console::console_page(&headers);
    }
    let models: Vec<_> = app.models().list().iter().map(super::models::model_summary_json).collect();
    let version = env!("CARGO_PKG_VERSION");
    // KServe's client of protocol V1 expects this `status`.
    let index = json!({ "name": "saggar", "status": "alive", "version": version, "routes": app.route_paths(), "models": models });
    ([(header::VARY, HeaderValue::from_static("accept"))], Json(index)).into_response()
}
