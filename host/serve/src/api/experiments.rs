//! `GET /api/v1/experiments`: the labels that jobs share.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use saggar_rest::jobs::{ExperimentDocument, ExperimentListDocument};

use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;

/// Lists the experiments. Jobs of projects that the client cannot see do not count.
pub(crate) async fn list(
    State(app): State<AppState>,
    sight: ProjectScope,
) -> Result<Json<ExperimentListDocument>, ApiError> {
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
    Ok(Json(ExperimentListDocument { experiments: experiments.into_values().collect() }))
}
