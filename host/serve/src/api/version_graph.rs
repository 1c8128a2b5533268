//! `GET /api/v1/models/{model}/versions/{version}/graph`: the kernels that compute a version.

use axum::Json;
use axum::extract::{Path, State};
use saggar_rest::model_graphs::ModelGraphDocument;
use saggar_store::models;

use super::model_bundles::{parse_version, without_paths};
use super::query::QueryParameters;
use crate::app::AppState;
use crate::error::ApiError;
use crate::graph_inspector::GraphInspectError;

/// Returns the graph with the number of the query, 1 without one.
pub(crate) async fn get(
    State(app): State<AppState>,
    Path((model, version)): Path<(String, String)>,
    parameters: QueryParameters,
) -> Result<Json<ModelGraphDocument>, ApiError> {
    let version = parse_version(&version)?;
    let graph = parameters.parse::<usize>("graph", "the number of a graph, from 1")?.unwrap_or(1);
    let name = model.clone();
    let check = move |parts: &crate::AppParts| {
        let dir = parts.model_registry().version_dir(&name, version)?;
        let created_ms = models::check_files(&dir)?.manifest.created_ms;
        Ok::<_, ApiError>((dir, created_ms))
    };
    let (dir, created_ms) = app.run_blocking(check).await.map_err(|error| without_paths(error, &model, version))?;
    let inspected = app.inspected_graphs();
    let _turn = inspected.turn.lock().await;
    if let Some(found) = inspected.find(&model, version, graph, created_ms) {
        return Ok(Json(found));
    }
    let inspect = move |parts: &crate::AppParts| Ok::<_, ApiError>(parts.graphs.inspect(&dir, graph));
    let document = app.run_blocking(inspect).await?.map_err(|error| graph_error(&model, version, graph, error))?;
    let document = ModelGraphDocument { model, version, ..document };
    inspected.add(created_ms, document.clone());
    Ok(Json(document))
}

fn graph_error(model: &str, version: u64, graph: usize, error: GraphInspectError) -> ApiError {
    match error {
        GraphInspectError::NoGraph { .. } => {
            ApiError::NotFound { kind: "graph", name: format!("{graph} of {model}@{version}"), hint: error.to_string() }
        }
        GraphInspectError::Refused { reason } => {
            ApiError::Conflict { what: format!("graph {graph} of {model}@{version}"), reason }
        }
        GraphInspectError::Failed { cause } => ApiError::Internal { cause },
    }
}
