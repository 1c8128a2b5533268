//! Resolves what a job begins with: checkpoints of other jobs, and versions of models.

use saggar_jobs::{CheckpointSelector, InitFrom};
use saggar_store::models::{ScannedVersion, VersionCompleteness};
use saggar_store::records::JobRecord;
use saggar_store::{AccessAction, CheckpointInfo};

use super::checkpoints;
use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;
use crate::resource_access;

/// Pins the checkpoint or model version that `origin` names.
pub(super) async fn pin_origin(app: &AppState, sight: &ProjectScope, origin: &mut InitFrom) -> Result<(), ApiError> {
    match origin {
        InitFrom::Checkpoint { job: name, which } => {
            let job = sight.find_job(app.jobs(), name).await?;
            let found = find_checkpoint(app, &job, *which).await?;
            *which = CheckpointSelector::Step(found.step);
            *name = job.name;
        }
        InitFrom::Model { model, version } => {
            let may = resource_access::check_model(app, sight.rights(), AccessAction::ReadWeights, model).await;
            may.map_err(|_| model_version_not_found(model, *version))?;
            *version = Some(find_model_version(app, model, *version).await?.version);
        }
    }
    Ok(())
}

/// Finds a complete version of a model on disk, the newest if `version` is `None`. It does not use the loaded models:
/// jobs that were due while no server ran are submitted before any model is loaded.
pub(crate) async fn find_model_version(
    app: &AppState,
    model: &str,
    version: Option<u64>,
) -> Result<ScannedVersion, ApiError> {
    let name = model.to_owned();
    let found = app.run_blocking(move |parts| {
        let models = parts.model_registry();
        if let Err(error) = models.fetch(&name, version) {
            tracing::warn!(model = name, %error, "versions of other servers are not known");
        }
        models.scan()
    });
    let found = found.await?;
    let fits = |it: &ScannedVersion| {
        it.name == model
            && it.state == VersionCompleteness::Complete
            && version.is_none_or(|version| it.version == version)
    };
    found
        .into_iter()
        .filter(fits)
        .max_by_key(|found| found.version)
        .ok_or_else(|| model_version_not_found(model, version))
}

fn model_version_not_found(model: &str, version: Option<u64>) -> ApiError {
    ApiError::NotFound {
        kind: "model version",
        name: version.map_or_else(|| model.to_owned(), |version| format!("{model}@{version}")),
        hint: "GET /api/v1/models lists them".to_owned(),
    }
}

/// Finds one of a job's checkpoints.
pub(crate) async fn find_checkpoint(
    app: &AppState,
    job: &JobRecord,
    which: CheckpointSelector,
) -> Result<CheckpointInfo, ApiError> {
    let listed = app.checkpoints().list(&job.id).await?;
    let found = match which {
        CheckpointSelector::Latest => listed.first(),
        CheckpointSelector::Best => {
            checkpoints::best_checkpoint_criterion(job).as_ref().and_then(|by| by.select_best(&listed))
        }
        CheckpointSelector::Step(step) => listed.iter().find(|info| info.step == step),
    };
    found.cloned().ok_or_else(|| ApiError::NotFound {
        kind: "checkpoint",
        name: format!("{} of {}", which, job.name),
        hint: format!("GET /api/v1/jobs/{}/checkpoints lists them", job.name),
    })
}
