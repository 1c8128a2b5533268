//! `POST /api/v1/models/{model}/versions`: creates a version from a plugin, weights or a checkpoint that the server
//! stores.

use axum::extract::{Path, Request, State};
use saggar_jobs::{DataMount, DataSource, InitFrom, JobSpec, model_provenance};
use saggar_rest::model_commands::PublishVersionRequest;
use saggar_rest::models::PublishedVersionDocument;
use saggar_serving::{ModelStatus, WeightsSource};
use saggar_store::digest::Digest;
use saggar_store::error::StoreError;
use saggar_store::{AccessAction, AccessRights, PublishedVersion, VariableKind};

use super::jobs::origin;
use crate::access::{Actor, ProjectScope};
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::{ApiError, CreatedResponse};
use crate::json_body::JsonBody;
use crate::resource_access::change_model;

impl JsonBody for PublishVersionRequest {
    const EXAMPLE: &'static str = r#"{"from": "job:digits-7/checkpoint@1200"}"#;
}

/// Publishes a version. The response names it and states whether it serves, or why it was refused.
pub(crate) async fn publish(
    State(app): State<AppState>,
    Path(model): Path<String>,
    actor: Actor,
    sight: ProjectScope,
    request: Request,
) -> Result<CreatedResponse<PublishedVersionDocument>, ApiError> {
    let (plugin, weights) = match app.body_reader().read_json(request).await? {
        PublishVersionRequest::Plugin { plugin, from_version } => {
            (plugin.parse().map_err(|_| no_accepted_form())?, WeightsSource::Version(from_version))
        }
        PublishVersionRequest::Checkpoint { from } => {
            checkpoint_weights(&app, &sight, from.parse().map_err(|_| no_accepted_form())?).await?
        }
    };
    let plugin = app.parts().objects.get_blob(&plugin).await.map_err(|error| match error {
        StoreError::NotFound { .. } => ApiError::NotFound {
            kind: "plugin",
            name: plugin.hex(),
            hint: "upload it first: POST /api/v1/plugins".to_owned(),
        },
        error => error.into(),
    })?;
    let work = app.lifecycle().publish(&model, plugin, weights, room_check(&app));
    let done = change_model(&app, &actor.rights, AccessAction::PublishModel, &model, work).await;
    let detail =
        done.as_ref().map_or_else(|_| String::new(), |(published, _)| format!("version {}", published.version));
    app.audit().record(&actor, AuditAction::ModelPublish, &model, &detail, &done);
    let (published, status) = done?;
    Ok(CreatedResponse(published_document(model, &published, &status)))
}

/// Returns the check of the storage quota for a publication.
pub(super) fn room_check(app: &AppState) -> impl FnOnce(u64) -> Result<(), StoreError> + Send + use<> {
    let app = app.clone();
    move |bytes| app.parts().check_storage_quota(bytes)
}

/// Returns a published version with what the model's status says of it.
pub(super) fn published_document(
    model: String,
    published: &PublishedVersion,
    status: &ModelStatus,
) -> PublishedVersionDocument {
    let version = status.versions.iter().find(|version| version.version == published.version);
    PublishedVersionDocument {
        model,
        version: published.version,
        is_new: published.is_new,
        state: version.map_or("UNLOADED", |version| version.state.name()).to_owned(),
        reason: version.map_or_else(String::new, |version| version.reason.clone()),
        notes: Vec::new(),
    }
}

/// Returns the error of a body whose members are text of another form than expected.
fn no_accepted_form() -> ApiError {
    ApiError::Json { reason: "no accepted form matches".to_owned(), example: PublishVersionRequest::EXAMPLE }
}

/// Publishes a version of a model from a job's checkpoint. The same content is the same version.
///
/// # Errors
/// Returns `AccessDenied`, or the errors of a publication.
pub(crate) async fn publish_from_checkpoint(
    app: &AppState,
    sight: &ProjectScope,
    rights: &AccessRights,
    model: &str,
    from: InitFrom,
) -> Result<PublishedVersion, ApiError> {
    let (plugin, weights) = checkpoint_weights(app, sight, from).await?;
    let plugin = app.parts().objects.get_blob(&plugin).await?;
    let work = app.lifecycle().publish(model, plugin, weights, room_check(app));
    Ok(change_model(app, rights, AccessAction::PublishModel, model, work).await?.0)
}

/// Returns a job's plugin, and the weights and files to publish from one of its checkpoints.
async fn checkpoint_weights(
    app: &AppState,
    sight: &ProjectScope,
    from: InitFrom,
) -> Result<(Digest, WeightsSource), ApiError> {
    let InitFrom::Checkpoint { job, which } = from else {
        let got = from.to_string();
        return Err(ApiError::Parameter {
            name: "from",
            expected: "a job's checkpoint, such as job:mnist-7/checkpoint@1200",
            got,
        });
    };
    let job = sight.find_job(app.jobs(), &job).await?;
    let info = origin::find_checkpoint(app, &job, which).await?;
    let (_, checkpoint) = app.checkpoints().load_step(&job.id, info.step, None).await?;
    let unreadable = |cause: String| ApiError::Internal { cause };
    let spec: JobSpec = serde_json::from_str(&job.spec).map_err(|error| unreadable(error.to_string()))?;
    let plugin = spec.plugin.parse().map_err(|_| unreadable(format!("job {} names no plugin", job.name)))?;
    let shipped = |kind| match kind {
        VariableKind::Parameter | VariableKind::Statistic => true,
        VariableKind::Training => false,
    };
    let variables = checkpoint.variables.into_iter().filter(|variable| shipped(variable.kind)).collect();
    let mounts = spec.data.clone();
    let digests = move |parts: &crate::AppParts| {
        // A dataset that was removed since has no digest, and an output of a job is no dataset.
        let digest = |mount: &DataMount| match &mount.source {
            DataSource::Dataset { .. } => {
                let info = parts.datasets.resolve(&mount.source.to_string()).ok()?;
                Some((mount.mount.clone(), info.digest.hex()))
            }
            DataSource::Output { .. } => None,
        };
        Ok::<_, ApiError>(mounts.iter().filter_map(digest).collect())
    };
    let data_sha256 = app.run_blocking(digests).await?;
    let provenance = Box::new(model_provenance(&spec, data_sha256, &checkpoint.device, Some(info.step)));
    Ok((plugin, WeightsSource::Checkpoint { variables, job: job.name, metrics: checkpoint.metrics, provenance }))
}
