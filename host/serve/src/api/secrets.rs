//! `/api/v1/secrets`: names of secrets that jobs can be granted. Values are accepted and never returned.

use axum::Json;
use axum::extract::{Path, Request, State};
use saggar_rest::secrets::{SecretListDocument, SecretNameDocument, SetSecretRequest};

use crate::access::{Actor, ProjectScope};
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::ApiError;
use crate::json_body::JsonBody;

impl JsonBody for SetSecretRequest {
    const EXAMPLE: &'static str = r#"{"value": "a value of some length", "projects": ["digits"]}"#;
}

/// Handles `GET /api/v1/secrets`: the secrets that the client can use.
pub(crate) async fn list(
    State(app): State<AppState>,
    sight: ProjectScope,
) -> Result<Json<SecretListDocument>, ApiError> {
    let secrets = app.run_blocking(move |parts| parts.secrets.names(sight.rights())).await?;
    Ok(Json(SecretListDocument { secrets: secrets.keys().cloned().collect(), projects: secrets }))
}

/// Handles `PUT /api/v1/secrets/{name}`.
pub(crate) async fn set(
    State(app): State<AppState>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Json<SecretNameDocument>, ApiError> {
    let actor = Actor::from_extensions(request.extensions());
    let SetSecretRequest { value, projects } = app.body_reader().read_json(request).await?;
    let detail = projects.as_ref().map_or_else(String::new, |projects| format!("for {}", projects.join(", ")));
    let asked = name.clone();
    let set = app.run_blocking(move |parts| parts.secrets.set(&asked, &value, projects)).await;
    app.audit().record(&actor, AuditAction::SecretSet, &name, &detail, &set);
    set?;
    Ok(Json(SecretNameDocument { name }))
}

/// Handles `DELETE /api/v1/secrets/{name}`.
pub(crate) async fn remove(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
) -> Result<Json<SecretNameDocument>, ApiError> {
    let asked = name.clone();
    let removed = app.run_blocking(move |parts| parts.secrets.remove(&asked)).await.and_then(|there| {
        let hint = "GET /api/v1/secrets lists them".to_owned();
        if there { Ok(()) } else { Err(ApiError::NotFound { kind: "secret", name: name.clone(), hint }) }
    });
    app.audit().record(&actor, AuditAction::SecretRemove, &name, "", &removed);
    removed?;
    Ok(Json(SecretNameDocument { name }))
}
