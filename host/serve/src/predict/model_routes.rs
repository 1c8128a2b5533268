//! Routes that models declare: `POST /models/NAME/dim/0.5`, or `POST /dim/0.5` for the default model. Values in the
//! path and fixed values of the route are inputs, like those of the body. Paths with handlers run the plugin's own code.

use axum::extract::{Path, Request, State};
use axum::http::Uri;
use axum::response::Response;
use saggar_serving::ModelReference;

use super::http_handlers::find_handlers;
use super::path_inputs::find_route;
use super::{InputSource, predict, text_codec};
use crate::app::AppState;
use crate::error::ApiError;

/// `/models/{model}/{*path}`, with any path that the model declares.
pub(crate) async fn predict_named_by_path(
    State(app): State<AppState>,
    Path((model, path)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let reference = ModelReference::parse(&model)?;
    predict_by_path(&app, Some(&reference), &path, request).await
}

/// Any other path, which the default model can declare.
pub(crate) async fn predict_default_by_path(
    State(app): State<AppState>,
    request: Request,
) -> Result<Response, ApiError> {
    let uri = request.uri().clone();
    let decoded = text_codec::percent_decode(uri.path()).ok_or_else(|| no_route_error(&uri))?;
    let path = decoded.strip_prefix('/').unwrap_or(&decoded).to_owned();
    // If no model is ready, no routes are declared.
    let Ok(serving) = app.models().find_live(None) else { return Err(no_route_error(&uri)) };
    let method = request.method();
    if find_route(&serving, &path).is_none() && find_handlers(&serving, method, &path).is_none() {
        return Err(no_route_error(&uri));
    }
    predict_by_path(&app, None, &path, request).await
}

fn no_route_error(uri: &Uri) -> ApiError {
    ApiError::NoRoute { path: uri.path().chars().take(200).collect() }
}

async fn predict_by_path(
    app: &AppState,
    reference: Option<&ModelReference>,
    path: &str,
    request: Request,
) -> Result<Response, ApiError> {
    app.models().check(reference)?;
    predict(app, reference, request, InputSource::Path(path)).await
}
