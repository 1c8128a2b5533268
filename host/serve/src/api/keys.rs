//! `/api/v1/keys`: making, listing and ending keys, for who has the scope `admin`.

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use saggar_store::keys::NewKey;
use serde_json::{Value, json};

use crate::access::Actor;
use crate::app::App;
use crate::audit::Action;
use crate::error::{ApiError, created, no_content};
use crate::json_body::JsonBody;

/// `GET /api/v1/keys`. Nothing in the answer opens anything.
pub(crate) async fn list(State(app): State<App>) -> Result<Json<Value>, ApiError> {
    let keys = app.blocking(|parts| {
        parts.access.refresh();
        Ok::<_, ApiError>(parts.access.list())
    });
    let keys: Vec<Value> = keys.await?.iter().map(|(key, used)| key.shown(*used)).collect();
    Ok(Json(json!({ "keys": keys })))
}

impl JsonBody for NewKey {
    const EXAMPLE: &'static str = r#"{"name": "ci", "scopes": ["jobs:write"], "projects": ["digits"]}"#;
}

/// `POST /api/v1/keys`: `{"name", "scopes", "rate"?, "quota"?, "expires_ms"?}`. The answer's `key` is shown this once.
pub(crate) async fn create(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let actor = Actor::of(request.extensions());
    let new: NewKey = app.bodies().json(request).await?;
    let (now_ms, name, detail) = (app.now_ms(), new.name.clone(), new.summary());
    let made = app
        .blocking(move |parts| {
            let made = parts.access.file().create(new, now_ms);
            parts.access.refresh();
            made
        })
        .await;
    app.audit().record(&actor, Action::KeyCreate, &name, &detail, &made);
    let (record, text) = made?;
    let mut answer = record.shown(0);
    answer["key"] = Value::String(text);
    Ok(created(answer))
}

/// `DELETE /api/v1/keys/{name}`: the key opens nothing from now on.
pub(crate) async fn revoke(
    State(app): State<App>,
    Path(name): Path<String>,
    actor: Actor,
) -> Result<Response, ApiError> {
    let of = name.clone();
    let revoked = app
        .blocking(move |parts| {
            let revoked = parts.access.file().revoke(&of);
            parts.access.refresh();
            revoked
        })
        .await;
    app.audit().record(&actor, Action::KeyRevoke, &name, "", &revoked);
    revoked.map(|_| no_content())
}
