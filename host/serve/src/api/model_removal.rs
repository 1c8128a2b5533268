//! `DELETE /api/v1/models/{model}` and `DELETE /api/v1/models/{model}/versions/{version}`.

use axum::Json;
use axum::extract::{Path, State};
use saggar_jobs::{JobSpec, Origin};
use saggar_store::Effect;
use serde_json::{Value, json};

use crate::access::things::check_model;
use crate::access::{Actor, Sight};
use crate::app::App;
use crate::audit::Action;
use crate::error::ApiError;
use crate::models::Removed;

/// Refused while a job that is not over reads the version.
pub(crate) async fn remove_version(
    State(app): State<App>,
    Path((model, version)): Path<(String, String)>,
    actor: Actor,
    sight: Sight,
) -> Result<Json<Value>, ApiError> {
    let detail = format!("version {version}");
    let removed = remove(&app, &actor, &sight, &model, Some(&version)).await;
    app.audit().record(&actor, Action::ModelRemove, &model, &detail, &removed);
    Ok(answer(&model, &removed?))
}

/// Refused while a job that is not over reads one of its versions.
pub(crate) async fn remove_model(
    State(app): State<App>,
    Path(model): Path<String>,
    actor: Actor,
    sight: Sight,
) -> Result<Json<Value>, ApiError> {
    let removed = remove(&app, &actor, &sight, &model, None).await;
    app.audit().record(&actor, Action::ModelRemove, &model, "all versions", &removed);
    Ok(answer(&model, &removed?))
}

fn answer(model: &str, removed: &Removed) -> Json<Value> {
    let names: Vec<String> = removed.versions.iter().map(|version| format!("{model}@{version}")).collect();
    Json(json!({ "removed": names, "freed_bytes": removed.bytes }))
}

async fn remove(
    app: &App,
    actor: &Actor,
    sight: &Sight,
    model: &str,
    version: Option<&str>,
) -> Result<Removed, ApiError> {
    let number = |text: &str| {
        let got = || text.chars().take(80).collect();
        text.parse::<u64>().map_err(|_| ApiError::Parameter {
            name: "version",
            expected: "a version's number",
            got: got(),
        })
    };
    check_model(app, &actor.rights, Effect::DeleteModel, model).await?;
    let version = version.map(number).transpose()?;
    // Jobs that are being submitted have looked their versions up and are recorded, or look after this.
    let _turn = app.references().write().await;
    let unfinished = app.jobs().unfinished().await?;
    let readers: Vec<_> = unfinished.iter().filter(|(_, spec)| is_read_by(spec, model, version)).collect();
    if !readers.is_empty() {
        let readers = sight.names(readers.iter().map(|(job, _)| (job.project.as_str(), job.name.as_str())));
        let what = version.map_or_else(|| model.to_owned(), |version| format!("{model}@{version}"));
        let reason = format!("jobs that are not over read it: {readers}; `saggar stop JOB` ends one");
        return Err(ApiError::Conflict { what, reason });
    }
    match version {
        Some(version) => app.lifecycle().remove_version(model, version).await,
        None => app.lifecycle().remove_model(model).await,
    }
}

/// Whether a job reads this version of a model, or any where none is given.
fn is_read_by(spec: &JobSpec, model: &str, version: Option<u64>) -> bool {
    let origin = match &spec.init_from {
        Some(Origin::Model { model, version }) => Some((model, *version)),
        Some(Origin::Checkpoint { .. }) | None => None,
    };
    let predicted = spec.predict.as_ref().map(|predict| (&predict.model, predict.version));
    let is_same = |read: Option<u64>| version.is_none() || read.is_none() || read == version;
    [origin, predicted].into_iter().flatten().any(|(name, read)| name == model && is_same(read))
}
