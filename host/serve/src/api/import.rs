//! `POST /api/v1/models/{model}/import`: a model version of an ONNX file.

use axum::Json;
use axum::extract::{Path, Request, State};
use serde_json::{Value, json};

use super::query::Parameters;
use crate::access::Actor;
use crate::access::things::with_publication;
use crate::app::App;
use crate::audit::Action;
use crate::error::ApiError;
use crate::limits::IMPORT_BYTES_MAX;

/// The body is the file; `options`, a JSON object, is the plugin's that reads it. The answer names the version, which then
/// comes up like any other.
pub(crate) async fn import(
    State(app): State<App>,
    Path(model): Path<String>,
    parameters: Parameters,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let options = parameters.get("options").unwrap_or("{}").to_owned();
    if !serde_json::from_str::<Value>(&options).is_ok_and(|options| options.is_object()) {
        let got = options.chars().take(80).collect();
        return Err(ApiError::Parameter { name: "options", expected: "a JSON object", got });
    }
    let actor = Actor::of(request.extensions());
    let (parts, body) = request.into_parts();
    let body = app.bodies().read(&parts, body, IMPORT_BYTES_MAX).await?;
    let name = model.clone();
    let import = move |parts: &crate::Parts| {
        parts.room(body.bytes.len() as u64)?;
        Ok::<_, ApiError>(parts.importer.import(&name, &body.bytes, &options)?)
    };
    let published = with_publication(&app, &actor.rights, &model, app.blocking(import)).await;
    let detail = published.as_ref().map_or_else(|_| String::new(), |made| format!("version {}", made.version));
    app.audit().record(&actor, Action::ModelImport, &model, &detail, &published);
    let published = published?;
    Ok(Json(json!({ "model": model, "version": published.version, "is_new": published.is_new })))
}
