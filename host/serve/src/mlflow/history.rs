//! `metrics/get-history`: every value of a run's metric.

use axum::extract::State;
use saggar_rest::mlflow::{MetricHistoryResponse, MlflowInteger};
use saggar_store::external_runs::ExternalPoint;

use super::error::MlflowError;
use super::experiments::required;
use super::page::PageRequest;
use super::runs::{FoundRun, external_point, find_run, metric_document};
use crate::access::ProjectScope;
use crate::api::query::QueryParameters;
use crate::app::AppState;
use crate::error::{ApiError, SerializedJson};
use crate::limits::{MLFLOW_POINTS_MAX, POINTS_ANSWERED_MAX};

/// Handles `GET /api/2.0/mlflow/metrics/get-history`. Without `max_results`, clients expect every value.
pub(super) async fn get_history(
    State(app): State<AppState>,
    sight: ProjectScope,
    parameters: QueryParameters,
) -> Result<SerializedJson<MetricHistoryResponse>, ApiError> {
    let id = parameters.get("run_id").or_else(|| parameters.get("run_uuid"));
    let id = id.map_or_else(|| required(&parameters, "run_id"), Ok)?;
    let key = required(&parameters, "metric_key")?.to_owned();
    let limit = parameters.parse("max_results", "a whole number")?.map(MlflowInteger);
    let page = PageRequest::read(limit, parameters.get("page_token"), MLFLOW_POINTS_MAX)?;
    let points = match find_run(&app, &sight, id).await? {
        FoundRun::Job(job, _) => job_history(&app, &job.id, key).await?,
        FoundRun::External(run) => {
            let end = u32::try_from(page.offset.saturating_add(page.limit).saturating_add(1)).unwrap_or(u32::MAX);
            external_history(&app, run.id, key, end).await?
        }
    };
    app.run_blocking(move |_| {
        let (points, next_page_token) = page.cut(points);
        let metrics = points.iter().map(metric_document).collect();
        SerializedJson::new(&MetricHistoryResponse { metrics, next_page_token })
    })
    .await
}

/// Returns every value of a metric of the run with this identifier, by step, at most about [`MLFLOW_POINTS_MAX`].
///
/// # Errors
/// `NoRun`, also for runs that the request cannot see.
pub(super) async fn run_history(
    app: &AppState,
    sight: &ProjectScope,
    id: &str,
    key: String,
) -> Result<Vec<ExternalPoint>, ApiError> {
    match find_run(app, sight, id).await? {
        FoundRun::Job(job, _) => job_history(app, &job.id, key).await,
        FoundRun::External(run) => external_history(app, run.id, key, MLFLOW_POINTS_MAX as u32).await,
    }
}

/// Reads the first `count` values of an external run.
async fn external_history(app: &AppState, id: String, key: String, count: u32) -> Result<Vec<ExternalPoint>, ApiError> {
    let read = move |parts: &crate::app_parts::AppParts| {
        parts.external_runs.history(&id, &key, 0, count).map_err(MlflowError::from)
    };
    app.run_blocking(read).await
}

/// Reads a series of a job, page by page.
async fn job_history(app: &AppState, id: &str, key: String) -> Result<Vec<ExternalPoint>, ApiError> {
    let (mut points, mut from) = (Vec::new(), 0);
    loop {
        let pages = app.jobs().series_pages(id, vec![key.clone()], from, POINTS_ANSWERED_MAX).await?;
        let Some(page) = pages.into_iter().next() else { return Ok(points) };
        points.extend(page.points.iter().map(external_point));
        match page.points.last() {
            Some(last) if page.is_truncated && points.len() < MLFLOW_POINTS_MAX => from = last.step + 1,
            _ => return Ok(points),
        }
    }
}
