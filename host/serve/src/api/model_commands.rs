//! `/api/v1/models/{model}/...`: loading, promoting, rolling back, aliases, shares, shadows, settings. Each answers with the
//! model as it stands after.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, Request, State};
use saggar_store::Effect;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::Actor;
use crate::access::things::with_model;
use crate::app::App;
use crate::audit::Action;
use crate::error::ApiError;
use crate::json_body::{self, JsonBody};
use crate::limits::BODY_BYTES_MAX;
use crate::models::ModelStatus;
use crate::models::plan::ShadowPlan;

type Answer = Result<Json<Value>, ApiError>;

/// The answer to what `actor` did, or was refused, which is written down.
fn answer(
    app: &App,
    actor: &Actor,
    action: Action,
    (name, detail): (&str, &str),
    status: Result<ModelStatus, ApiError>,
) -> Answer {
    app.audit().record(actor, action, name, detail, &status);
    Ok(Json(super::models::whole(&status?)))
}

/// A version as the audit log has it, or what stands for none.
fn described(version: Option<u64>, none: &str) -> String {
    version.map_or_else(|| none.to_owned(), |version| format!("version {version}"))
}

/// `{"version": 3}`, or nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Maybe {
    version: Option<u64>,
}

impl JsonBody for Maybe {
    const EXAMPLE: &'static str = r#"{"version": 3}"#;
}

async fn maybe(app: &App, request: Request) -> Result<Option<u64>, ApiError> {
    let (parts, body) = request.into_parts();
    let whole = app.bodies().read(&parts, body, BODY_BYTES_MAX).await?;
    if whole.bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let maybe: Maybe = json_body::read(&whole.bytes)?;
    Ok(maybe.version)
}

/// `POST /api/v1/models/{model}/load`, of a version or of those that are needed.
pub(crate) async fn load(State(app): State<App>, Path(name): Path<String>, actor: Actor, request: Request) -> Answer {
    let version = maybe(&app, request).await?;
    let work = app.lifecycle().load(&name, version);
    let done = with_model(&app, &actor.rights, Effect::LoadModel, &name, work).await;
    answer(&app, &actor, Action::ModelLoad, (&name, &described(version, "")), done)
}

/// `POST /api/v1/models/{model}/unload`, of a version or of all.
pub(crate) async fn unload(State(app): State<App>, Path(name): Path<String>, actor: Actor, request: Request) -> Answer {
    let version = maybe(&app, request).await?;
    let work = app.lifecycle().unload(&name, version);
    let done = with_model(&app, &actor.rights, Effect::UnloadModel, &name, work).await;
    answer(&app, &actor, Action::ModelUnload, (&name, &described(version, "")), done)
}

/// `POST /api/v1/models/{model}/warm`.
pub(crate) async fn warm(State(app): State<App>, Path(name): Path<String>, actor: Actor) -> Answer {
    let work = app.lifecycle().warm(&name);
    let done = with_model(&app, &actor.rights, Effect::LoadModel, &name, work).await;
    answer(&app, &actor, Action::ModelWarm, (&name, ""), done)
}

/// A version, or `newest`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Target {
    Version(u64),
    Word(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Promotion {
    version: Target,
}

impl JsonBody for Promotion {
    const EXAMPLE: &'static str = r#"{"version": 3}"#;
}

/// `POST /api/v1/models/{model}/promote` with `{"version": 3}` or `{"version": "newest"}`.
pub(crate) async fn promote(
    State(app): State<App>,
    Path(name): Path<String>,
    actor: Actor,
    request: Request,
) -> Answer {
    let Promotion { version } = app.bodies().json(request).await?;
    let version = match version {
        Target::Version(version) => Some(version),
        Target::Word(word) if word == "newest" => None,
        Target::Word(word) => {
            let got = word.chars().take(80).collect();
            return Err(ApiError::Parameter { name: "version", expected: "a version's number, or \"newest\"", got });
        }
    };
    let work = app.lifecycle().promote(&name, version);
    let done = with_model(&app, &actor.rights, Effect::DeployModel, &name, work).await;
    answer(&app, &actor, Action::ModelPromote, (&name, &described(version, "newest")), done)
}

/// `POST /api/v1/models/{model}/rollback`.
pub(crate) async fn roll_back(State(app): State<App>, Path(name): Path<String>, actor: Actor) -> Answer {
    let work = app.lifecycle().roll_back(&name);
    let done = with_model(&app, &actor.rights, Effect::DeployModel, &name, work).await;
    answer(&app, &actor, Action::ModelRollback, (&name, ""), done)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pointed {
    version: u64,
}

impl JsonBody for Pointed {
    const EXAMPLE: &'static str = r#"{"version": 3}"#;
}

/// `PUT /api/v1/models/{model}/aliases/{alias}` with `{"version": 3}`.
pub(crate) async fn set_alias(
    State(app): State<App>,
    Path((name, alias)): Path<(String, String)>,
    actor: Actor,
    request: Request,
) -> Answer {
    let Pointed { version } = app.bodies().json(request).await?;
    let work = app.lifecycle().set_alias(&name, &alias, version);
    let done = with_model(&app, &actor.rights, Effect::DeployModel, &name, work).await;
    answer(&app, &actor, Action::ModelAlias, (&name, &format!("{alias} to version {version}")), done)
}

/// `DELETE /api/v1/models/{model}/aliases/{alias}`.
pub(crate) async fn remove_alias(
    State(app): State<App>,
    Path((name, alias)): Path<(String, String)>,
    actor: Actor,
) -> Answer {
    let work = app.lifecycle().remove_alias(&name, &alias);
    let done = with_model(&app, &actor.rights, Effect::DeployModel, &name, work).await;
    answer(&app, &actor, Action::ModelUnalias, (&name, &alias), done)
}

impl JsonBody for BTreeMap<String, u32> {
    const EXAMPLE: &'static str = r#"{"stable": 90, "canary": 10}"#;
}

/// `PUT /api/v1/models/{model}/traffic` with `{"stable": 90, "canary": 10}`.
pub(crate) async fn set_traffic(
    State(app): State<App>,
    Path(name): Path<String>,
    actor: Actor,
    request: Request,
) -> Answer {
    let traffic: BTreeMap<String, u32> = app.bodies().json(request).await?;
    let detail = format!("{traffic:?}");
    let work = app.lifecycle().set_traffic(&name, traffic);
    let done = with_model(&app, &actor.rights, Effect::DeployModel, &name, work).await;
    answer(&app, &actor, Action::ModelTraffic, (&name, &detail), done)
}

impl JsonBody for ShadowPlan {
    const EXAMPLE: &'static str = r#"{"to": "canary", "percent": 10}"#;
}

/// `PUT /api/v1/models/{model}/shadow` with `{"to": "canary", "percent": 10}`.
pub(crate) async fn set_shadow(
    State(app): State<App>,
    Path(name): Path<String>,
    actor: Actor,
    request: Request,
) -> Answer {
    let shadow: ShadowPlan = app.bodies().json(request).await?;
    let detail = format!("{} percent to {}", shadow.percent, shadow.to);
    let work = app.lifecycle().set_shadow(&name, Some(shadow));
    let done = with_model(&app, &actor.rights, Effect::DeployModel, &name, work).await;
    answer(&app, &actor, Action::ModelShadow, (&name, &detail), done)
}

/// `DELETE /api/v1/models/{model}/shadow`.
pub(crate) async fn remove_shadow(State(app): State<App>, Path(name): Path<String>, actor: Actor) -> Answer {
    let work = app.lifecycle().set_shadow(&name, None);
    let done = with_model(&app, &actor.rights, Effect::DeployModel, &name, work).await;
    answer(&app, &actor, Action::ModelShadow, (&name, "none"), done)
}

/// `GET /api/v1/models/{model}/config`.
pub(crate) async fn configuration(State(app): State<App>, Path(name): Path<String>) -> Answer {
    Ok(Json(json!(super::models::config(&app.models().status(&name)?))))
}

/// `PUT /api/v1/models/{model}/config`: replaces `model.json`.
pub(crate) async fn configure(
    State(app): State<App>,
    Path(name): Path<String>,
    actor: Actor,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    let whole = app.bodies().read(&parts, body, BODY_BYTES_MAX).await?;
    let work = app.lifecycle().configure(&name, &whole.bytes);
    let done = with_model(&app, &actor.rights, Effect::ConfigureModel, &name, work).await;
    answer(&app, &actor, Action::ModelConfigure, (&name, ""), done)
}
