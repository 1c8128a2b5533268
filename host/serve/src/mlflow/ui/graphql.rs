//! The GraphQL queries of MLflow's pages. A query is known by its name, and its answer has the members that the pages of
//! MLflow ask for; the text of a query is not read.

use axum::Json;
use axum::extract::{Request, State};
use saggar_rest::errors::ErrorCode;
use saggar_rest::mlflow::MlflowExperiment;
use saggar_rest::mlflow::graphql::{
    GraphqlApiError, GraphqlData, GraphqlExperiment, GraphqlExperimentAnswer, GraphqlRequest, GraphqlResponse,
    GraphqlRun, GraphqlRunAnswer, GraphqlRunInfo, GraphqlRunInputs, GraphqlRunOutputs,
};

use super::super::error::MlflowError;
use super::super::experiments::find_by_id;
use super::super::runs::{find_run, run_document};
use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;
use crate::json_body::JsonBody;

impl JsonBody for GraphqlRequest {
    const EXAMPLE: &'static str = r#"{"operationName": "GetRun", "variables": {"data": {"runId": "digits-7"}}}"#;
}

/// Handles `POST /mlflow/graphql`.
pub(super) async fn query(
    State(app): State<AppState>,
    sight: ProjectScope,
    request: Request,
) -> Result<Json<GraphqlResponse>, ApiError> {
    let GraphqlRequest { operation_name, variables } = app.body_reader().read_json(request).await?;
    let variables = [variables.data, variables.input].into_iter().flatten().next().unwrap_or_default();
    let data = match operation_name.as_str() {
        "GetRun" => {
            let answer = match variables.run_id {
                Some(id) => run_answer(&app, &sight, &id).await,
                None => Err(missing_variable("variables.data.runId")),
            };
            GraphqlData { mlflow_get_run: Some(answer.or_else(run_failure)?), ..GraphqlData::default() }
        }
        "MlflowGetExperimentQuery" => {
            let answer = match variables.experiment_id {
                Some(id) => find_by_id(&app, &sight, &id).await,
                None => Err(missing_variable("variables.input.experimentId")),
            };
            let answer = answer.map(|experiment| GraphqlExperimentAnswer {
                experiment: Some(experiment_document(experiment)),
                api_error: None,
            });
            GraphqlData { mlflow_get_experiment: Some(answer.or_else(experiment_failure)?), ..GraphqlData::default() }
        }
        other => {
            let (expected, got) = ("GetRun or MlflowGetExperimentQuery", other.chars().take(80).collect());
            return Err(MlflowError::Parameter { name: "operationName", expected, got }.into());
        }
    };
    Ok(Json(GraphqlResponse { data }))
}

fn missing_variable(name: &'static str) -> ApiError {
    MlflowError::Parameter { name, expected: "an identifier", got: String::new() }.into()
}

async fn run_answer(app: &AppState, sight: &ProjectScope, id: &str) -> Result<GraphqlRunAnswer, ApiError> {
    let found = find_run(app, sight, id).await?;
    let document = run_document(found.run());
    let experiment = find_by_id(app, sight, &document.info.experiment_id).await?;
    let info = document.info;
    let run = GraphqlRun {
        info: GraphqlRunInfo {
            run_name: info.run_name,
            status: info.status,
            run_uuid: info.run_id,
            experiment_id: info.experiment_id,
            artifact_uri: info.artifact_uri,
            end_time: info.end_time.map(|ms| ms.to_string()),
            lifecycle_stage: info.lifecycle_stage,
            start_time: info.start_time.to_string(),
            user_id: info.user_id,
        },
        experiment: experiment_document(experiment),
        model_versions: Vec::new(),
        data: document.data,
        inputs: GraphqlRunInputs::default(),
        outputs: GraphqlRunOutputs::default(),
    };
    Ok(GraphqlRunAnswer { run: Some(run), api_error: None })
}

fn experiment_document(experiment: MlflowExperiment) -> GraphqlExperiment {
    GraphqlExperiment {
        experiment_id: experiment.experiment_id,
        name: experiment.name,
        tags: experiment.tags,
        artifact_location: experiment.artifact_location,
        lifecycle_stage: experiment.lifecycle_stage,
        creation_time: experiment.creation_time.to_string(),
        last_update_time: experiment.last_update_time.to_string(),
        effective_trace_archival_retention: None,
    }
}

/// Answers a query for a missing thing with the error as data, as the pages expect.
///
/// # Errors
/// Returns errors of other kinds unchanged.
fn api_error(error: ApiError) -> Result<Option<GraphqlApiError>, ApiError> {
    let body = error.body();
    if body.code != ErrorCode::NotFound {
        return Err(error);
    }
    Ok(Some(GraphqlApiError { code: "RESOURCE_DOES_NOT_EXIST".to_owned(), message: body.error, help_url: None }))
}

fn run_failure(error: ApiError) -> Result<GraphqlRunAnswer, ApiError> {
    Ok(GraphqlRunAnswer { run: None, api_error: api_error(error)? })
}

fn experiment_failure(error: ApiError) -> Result<GraphqlExperimentAnswer, ApiError> {
    Ok(GraphqlExperimentAnswer { experiment: None, api_error: api_error(error)? })
}
