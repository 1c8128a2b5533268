//! `/api/v1/keys`: creating, listing and revoking keys. Requires the scope `admin`.

use axum::Json;
use axum::extract::{Path, Request, State};
use saggar_rest::keys::{KeyDocument, KeyListDocument, KeyRequest};
use saggar_store::keys::{KeyRecord, KeyScope, NewKey, RateLimit, RequestQuota};

use crate::access::Actor;
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::{ApiError, CreatedResponse, NoContent};
use crate::json_body::JsonBody;

/// Handles `GET /api/v1/keys`. The response contains no secrets.
pub(crate) async fn list(State(app): State<AppState>) -> Result<Json<KeyListDocument>, ApiError> {
    let keys = app.run_blocking(|parts| {
        parts.access.reload_keys();
        Ok::<_, ApiError>(parts.access.list_keys())
    });
    let keys = keys.await?.iter().map(|(key, used)| key_document(key, *used)).collect();
    Ok(Json(KeyListDocument { keys }))
}

/// Returns the members of a key that clients can see, given the requests that it used of its quota. None of them allows
/// using the key.
pub fn key_document(record: &KeyRecord, used: u64) -> KeyDocument {
    KeyDocument {
        id: record.id.clone(),
        name: record.name.clone(),
        scopes: record.scopes.iter().map(ToString::to_string).collect(),
        projects: record.projects.clone(),
        rate: record.rate.map(|rate| rate.to_string()),
        quota: record.quota.map(|quota| quota.to_string()),
        max_running_jobs: record.max_running_jobs,
        gpu_seconds: record.gpu_seconds,
        quota_used: record.quota.map(|_| used),
        created_ms: record.created_ms,
        expires_ms: record.expires_ms,
        key: None,
    }
}

/// The body of a request to create a key.
type NewKeyRequest = KeyRequest<KeyScope, RateLimit, RequestQuota>;

impl JsonBody for NewKeyRequest {
    const EXAMPLE: &'static str = r#"{"name": "ci", "scopes": ["jobs:write"], "projects": ["digits"]}"#;
}

/// Handles `POST /api/v1/keys`: `{"name", "scopes", "rate"?, "quota"?, "expires_ms"?}`. The response's `key` is shown
/// only once.
pub(crate) async fn create(
    State(app): State<AppState>,
    request: Request,
) -> Result<CreatedResponse<KeyDocument>, ApiError> {
    let actor = Actor::from_extensions(request.extensions());
    let new = new_key(app.body_reader().read_json(request).await?);
    let (now_ms, name, detail) = (app.now_ms(), new.name.clone(), new.summary());
    let created = app
        .run_blocking(move |parts| {
            let created = parts.access.key_file().create(new, now_ms);
            parts.access.reload_keys();
            created
        })
        .await;
    app.audit().record(&actor, AuditAction::KeyCreate, &name, &detail, &created);
    let (record, text) = created?;
    Ok(CreatedResponse(KeyDocument { key: Some(text), ..key_document(&record, 0) }))
}

fn new_key(request: NewKeyRequest) -> NewKey {
    let KeyRequest { name, scopes, projects, rate, quota, max_running_jobs, gpu_seconds, expires_ms } = request;
    NewKey { name, scopes, projects, rate, quota, max_running_jobs, gpu_seconds, expires_ms }
}

/// Handles `DELETE /api/v1/keys/{name}`: the key is refused from now on.
pub(crate) async fn revoke(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
) -> Result<NoContent, ApiError> {
    let of = name.clone();
    let revoked = app
        .run_blocking(move |parts| {
            let revoked = parts.access.key_file().revoke(&of);
            parts.access.reload_keys();
            revoked
        })
        .await;
    app.audit().record(&actor, AuditAction::KeyRevoke, &name, "", &revoked);
    revoked.map(|_| NoContent)
}
