//! The repository extension: lists, loads and unloads models.
//!
//! A load's `config` is the model's settings as `GET /api/v1/models/NAME/config` returns them, and is kept until it is
//! replaced. Files cannot be sent with a load: a version is always published as a whole, with its digests.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, Request, State};
use saggar_rest::oip::{OipIndexItem, OipIndexRequest, OipLoadedDocument, OipUnloadedDocument};
use saggar_serving::{ModelStatus, ServingError, VersionState, VersionStatus, json_text};
use saggar_store::AccessAction;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::InferError;
use super::parameter::{self, bad_value, unsupported_parameter};
use crate::access::Actor;
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::ApiError;
use crate::limits::BODY_BYTES_MAX;
use crate::resource_access::change_model;

/// The location that errors about command parameters report.
const PLACE: &str = "request";

/// The state of a version that answers.
const READY: &str = "READY";

/// Handles `POST /v2/repository/index`: every version of every model.
pub(super) async fn index(State(app): State<AppState>, request: Request) -> Result<Json<Vec<OipIndexItem>>, ApiError> {
    let OipIndexRequest { ready } = read_json_body(&app, request).await?;
    Ok(Json(list_versions(&app, ready)))
}

/// Lists every version of every model, or only those that are ready.
pub(super) fn list_versions(app: &AppState, ready: bool) -> Vec<OipIndexItem> {
    let models = app.models().list();
    let items = models.iter().flat_map(index_items);
    items.filter(|item| !ready || item.state.as_deref() == Some(READY)).collect()
}

fn index_items(model: &ModelStatus) -> Vec<OipIndexItem> {
    if model.versions.is_empty() {
        return vec![OipIndexItem { name: model.name.clone(), version: None, state: None, reason: None }];
    }
    model.versions.iter().map(|version| index_item(model, version)).collect()
}

fn index_item(model: &ModelStatus, version: &VersionStatus) -> OipIndexItem {
    let (state, default) = match version.state {
        VersionState::Ready => (READY, ""),
        VersionState::Loading => ("LOADING", ""),
        VersionState::Draining => ("UNLOADING", ""),
        VersionState::Unloaded if model.residency.wakes_on_request() => {
            ("UNAVAILABLE", "asleep; a prediction wakes it")
        }
        VersionState::Unloaded => ("UNAVAILABLE", "unloaded"),
        VersionState::Failed => ("UNAVAILABLE", "failed"),
    };
    // For intact versions that are not loaded, Triton's clients know the default reasons.
    let reason = if version.reason.is_empty() || version.unserved.is_some() { default } else { &version.reason };
    OipIndexItem {
        name: model.name.clone(),
        version: Some(version.version.to_string()),
        state: Some(state.to_owned()),
        reason: Some(reason.to_owned()),
    }
}

/// `{"parameters": {...}}`, or an empty body.
#[derive(Debug, Default, Deserialize)]
struct RepositoryCommand {
    #[serde(default)]
    parameters: Option<BTreeMap<String, parameter::ParameterValue>>,
}

/// Handles `POST /v2/repository/models/{model}/load`. Responds once the model is ready, or with the reason why it
/// cannot be; in that case the version that served before continues to serve.
pub(super) async fn load(
    State(app): State<AppState>,
    Path(model): Path<String>,
    actor: Actor,
    request: Request,
) -> Result<Json<OipLoadedDocument>, ApiError> {
    let RepositoryCommand { parameters } = read_json_body(&app, request).await?;
    load_model(&app, &actor, &model, parameters.unwrap_or_default()).await?;
    Ok(Json(OipLoadedDocument { name: model, load: true }))
}

/// Loads a model, after setting its configuration if that is among the parameters.
///
/// # Errors
/// Returns the reason why it cannot be loaded, or the errors of its parameters.
pub(super) async fn load_model(
    app: &AppState,
    actor: &Actor,
    model: &str,
    parameters: impl IntoIterator<Item = (String, parameter::ParameterValue)>,
) -> Result<(), ApiError> {
    let mut config = None;
    for (name, value) in parameters {
        match (name.as_str(), value) {
            ("config", parameter::ParameterValue::Text(text)) => config = Some(text),
            ("config", _) => return Err(bad_value(PLACE, &name, "the model's settings as a JSON text").into()),
            (file, _) if file.starts_with("file:") => {
                return Err(
                    unsupported_parameter(PLACE, file, "files cannot be sent; publish a version instead").into()
                );
            }
            // Other parameters are for the client's own use.
            _ => {}
        }
    }
    if let Some(config) = config {
        let work = app.lifecycle().configure(model, config.as_bytes());
        let done = change_model(app, &actor.rights, AccessAction::ConfigureModel, model, work).await;
        app.audit().record(actor, AuditAction::ModelConfigure, model, "", &done);
        done?;
    }
    let work = app.lifecycle().load(model, None);
    let done = change_model(app, &actor.rights, AccessAction::LoadModel, model, work).await;
    app.audit().record(actor, AuditAction::ModelLoad, model, "", &done);
    done?;
    Ok(())
}

/// Handles `POST /v2/repository/models/{model}/unload`. Responds once all memory of the model is freed. A missing model
/// counts as unloaded.
pub(super) async fn unload(
    State(app): State<AppState>,
    Path(model): Path<String>,
    actor: Actor,
    request: Request,
) -> Result<Json<OipUnloadedDocument>, ApiError> {
    let RepositoryCommand { parameters } = read_json_body(&app, request).await?;
    let dependents = parameters.as_ref().and_then(|parameters| parameters.get("unload_dependents"));
    unload_model(&app, &actor, &model, dependents).await?;
    Ok(Json(OipUnloadedDocument { name: model, unload: true }))
}

/// Unloads a model. `dependents` is the parameter `unload_dependents`, which must be a boolean.
///
/// # Errors
/// Returns the reason why it cannot be unloaded, or `Parameter`.
pub(super) async fn unload_model(
    app: &AppState,
    actor: &Actor,
    model: &str,
    dependents: Option<&parameter::ParameterValue>,
) -> Result<(), ApiError> {
    if let Some(dependents) = dependents {
        dependents.as_bool(PLACE, "unload_dependents")?;
    }
    let work = app.lifecycle().unload(model, None);
    let done = change_model(app, &actor.rights, AccessAction::UnloadModel, model, work).await;
    app.audit().record(actor, AuditAction::ModelUnload, model, "", &done);
    match done {
        Ok(_) | Err(ApiError::Serving(ServingError::NoModel { .. })) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Parses the body as JSON; an empty body means an empty object.
async fn read_json_body<T: DeserializeOwned + Default>(app: &AppState, request: Request) -> Result<T, ApiError> {
    let (parts, body) = request.into_parts();
    let whole = app.body_reader().read_decompressed(&parts, body, BODY_BYTES_MAX).await?;
    if whole.bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(T::default());
    }
    Ok(json_text::parse_json(&whole.bytes).map_err(|reason| InferError::Syntax { reason })?)
}
