//! `POST /api/v1/sweeps/{sweep}/publish`: makes the result of the best trial the default version of a model, behind the
//! model's condition to be promoted.
//!
//! Repeating it changes nothing: the same content is the same version, and a version that is the default stays it. A
//! version that the condition refuses is stored and not served, as one that a job publishes.

use axum::extract::{Path, Request, State};
use saggar_jobs::{CheckpointSelector, InitFrom, JobError};
use saggar_rest::sweeps::{PublishTrialRequest, SweepPublicationDocument};
use saggar_serving::ServingError;
use saggar_store::AccessAction;
use saggar_store::records::{JobRecord, SweepRecord, TrialRecord};
use saggar_sweeps::SweepError;

use super::{find_visible, views};
use crate::access::{Actor, ProjectScope};
use crate::api::jobs::origin;
use crate::api::jobs::views::{PUBLISHED, published_versions};
use crate::api::versions;
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::{ApiError, CreatedResponse};
use crate::json_body::JsonBody;
use crate::resource_access::{change_model, check_model, publish_model_version};

impl JsonBody for PublishTrialRequest {
    const EXAMPLE: &'static str = r#"{"model": "digits"}"#;
}

/// Handles `POST /api/v1/sweeps/{sweep}/publish`.
pub(crate) async fn publish(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
    sight: ProjectScope,
    request: Request,
) -> Result<CreatedResponse<SweepPublicationDocument>, ApiError> {
    let PublishTrialRequest { model } = app.body_reader().read_json_unless_blank(request).await?;
    let done = publish_best(&app, &actor, &sight, &name, model).await;
    let detail = done.as_ref().map_or_else(|_| String::new(), |it| format!("{}@{}", it.model, it.version));
    app.audit().record(&actor, AuditAction::SweepPublish, &name, &detail, &done);
    Ok(CreatedResponse(done?))
}

/// Where the weights of a trial are.
enum TrialWeights {
    /// In a version of a model that its job published.
    Version { model: String, version: u64 },
    /// In a checkpoint of its job.
    Checkpoint { step: u64 },
}

async fn publish_best(
    app: &AppState,
    actor: &Actor,
    sight: &ProjectScope,
    name: &str,
    wanted: Option<String>,
) -> Result<SweepPublicationDocument, ApiError> {
    let record = find_visible(app, sight, name).await?;
    if !record.state.is_final() {
        return Err(SweepError::NotOver { name: record.name, state: record.state.name() }.into());
    }
    // Nothing that is read is removed meanwhile.
    let references = app.reference_lock().read().await;
    let trial = find_best_trial(app, &record).await?;
    let job = find_trial_job(app, sight, &record, &trial).await?;
    let weights = find_weights(app, &record, &trial, &job).await?;
    let model = match (wanted, &weights) {
        (Some(model), _) => model,
        (None, TrialWeights::Version { model, .. }) => model.clone(),
        (None, TrialWeights::Checkpoint { .. }) => {
            return Err(SweepError::NoModel { name: record.name, trial: trial.number, job: job.name }.into());
        }
    };
    let (version, is_new) = publish_weights(app, actor, sight, &model, (&job, &weights)).await?;
    drop(references);
    let deploy = app.lifecycle().deploy(&model, version);
    change_model(app, &actor.rights, AccessAction::DeployModel, &model, deploy).await.map_err(|error| match error {
        ApiError::Serving(ServingError::Conflict { what, reason }) => SweepError::NotPromoted {
            version: what,
            trial: trial.number,
            reason,
            hint: format!("saggar models promote {model} {version}"),
        }
        .into(),
        error => error,
    })?;
    let source = match weights {
        TrialWeights::Version { model, version } => format!("model:{model}@{version}"),
        TrialWeights::Checkpoint { step } => format!("job:{}/checkpoint@{step}", job.name),
    };
    let value = views::final_value(&trial);
    Ok(SweepPublicationDocument {
        sweep: record.name,
        trial: trial.number,
        job: job.name,
        value,
        model,
        version,
        is_new,
        source,
    })
}

async fn find_best_trial(app: &AppState, record: &SweepRecord) -> Result<TrialRecord, ApiError> {
    let trials = app.sweeps().trials(&record.id).await?;
    let sweep = views::read_spec(record);
    let best = sweep.and_then(|sweep| views::best_trial(&sweep, &trials).cloned());
    Ok(best.ok_or_else(|| SweepError::NoResult { name: record.name.clone() })?)
}

async fn find_trial_job(
    app: &AppState,
    sight: &ProjectScope,
    record: &SweepRecord,
    trial: &TrialRecord,
) -> Result<JobRecord, ApiError> {
    let gone = || SweepError::JobRemoved { name: record.name.clone(), trial: trial.number };
    match sight.find_job(app.jobs(), trial.job.as_deref().ok_or_else(gone)?).await {
        Ok(job) => Ok(job),
        Err(JobError::NotFound { .. }) => Err(gone().into()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the newest version that the trial's job published, or else its checkpoint with the best value of the sweep's
/// metric, or the newest one.
async fn find_weights(
    app: &AppState,
    record: &SweepRecord,
    trial: &TrialRecord,
    job: &JobRecord,
) -> Result<TrialWeights, ApiError> {
    let events = app.jobs().events_of_kinds(&job.id, &[PUBLISHED]).await?;
    if let Some(published) = published_versions(&events).pop() {
        return Ok(TrialWeights::Version { model: published.model, version: published.version });
    }
    let listed = app.checkpoints().list(&job.id).await?;
    let best = views::read_spec(record).and_then(|sweep| sweep.metric().select_best(&listed).cloned());
    match best.or_else(|| listed.first().cloned()) {
        Some(info) => Ok(TrialWeights::Checkpoint { step: info.step }),
        None => {
            let (name, job) = (record.name.clone(), job.name.clone());
            Err(SweepError::NoWeights { name, trial: trial.number, job }.into())
        }
    }
}

/// Publishes the weights as a version of a model, unless they are one. Returns its number, and whether it is new.
async fn publish_weights(
    app: &AppState,
    actor: &Actor,
    sight: &ProjectScope,
    model: &str,
    (job, weights): (&JobRecord, &TrialWeights),
) -> Result<(u64, bool), ApiError> {
    // Checked first, so that nothing is published that cannot be deployed. A new model will belong to the client's
    // projects.
    if origin::find_model_version(app, model, None).await.is_ok() {
        check_model(app, &actor.rights, AccessAction::DeployModel, model).await?;
    }
    let published = match weights {
        TrialWeights::Version { model: own, version } if own == model => return Ok((*version, false)),
        TrialWeights::Version { model: own, version } => {
            check_model(app, &actor.rights, AccessAction::ReadWeights, own).await?;
            let copy = app.lifecycle().publish_copy(model, (own, *version), versions::room_check(app));
            publish_model_version(app, &actor.rights, model, copy).await?
        }
        TrialWeights::Checkpoint { step } => {
            let which = CheckpointSelector::Step(*step);
            let from = InitFrom::Checkpoint { job: job.name.clone(), which };
            versions::publish_from_checkpoint(app, sight, &actor.rights, model, from).await?
        }
    };
    Ok((published.version, published.is_new))
}
