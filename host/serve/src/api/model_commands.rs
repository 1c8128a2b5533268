//! `/api/v1/models/{model}/...`: loading, promotion, rollback, aliases, traffic shares, shadows, settings. Each
//! response contains the model's new state.

use axum::Json;
use axum::extract::{Path, Request, State};
use saggar_rest::model_commands::{
    OptionalVersionRequest, PromoteRequest, PromotionTarget, SetAliasRequest, SetShadowRequest, TrafficRequest,
};
use saggar_rest::models::{ModelConfigDocument, ModelDocument};
use saggar_serving::ModelStatus;
use saggar_serving::desired_state::ShadowPolicy;
use saggar_store::AccessAction;

use crate::access::Actor;
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::deprecated_use::DeprecatedUses;
use crate::error::ApiError;
use crate::json_body::JsonBody;
use crate::limits::BODY_BYTES_MAX;
use crate::resource_access::change_model;

type ModelCommandResult = Result<Json<ModelDocument>, ApiError>;

/// Returns the response to a command and records the command, or its refusal, in the audit log.
fn audited_model_response(
    app: &AppState,
    actor: &Actor,
    action: AuditAction,
    (name, detail): (&str, &str),
    status: Result<ModelStatus, ApiError>,
) -> ModelCommandResult {
    app.audit().record(actor, action, name, detail, &status);
    Ok(Json(super::models::model_document(&status?)))
}

/// Returns a version as text for the audit log, or `none` if there is no version.
fn version_detail(version: Option<u64>, none: &str) -> String {
    version.map_or_else(|| none.to_owned(), |version| format!("version {version}"))
}

impl JsonBody for OptionalVersionRequest {
    const EXAMPLE: &'static str = r#"{"version": 3}"#;
}

async fn read_optional_version(app: &AppState, request: Request) -> Result<Option<u64>, ApiError> {
    Ok(app.body_reader().read_json_unless_blank::<OptionalVersionRequest>(request).await?.version)
}

/// Handles `POST /api/v1/models/{model}/load`, for one version or for all that are needed.
pub(crate) async fn load(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
    request: Request,
) -> ModelCommandResult {
    let version = read_optional_version(&app, request).await?;
    let work = app.lifecycle().load(&name, version);
    let done = change_model(&app, &actor.rights, AccessAction::LoadModel, &name, work).await;
    audited_model_response(&app, &actor, AuditAction::ModelLoad, (&name, &version_detail(version, "")), done)
}

/// Handles `POST /api/v1/models/{model}/unload`, for one version or for all.
pub(crate) async fn unload(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
    request: Request,
) -> ModelCommandResult {
    let version = read_optional_version(&app, request).await?;
    let work = app.lifecycle().unload(&name, version);
    let done = change_model(&app, &actor.rights, AccessAction::UnloadModel, &name, work).await;
    audited_model_response(&app, &actor, AuditAction::ModelUnload, (&name, &version_detail(version, "")), done)
}

/// Handles `POST /api/v1/models/{model}/warm`.
pub(crate) async fn warm(State(app): State<AppState>, Path(name): Path<String>, actor: Actor) -> ModelCommandResult {
    let work = app.lifecycle().warm_up(&name);
    let done = change_model(&app, &actor.rights, AccessAction::LoadModel, &name, work).await;
    audited_model_response(&app, &actor, AuditAction::ModelWarm, (&name, ""), done)
}

impl JsonBody for PromoteRequest {
    const EXAMPLE: &'static str = r#"{"version": 3}"#;
}

/// Handles `POST /api/v1/models/{model}/promote` with `{"version": 3}` or `{"version": "newest"}`.
pub(crate) async fn promote(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
    request: Request,
) -> ModelCommandResult {
    let PromoteRequest { version } = app.body_reader().read_json(request).await?;
    let version = match version {
        PromotionTarget::Version(version) => Some(version),
        PromotionTarget::Word(word) if word == "newest" => None,
        PromotionTarget::Word(word) => {
            let got = word.chars().take(80).collect();
            return Err(ApiError::Parameter { name: "version", expected: "a version's number, or \"newest\"", got });
        }
    };
    let work = app.lifecycle().promote(&name, version);
    let done = change_model(&app, &actor.rights, AccessAction::DeployModel, &name, work).await;
    audited_model_response(&app, &actor, AuditAction::ModelPromote, (&name, &version_detail(version, "newest")), done)
}

/// Handles `POST /api/v1/models/{model}/rollback`.
pub(crate) async fn roll_back(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
) -> ModelCommandResult {
    let work = app.lifecycle().roll_back(&name);
    let done = change_model(&app, &actor.rights, AccessAction::DeployModel, &name, work).await;
    audited_model_response(&app, &actor, AuditAction::ModelRollback, (&name, ""), done)
}

impl JsonBody for SetAliasRequest {
    const EXAMPLE: &'static str = r#"{"version": 3}"#;
}

/// Handles `PUT /api/v1/models/{model}/aliases/{alias}` with `{"version": 3}`.
pub(crate) async fn set_alias(
    State(app): State<AppState>,
    Path((name, alias)): Path<(String, String)>,
    actor: Actor,
    request: Request,
) -> ModelCommandResult {
    let SetAliasRequest { version } = app.body_reader().read_json(request).await?;
    let work = app.lifecycle().set_alias(&name, &alias, version);
    let done = change_model(&app, &actor.rights, AccessAction::DeployModel, &name, work).await;
    audited_model_response(
        &app,
        &actor,
        AuditAction::ModelAlias,
        (&name, &format!("{alias} to version {version}")),
        done,
    )
}

/// Handles `DELETE /api/v1/models/{model}/aliases/{alias}`.
pub(crate) async fn remove_alias(
    State(app): State<AppState>,
    Path((name, alias)): Path<(String, String)>,
    actor: Actor,
) -> ModelCommandResult {
    let work = app.lifecycle().remove_alias(&name, &alias);
    let done = change_model(&app, &actor.rights, AccessAction::DeployModel, &name, work).await;
    audited_model_response(&app, &actor, AuditAction::ModelUnalias, (&name, &alias), done)
}

impl JsonBody for TrafficRequest {
    const EXAMPLE: &'static str = r#"{"stable": 90, "canary": 10}"#;
}

/// Handles `PUT /api/v1/models/{model}/traffic` with `{"stable": 90, "canary": 10}`.
pub(crate) async fn set_traffic(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
    request: Request,
) -> ModelCommandResult {
    let TrafficRequest(traffic) = app.body_reader().read_json(request).await?;
    let detail = format!("{traffic:?}");
    let work = app.lifecycle().set_traffic(&name, traffic);
    let done = change_model(&app, &actor.rights, AccessAction::DeployModel, &name, work).await;
    audited_model_response(&app, &actor, AuditAction::ModelTraffic, (&name, &detail), done)
}

impl JsonBody for SetShadowRequest {
    const EXAMPLE: &'static str = r#"{"to": "canary", "percent": 10}"#;
}

/// Handles `PUT /api/v1/models/{model}/shadow` with `{"to": "canary", "percent": 10}`.
pub(crate) async fn set_shadow(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
    request: Request,
) -> ModelCommandResult {
    let SetShadowRequest { to, percent } = app.body_reader().read_json(request).await?;
    let detail = format!("{percent} percent to {to}");
    let work = app.lifecycle().set_shadow(&name, Some(ShadowPolicy { to, percent }));
    let done = change_model(&app, &actor.rights, AccessAction::DeployModel, &name, work).await;
    audited_model_response(&app, &actor, AuditAction::ModelShadow, (&name, &detail), done)
}

/// Handles `DELETE /api/v1/models/{model}/shadow`.
pub(crate) async fn remove_shadow(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
) -> ModelCommandResult {
    let work = app.lifecycle().set_shadow(&name, None);
    let done = change_model(&app, &actor.rights, AccessAction::DeployModel, &name, work).await;
    audited_model_response(&app, &actor, AuditAction::ModelShadow, (&name, "none"), done)
}

/// Handles `GET /api/v1/models/{model}/config`.
pub(crate) async fn get_config(
    State(app): State<AppState>,
    Path(name): Path<String>,
) -> Result<Json<ModelConfigDocument>, ApiError> {
    Ok(Json(super::models::config_document(&app.models().status(&name)?)))
}

/// Handles `PUT /api/v1/models/{model}/config`: replaces `model.json`.
pub(crate) async fn replace_config(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
    request: Request,
) -> ModelCommandResult {
    let (parts, body) = request.into_parts();
    let whole = app.body_reader().read(&parts, body, BODY_BYTES_MAX).await?;
    if let Some(uses) = parts.extensions.get::<DeprecatedUses>() {
        uses.record_members(&whole.bytes);
    }
    let work = app.lifecycle().configure(&name, &whole.bytes);
    let done = change_model(&app, &actor.rights, AccessAction::ConfigureModel, &name, work).await;
    audited_model_response(&app, &actor, AuditAction::ModelConfigure, (&name, ""), done)
}
