//! `/api/v1/experiments`: the labels that jobs share.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use saggar_rest::experiments::{ExperimentDocument, ExperimentListDocument, ExperimentMemberDocument};
use saggar_store::records::ExperimentMember;

use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;

/// Handles `GET /api/v1/experiments`.
pub(crate) async fn list(
    State(app): State<AppState>,
    sight: ProjectScope,
) -> Result<Json<ExperimentListDocument>, ApiError> {
    let experiments = visible_experiments(&app, &sight).await?;
    Ok(Json(ExperimentListDocument { experiments: experiments.into_values().collect() }))
}

/// Handles `GET /api/v1/experiments/{experiment}`. One whose jobs the client cannot see looks like a missing one.
pub(crate) async fn get(
    State(app): State<AppState>,
    sight: ProjectScope,
    Path(name): Path<String>,
) -> Result<Json<ExperimentDocument>, ApiError> {
    let Some(experiment) = visible_experiments(&app, &sight).await?.remove(&name) else {
        let (name, hint) = (name.chars().take(80).collect(), "`saggar experiment ls` lists the experiments".to_owned());
        return Err(ApiError::NotFound { kind: "experiment", name, hint });
    };
    let members = app.jobs().experiment_members(name, sight.projects()).await?;
    let documents = |members: Vec<ExperimentMember>| members.into_iter().map(member_document).collect();
    Ok(Json(ExperimentDocument {
        pipeline_runs: Some(documents(members.pipeline_runs)),
        sweeps: Some(documents(members.sweeps)),
        ..experiment
    }))
}

/// Returns the experiments by name. Jobs of projects that the client cannot see do not count.
async fn visible_experiments(
    app: &AppState,
    sight: &ProjectScope,
) -> Result<BTreeMap<String, ExperimentDocument>, ApiError> {
    let mut experiments: BTreeMap<String, ExperimentDocument> = BTreeMap::new();
    let counts = app.jobs().experiments().await?;
    for count in counts.into_iter().filter(|count| sight.contains_project(&count.project)) {
        let experiment = experiments.entry(count.experiment.clone()).or_insert_with(|| ExperimentDocument {
            name: count.experiment,
            created_ms: count.created_ms,
            ..ExperimentDocument::default()
        });
        if experiment.projects.last() != Some(&count.project) {
            experiment.projects.push(count.project);
        }
        *experiment.jobs.entry(count.state.name().to_owned()).or_default() += count.jobs;
        experiment.created_ms = experiment.created_ms.min(count.created_ms);
        experiment.changed_ms = experiment.changed_ms.max(count.changed_ms);
    }
    Ok(experiments)
}

fn member_document(member: ExperimentMember) -> ExperimentMemberDocument {
    let ExperimentMember { name, project, state, created_ms, jobs } = member;
    ExperimentMemberDocument { name, project, state, created_ms, jobs }
}
