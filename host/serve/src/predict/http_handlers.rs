//! Requests to paths that a plugin answers with its own code: `GET /models/NAME/hello/x`, or `GET /hello/x` for the
//! default model.
//!
//! A plugin is not trusted. It sees an allow list of request headers, and sets an allow list of response headers. Every
//! response forbids browsers to guess its type, and its pages to act as pages of this server.

mod handler_request;
mod handler_response;

use axum::http::Method;
use axum::http::request::Parts;
use axum::response::Response;
use saggar_plugin::{HandlerMatch, HandlerMethod, match_handlers};
use saggar_serving::{LiveVersion, PredictionDeadline, VersionLease, run_handler};

use super::path_inputs::{find_route, path_segments};
use crate::app::AppState;
use crate::error::ApiError;
use crate::request_body::BufferedBody;

/// Methods of routes that are predictions.
const PREDICTION_METHODS: &str = "GET, HEAD, POST";

/// Returns the handlers of a path of this version, or `None` if it has none.
pub(super) fn find_handlers(version: &LiveVersion, method: &Method, path: &str) -> Option<HandlerMatch> {
    let handlers = &version.predictor().signature().handlers;
    if handlers.is_empty() {
        return None;
    }
    match_handlers(handlers, HandlerMethod::from_name(method.as_str()), &path_segments(path))
}

/// Checks that a path without handlers can have a prediction with this method.
///
/// # Errors
/// Returns `Method` if the path is a prediction of this version, which has other methods.
pub(super) fn check_prediction_method(version: &LiveVersion, method: &Method, path: &str) -> Result<(), ApiError> {
    let is_prediction = matches!(*method, Method::GET | Method::HEAD | Method::POST);
    if is_prediction || find_route(version, path).is_none() {
        return Ok(());
    }
    Err(method_error(method, path, PREDICTION_METHODS.to_owned()))
}

fn method_error(method: &Method, path: &str, allow: String) -> ApiError {
    ApiError::Method {
        method: method.as_str().chars().take(40).collect(),
        path: format!("/{path}").chars().take(200).collect(),
        allow,
    }
}

/// Answers a request with the handler that was found in the leased version.
///
/// # Errors
/// Returns `Method` if the path has other methods, `Parameter` for a query that cannot be decoded, and the errors of the
/// call.
pub(super) async fn respond_with_handler(
    app: &AppState,
    lease: VersionLease,
    deadline: PredictionDeadline,
    found: HandlerMatch,
    parts: &Parts,
    path: &str,
    body: BufferedBody,
) -> Result<Response, ApiError> {
    let HandlerMatch { route, parameters, methods } = found;
    let Some(route) = route else {
        return Err(method_error(&parts.method, path, handler_response::allowed_methods(&methods)));
    };
    let charge = body.new_charge();
    let request = handler_request::handler_request(route, parameters, parts, path, &body)?;
    let answer = run_handler(app.prediction_service(), lease, deadline, request, charge).await;
    drop(body);
    handler_response::respond(answer?, parts.method == Method::HEAD)
}
