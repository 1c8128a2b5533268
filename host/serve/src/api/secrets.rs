//! `/api/v1/secrets`: names of secrets that jobs may be granted. Values come in and are never shown.

use axum::Json;
use axum::extract::{Path, Request, State};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::Actor;
use crate::app::App;
use crate::audit::Action;
use crate::error::ApiError;

/// A secret's value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Secret {
    value: String,
}

/// `GET /api/v1/secrets`.
pub(crate) async fn list(State(app): State<App>) -> Result<Json<Value>, ApiError> {
    let names = app.blocking(|parts| parts.home.secrets().names()).await?;
    Ok(Json(json!({ "secrets": names })))
}

/// `PUT /api/v1/secrets/{name}`.
pub(crate) async fn set(
    State(app): State<App>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let actor = Actor::of(request.extensions());
    let Secret { value } = app.bodies().json(request).await?;
    let asked = name.clone();
    let set = app.blocking(move |parts| parts.home.secrets().set(&asked, &value)).await;
    app.audit().record(&actor, Action::SecretSet, &name, "", &set);
    set?;
    Ok(Json(json!({ "name": name })))
}

/// `DELETE /api/v1/secrets/{name}`.
pub(crate) async fn remove(
    State(app): State<App>,
    Path(name): Path<String>,
    actor: Actor,
) -> Result<Json<Value>, ApiError> {
    let asked = name.clone();
    let removed = app.blocking(move |parts| parts.home.secrets().remove(&asked)).await.and_then(|there| {
        let hint = "GET /api/v1/secrets lists them".to_owned();
        if there { Ok(()) } else { Err(ApiError::NotFound { kind: "secret", name: name.clone(), hint }) }
    });
    app.audit().record(&actor, Action::SecretRemove, &name, "", &removed);
    removed?;
    Ok(Json(json!({ "name": name })))
}
