//! What the pages request of features that this server does not have: empty lists, which the pages show as such.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use saggar_rest::mlflow::{DatasetSummaries, GatewayEndpoints, LoggedModels, ModelVersions, ServerInfo};

use super::super::artifacts::artifact_response;
use super::super::experiments::required;
use super::super::runs::find_run;
use crate::access::ProjectScope;
use crate::api::query::QueryParameters;
use crate::app::AppState;
use crate::error::ApiError;

/// Handles `GET /mlflow/ajax-api/3.0/mlflow/server-info`.
pub(super) async fn server_info() -> Json<ServerInfo> {
    Json(ServerInfo { store_type: "saggar".to_owned(), ..ServerInfo::default() })
}

/// Handles `POST /mlflow/ajax-api/2.0/mlflow/experiments/search-datasets`: datasets are tags of runs here.
pub(super) async fn datasets() -> Json<DatasetSummaries> {
    Json(DatasetSummaries::default())
}

/// Handles `POST /mlflow/ajax-api/2.0/mlflow/logged-models/search`.
pub(super) async fn logged_models() -> Json<LoggedModels> {
    Json(LoggedModels::default())
}

/// Handles `GET /mlflow/ajax-api/2.0/mlflow/model-versions/search`: versions of models are not MLflow's here.
pub(super) async fn model_versions() -> Json<ModelVersions> {
    Json(ModelVersions::default())
}

/// Handles `GET /mlflow/ajax-api/2.0/mlflow/gateway-proxy`: there is no gateway to language models.
pub(super) async fn gateway() -> Json<GatewayEndpoints> {
    Json(GatewayEndpoints::default())
}

/// Handles `GET /mlflow/get-artifact`: an artefact of a run, which a page shows or saves.
pub(super) async fn artifact(
    State(app): State<AppState>,
    sight: ProjectScope,
    parameters: QueryParameters,
) -> Result<Response, ApiError> {
    let id = parameters.get("run_uuid").or_else(|| parameters.get("run_id"));
    let found = find_run(&app, &sight, id.map_or_else(|| required(&parameters, "run_uuid"), Ok)?).await?;
    artifact_response(&app, &found, required(&parameters, "path")?).await
}
