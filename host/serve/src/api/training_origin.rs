//! The sweep or the pipeline run that the job of a model version was submitted for.

use saggar_jobs::JobError;
use saggar_rest::model_versions::{
    VersionLineageDocument, VersionOriginDocument, VersionStepDocument, VersionTrialDocument,
};
use saggar_rest::sweeps::LineageDocument;
use saggar_store::models::{LineageOrigin, StepOrigin, TrainingOrigin, TrialOrigin};
use saggar_store::records::{StepMembership, TrialMembership};
use saggar_sweeps::SweepError;

use super::jobs::views::{PUBLISHED, published_versions};
use super::sweeps::{sweep_document, sweep_with_trials, trial_lineage};
use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;

/// Returns what `job`, which the version names as its source, was submitted for. A version that came from another server
/// can name a job that has the name of one here, so only a job that published this very version counts.
pub(super) async fn training_origin(
    app: &AppState,
    sight: &ProjectScope,
    job: &str,
    (model, version): (&str, u64),
) -> Result<TrainingOrigin, ApiError> {
    let job = match sight.find_job(app.jobs(), job).await {
        Err(JobError::NotFound { .. }) => return Ok(TrainingOrigin::default()),
        job => job?,
    };
    let published = published_versions(&app.jobs().events_of_kinds(&job.id, &[PUBLISHED]).await?);
    if !published.iter().any(|it| it.model == model && it.version == version) {
        return Ok(TrainingOrigin::default());
    }
    let membership = app.jobs().membership(&job.id).await?;
    let trial = match membership.trial {
        Some(trial) => trial_origin(app, trial).await?,
        None => None,
    };
    let step = membership.step.map(|StepMembership { run, step }| StepOrigin { run, step });
    Ok(TrainingOrigin { trial, step })
}

async fn trial_origin(app: &AppState, of: TrialMembership) -> Result<Option<TrialOrigin>, ApiError> {
    let sweep = match app.sweeps().get(&of.sweep).await {
        Err(SweepError::NotFound { .. }) => return Ok(None),
        sweep => sweep?,
    };
    let trials = app.sweeps().trials(&sweep.id).await?;
    let best = sweep_document(&sweep, &trials).best;
    let trial = trials.iter().find(|trial| trial.number == of.number);
    let parameters = trial.and_then(|trial| serde_json::from_str(&trial.parameters).ok()).unwrap_or_default();
    // Only a lineage needs the jobs of the trials.
    let lineage = if trial.is_some_and(|trial| trial.parent.is_some()) {
        let trials = sweep_with_trials(app, &sweep).await?.trials.unwrap_or_default();
        trial_lineage(&trials, Some(of.number))
    } else {
        Vec::new()
    };
    let part = |part: LineageDocument| LineageOrigin {
        number: part.trial,
        from_step: part.from_step,
        parameters: part.parameters,
    };
    Ok(Some(TrialOrigin {
        sweep: sweep.name,
        number: of.number,
        parameters,
        is_best: best == Some(of.number),
        lineage: lineage.into_iter().map(part).collect(),
    }))
}

/// Returns the document of an origin, or `None` for a job that was submitted for itself.
pub(super) fn origin_document(origin: &TrainingOrigin) -> Option<VersionOriginDocument> {
    let trial = origin.trial.clone().map(|TrialOrigin { sweep, number, parameters, is_best, lineage }| {
        let part = |part: LineageOrigin| VersionLineageDocument {
            trial: part.number,
            from_step: part.from_step,
            parameters: part.parameters,
        };
        VersionTrialDocument { sweep, number, parameters, is_best, lineage: lineage.into_iter().map(part).collect() }
    });
    let step = origin.step.clone().map(|StepOrigin { run, step }| VersionStepDocument { run, step });
    (trial.is_some() || step.is_some()).then_some(VersionOriginDocument { trial, step })
}
