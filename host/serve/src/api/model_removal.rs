//! `DELETE /api/v1/models/{model}` and `DELETE /api/v1/models/{model}/versions/{version}`.

use axum::Json;
use axum::extract::{Path, State};
use saggar_jobs::{InitFrom, JobSpec};
use saggar_rest::models::RemovedVersionsDocument;
use saggar_serving::RemovedVersions;
use saggar_store::AccessAction;

use crate::access::{Actor, ProjectScope};
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::ApiError;
use crate::resource_access::check_model;

/// Removes a version. Refused while an unfinished job reads it.
pub(crate) async fn remove_version(
    State(app): State<AppState>,
    Path((model, version)): Path<(String, String)>,
    actor: Actor,
    sight: ProjectScope,
) -> Result<Json<RemovedVersionsDocument>, ApiError> {
    let detail = format!("version {version}");
    let removed = remove(&app, &actor, &sight, &model, Some(&version)).await;
    app.audit().record(&actor, AuditAction::ModelRemove, &model, &detail, &removed);
    Ok(removal_response(&model, &removed?))
}

/// Removes a model. Refused while an unfinished job reads one of its versions.
pub(crate) async fn remove_model(
    State(app): State<AppState>,
    Path(model): Path<String>,
    actor: Actor,
    sight: ProjectScope,
) -> Result<Json<RemovedVersionsDocument>, ApiError> {
    let removed = remove(&app, &actor, &sight, &model, None).await;
    app.audit().record(&actor, AuditAction::ModelRemove, &model, "all versions", &removed);
    Ok(removal_response(&model, &removed?))
}

fn removal_response(model: &str, removed: &RemovedVersions) -> Json<RemovedVersionsDocument> {
    let names = removed.versions.iter().map(|version| format!("{model}@{version}")).collect();
    Json(RemovedVersionsDocument { removed: names, freed_bytes: removed.bytes })
}

async fn remove(
    app: &AppState,
    actor: &Actor,
    sight: &ProjectScope,
    model: &str,
    version: Option<&str>,
) -> Result<RemovedVersions, ApiError> {
    let number = |text: &str| {
        let got = || text.chars().take(80).collect();
        text.parse::<u64>().map_err(|_| ApiError::Parameter {
            name: "version",
            expected: "a version's number",
            got: got(),
        })
    };
    check_model(app, &actor.rights, AccessAction::DeleteModel, model).await?;
    let version = version.map(number).transpose()?;
    // Jobs being submitted have either been recorded, or resolve their versions after this lock is released.
    let _turn = app.reference_lock().write().await;
    let unfinished = app.jobs().unfinished_jobs().await?;
    let readers: Vec<_> = unfinished.iter().filter(|(_, spec)| reads_model(spec, model, version)).collect();
    if !readers.is_empty() {
        let readers = sight.visible_job_names(readers.iter().map(|(job, _)| (job.project.as_str(), job.name.as_str())));
        let what = version.map_or_else(|| model.to_owned(), |version| format!("{model}@{version}"));
        let reason = format!("unfinished jobs read it: {readers}; `saggar stop JOB` ends one");
        return Err(ApiError::Conflict { what, reason });
    }
    Ok(match version {
        Some(version) => app.lifecycle().remove_version(model, version).await?,
        None => app.lifecycle().remove_model(model).await?,
    })
}

/// Returns whether a job reads this version of a model, or any version if `version` is `None`.
fn reads_model(spec: &JobSpec, model: &str, version: Option<u64>) -> bool {
    let origin = match &spec.init_from {
        Some(InitFrom::Model { model, version }) => Some((model, *version)),
        Some(InitFrom::Checkpoint { .. }) | None => None,
    };
    let predicted = spec.predict.as_ref().map(|predict| (&predict.model, predict.version));
    let is_same = |read: Option<u64>| version.is_none() || read.is_none() || read == version;
    [origin, predicted].into_iter().flatten().any(|(name, read)| name == model && is_same(read))
}
