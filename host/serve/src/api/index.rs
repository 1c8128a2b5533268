//! `GET /`: an index of this server, as JSON for programs and as the console for browsers.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use saggar_rest::server::{IndexDocument, PROGRAM_NAME};

use crate::app::AppState;
use crate::openapi::described_response::DescribedResponse;
use crate::openapi::operation_response::{OperationResponse, SchemaSource};
use crate::pages::console;

/// The response of `GET /`.
pub(crate) enum IndexResponse {
    /// For programs.
    Document(Json<IndexDocument>),
    /// For browsers.
    Console(Response),
}

impl IntoResponse for IndexResponse {
    fn into_response(self) -> Response {
        match self {
            IndexResponse::Document(document) => {
                ([(header::VARY, HeaderValue::from_static("accept"))], document).into_response()
            }
            IndexResponse::Console(page) => page,
        }
    }
}

impl DescribedResponse for IndexResponse {
    fn responses() -> Vec<OperationResponse> {
        let mut responses = Json::<IndexDocument>::responses();
        responses.push(OperationResponse::new(200, "text/html", SchemaSource::Text));
        responses
    }
}

/// Handles `GET /`. A client that accepts HTML gets the console, any other the JSON.
pub(crate) async fn index(State(app): State<AppState>, headers: HeaderMap) -> IndexResponse {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accept.contains("text/html") {
        return IndexResponse::Console(console::console_page(&headers));
    }
    IndexResponse::Document(Json(IndexDocument {
        name: PROGRAM_NAME.to_owned(),
        // KServe's client of protocol V1 expects this `status`.
        status: "alive".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        routes: app.route_paths().iter().map(|&path| path.to_owned()).collect(),
        models: app.models().list().iter().map(super::models::model_summary).collect(),
    }))
}
