//! Experiments: the projects, and those that clients created.

use std::borrow::Cow;
use std::cmp::Reverse;

use axum::Json;
use axum::extract::{Request, State};
use saggar_rest::mlflow::{
    CreateExperimentRequest, CreateExperimentResponse, MlflowExperiment, MlflowExperimentResponse, MlflowInteger,
    SearchExperimentsRequest, SearchExperimentsResponse,
};
use saggar_store::digest::Digest;

use super::error::MlflowError;
use super::filter::{AttributeNames, SearchField, SearchFilter, SearchSubject};
use super::order::SearchOrder;
use super::page::PageRequest;
use crate::access::ProjectScope;
use crate::api::query::QueryParameters;
use crate::app::AppState;
use crate::error::ApiError;
use crate::json_body::JsonBody;
use crate::limits::MLFLOW_ENTRIES_DEFAULT;

/// The experiment of runs for which a client names none. Its identifier is fixed in MLflow's clients.
const DEFAULT_NAME: &str = "Default";
const DEFAULT_ID: &str = "0";

const ATTRIBUTES: AttributeNames = AttributeNames {
    texts: &[("name", "name"), ("experiment_id", "experiment_id")],
    numbers: &[("creation_time", "creation_time"), ("last_update_time", "last_update_time")],
};

impl JsonBody for SearchExperimentsRequest {
    const EXAMPLE: &'static str = r#"{"filter": "name LIKE 'digits%'", "max_results": 100}"#;
}

impl JsonBody for CreateExperimentRequest {
    const EXAMPLE: &'static str = r#"{"name": "ablation"}"#;
}

/// Returns the identifier of the experiment of this name: digits, as those of MLflow's own stores, that follow from the
/// name.
pub(super) fn experiment_id(name: &str) -> String {
    if name == DEFAULT_NAME {
        return DEFAULT_ID.to_owned();
    }
    let hex = Digest::of(name.as_bytes()).hex();
    // 60 bits, which fit 64-bit integers with sign.
    u64::from_str_radix(&hex[..15], 16).map_or_else(|_| hex.clone(), |number| number.to_string())
}

/// Returns the experiments that the request can see, by name.
pub(super) async fn visible_experiments(
    app: &AppState,
    sight: &ProjectScope,
) -> Result<Vec<MlflowExperiment>, ApiError> {
    let projects = app.jobs().projects().await?;
    let created = app.run_blocking(|parts| parts.external_runs.experiments().map_err(MlflowError::from)).await?;
    let describe = |name: String, created_ms, updated_ms| MlflowExperiment {
        experiment_id: experiment_id(&name),
        artifact_location: "mlflow-artifacts:/".to_owned(),
        lifecycle_stage: "active".to_owned(),
        creation_time: created_ms,
        last_update_time: updated_ms,
        tags: Vec::new(),
        name,
    };
    let mut all: Vec<MlflowExperiment> = Vec::new();
    if !created.iter().any(|experiment| experiment.name == DEFAULT_NAME) {
        all.push(describe(DEFAULT_NAME.to_owned(), 0, 0));
    }
    all.extend(created.into_iter().map(|it| describe(it.name, it.created_ms, it.updated_ms)));
    for (name, first_ms, last_ms) in projects {
        match all.iter_mut().find(|experiment| experiment.name == name) {
            Some(experiment) => experiment.last_update_time = experiment.last_update_time.max(last_ms),
            None => all.push(describe(name, first_ms, last_ms)),
        }
    }
    all.retain(|experiment| sight.contains_project(&experiment.name));
    all.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(all)
}

/// Returns the experiment with this identifier.
pub(super) async fn find_by_id(app: &AppState, sight: &ProjectScope, id: &str) -> Result<MlflowExperiment, ApiError> {
    let all = visible_experiments(app, sight).await?;
    all.into_iter().find(|experiment| experiment.experiment_id == id).ok_or_else(|| no_experiment(id))
}

fn no_experiment(name: &str) -> ApiError {
    MlflowError::NoExperiment { name: name.chars().take(80).collect() }.into()
}

/// Returns a parameter of the query, which must be present.
pub(super) fn required<'q>(parameters: &'q QueryParameters, name: &'static str) -> Result<&'q str, MlflowError> {
    let missing = || MlflowError::Parameter { name, expected: "a value in the query", got: String::new() };
    parameters.get(name).ok_or_else(missing)
}

/// Handles `GET /api/2.0/mlflow/experiments/get`.
pub(super) async fn get(
    State(app): State<AppState>,
    sight: ProjectScope,
    parameters: QueryParameters,
) -> Result<Json<MlflowExperimentResponse>, ApiError> {
    let experiment = find_by_id(&app, &sight, required(&parameters, "experiment_id")?).await?;
    Ok(Json(MlflowExperimentResponse { experiment }))
}

/// Handles `GET /api/2.0/mlflow/experiments/get-by-name`.
pub(super) async fn get_by_name(
    State(app): State<AppState>,
    sight: ProjectScope,
    parameters: QueryParameters,
) -> Result<Json<MlflowExperimentResponse>, ApiError> {
    let name = required(&parameters, "experiment_name")?;
    let found = visible_experiments(&app, &sight).await?.into_iter().find(|experiment| experiment.name == name);
    Ok(Json(MlflowExperimentResponse { experiment: found.ok_or_else(|| no_experiment(name))? }))
}

/// Handles `POST /api/2.0/mlflow/experiments/create`.
pub(super) async fn create(
    State(app): State<AppState>,
    sight: ProjectScope,
    request: Request,
) -> Result<Json<CreateExperimentResponse>, ApiError> {
    let CreateExperimentRequest { name } = app.body_reader().read_json(request).await?;
    sight.check_submission(&name)?;
    if visible_experiments(&app, &sight).await?.iter().any(|experiment| experiment.name == name) {
        let exists = saggar_store::ExternalRunError::ExperimentExists { name: name.chars().take(80).collect() };
        return Err(MlflowError::from(exists).into());
    }
    let (created, now_ms) = (name.clone(), app.now_ms());
    app.run_blocking(move |parts| parts.external_runs.create_experiment(&created, now_ms).map_err(MlflowError::from))
        .await?;
    Ok(Json(CreateExperimentResponse { experiment_id: experiment_id(&name) }))
}

/// Handles `POST /api/2.0/mlflow/experiments/search`.
pub(super) async fn search(
    State(app): State<AppState>,
    sight: ProjectScope,
    request: Request,
) -> Result<Json<SearchExperimentsResponse>, ApiError> {
    let request: SearchExperimentsRequest = app.body_reader().read_json_or_default(request).await?;
    answer_search(&app, &sight, &request).await
}

/// Handles `GET /api/2.0/mlflow/experiments/search`.
pub(super) async fn list(
    State(app): State<AppState>,
    sight: ProjectScope,
    parameters: QueryParameters,
) -> Result<Json<SearchExperimentsResponse>, ApiError> {
    let text = |name| parameters.get(name).map(str::to_owned);
    let max_results = parameters.parse("max_results", "a whole number")?.map(MlflowInteger);
    let (page_token, filter) = (text("page_token"), text("filter"));
    let request = SearchExperimentsRequest { max_results, page_token, filter, ..Default::default() };
    answer_search(&app, &sight, &request).await
}

async fn answer_search(
    app: &AppState,
    sight: &ProjectScope,
    request: &SearchExperimentsRequest,
) -> Result<Json<SearchExperimentsResponse>, ApiError> {
    let page = PageRequest::read(request.max_results, request.page_token.as_deref(), MLFLOW_ENTRIES_DEFAULT)?;
    let filter = SearchFilter::parse(request.filter.as_deref().unwrap_or_default(), ATTRIBUTES)?;
    let order = SearchOrder::parse(&request.order_by, ATTRIBUTES)?;
    // Experiments are not deleted.
    let wants_active = request.view_type.as_deref() != Some("DELETED_ONLY");
    let mut found = if wants_active { visible_experiments(app, sight).await? } else { Vec::new() };
    found.retain(|experiment| filter.matches(experiment));
    // By default the last changed first, as in MLflow.
    found.sort_by_key(|experiment| Reverse(experiment.last_update_time));
    found.sort_by(|left, right| order.compare(left, right));
    let (experiments, next_page_token) = page.cut(found);
    Ok(Json(SearchExperimentsResponse { experiments, next_page_token }))
}

impl SearchSubject for MlflowExperiment {
    fn text(&self, field: &SearchField) -> Option<Cow<'_, str>> {
        match field {
            SearchField::Attribute("name") => Some(self.name.as_str().into()),
            SearchField::Attribute("experiment_id") => Some(self.experiment_id.as_str().into()),
            _ => None,
        }
    }

    fn number(&self, field: &SearchField) -> Option<f64> {
        match field {
            SearchField::Attribute("creation_time") => Some(self.creation_time as f64),
            SearchField::Attribute("last_update_time") => Some(self.last_update_time as f64),
            _ => None,
        }
    }
}
