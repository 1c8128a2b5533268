//! External runs are created and logged to.

use axum::Json;
use axum::extract::{Request, State};
use saggar_rest::mlflow::{
    CreateRunRequest, LogBatchRequest, LogMetricRequest, LogTextRequest, MlflowDone, MlflowInteger, MlflowMetric,
    MlflowPair, MlflowRunResponse, RunReferenceRequest, UpdateRunRequest, UpdateRunResponse,
};
use saggar_store::external_runs::{ExternalLog, ExternalPoint, ExternalRunStatus, ExternalRunUpdate, NewExternalRun};
use saggar_store::random_hex;

use super::error::MlflowError;
use super::experiments::find_by_id;
use super::runs::{FoundRun, find_run, run_document, run_info};
use crate::access::{Actor, ProjectScope};
use crate::app::AppState;
use crate::error::ApiError;
use crate::json_body::JsonBody;

/// The tag with a run's name.
const NAME_TAG: &str = "mlflow.runName";
/// The bytes of a value of a metric in the database, about.
const POINT_BYTES: usize = 60;

impl JsonBody for CreateRunRequest {
    const EXAMPLE: &'static str = r#"{"experiment_id": "0", "run_name": "first", "start_time": 1771000000000}"#;
}

impl JsonBody for UpdateRunRequest {
    const EXAMPLE: &'static str = r#"{"run_id": "32 digits", "status": "FINISHED", "end_time": 1771000000000}"#;
}

impl JsonBody for LogMetricRequest {
    const EXAMPLE: &'static str =
        r#"{"run_id": "32 digits", "key": "loss", "value": 0.5, "timestamp": 1771000000000, "step": 1}"#;
}

impl JsonBody for LogTextRequest {
    const EXAMPLE: &'static str = r#"{"run_id": "32 digits", "key": "lr", "value": "0.05"}"#;
}

impl JsonBody for LogBatchRequest {
    const EXAMPLE: &'static str = r#"{"run_id": "32 digits", "params": [{"key": "lr", "value": "0.05"}]}"#;
}

impl JsonBody for RunReferenceRequest {
    const EXAMPLE: &'static str = r#"{"run_id": "32 digits"}"#;
}

fn pairs(pairs: Vec<MlflowPair>) -> Vec<(String, String)> {
    pairs.into_iter().map(|pair| (pair.key, pair.value)).collect()
}

/// Handles `POST /api/2.0/mlflow/runs/create`.
pub(super) async fn create_run(
    State(app): State<AppState>,
    sight: ProjectScope,
    actor: Actor,
    request: Request,
) -> Result<Json<MlflowRunResponse>, ApiError> {
    let request: CreateRunRequest = app.body_reader().read_json(request).await?;
    let id = if request.experiment_id.is_empty() { "0" } else { &request.experiment_id };
    let experiment = find_by_id(&app, &sight, id).await?.name;
    let mut tags = pairs(request.tags);
    let tagged = tags.iter().find(|(key, _)| key == NAME_TAG).map(|(_, value)| value.clone());
    let named = request.run_name.filter(|name| !name.is_empty()).or(tagged.filter(|name| !name.is_empty()));
    let name = named.unwrap_or_else(|| format!("run-{}", random_hex::<4>()));
    tags.retain(|(key, _)| key != NAME_TAG);
    tags.push((NAME_TAG.to_owned(), name.clone()));
    let started_ms = request.start_time.map_or_else(|| i64::try_from(app.now_ms()).unwrap_or(i64::MAX), |ms| ms.0);
    // A client can say anything, so a key's name comes first.
    let owner = actor.rights.key().map(str::to_owned).or(request.user_id).unwrap_or_default();
    let run = NewExternalRun { experiment, name, owner, started_ms, tags };
    let created = app.run_blocking(move |parts| -> Result<_, ApiError> {
        parts.check_storage_quota(POINT_BYTES as u64)?;
        Ok(parts.external_runs.create_run(&run).map_err(MlflowError::from)?)
    });
    let run = created.await?;
    tracing::info!(run = run.id, experiment = run.experiment, "external run created");
    Ok(Json(MlflowRunResponse { run: run_document(&run) }))
}

/// Returns the identifier of an external run that a request names.
async fn external_run(app: &AppState, sight: &ProjectScope, ids: [Option<String>; 2]) -> Result<String, ApiError> {
    let missing = || MlflowError::Parameter { name: "run_id", expected: "the identifier of a run", got: String::new() };
    let id = ids.into_iter().flatten().find(|id| !id.is_empty()).ok_or_else(missing)?;
    match find_run(app, sight, &id).await? {
        FoundRun::External(run) => Ok(run.id),
        FoundRun::Job(job, _) => Err(MlflowError::IsJob { job: job.name }.into()),
    }
}

async fn apply_update(
    app: &AppState,
    sight: &ProjectScope,
    ids: [Option<String>; 2],
    update: ExternalRunUpdate,
) -> Result<Json<UpdateRunResponse>, ApiError> {
    let id = external_run(app, sight, ids).await?;
    let changed =
        app.run_blocking(move |parts| parts.external_runs.update_run(&id, &update).map_err(MlflowError::from));
    Ok(Json(UpdateRunResponse { run_info: run_info(&changed.await?) }))
}

/// Handles `POST /api/2.0/mlflow/runs/update`.
pub(super) async fn update_run(
    State(app): State<AppState>,
    sight: ProjectScope,
    request: Request,
) -> Result<Json<UpdateRunResponse>, ApiError> {
    let request: UpdateRunRequest = app.body_reader().read_json(request).await?;
    let parse = |name: String| {
        let found = ExternalRunStatus::ALL.into_iter().find(|status| status.name() == name);
        let expected = "RUNNING, SCHEDULED, FINISHED, FAILED or KILLED";
        found.ok_or_else(|| MlflowError::Parameter { name: "status", expected, got: name.chars().take(80).collect() })
    };
    let status = request.status.map(parse).transpose()?;
    let update = ExternalRunUpdate {
        name: request.run_name.filter(|name| !name.is_empty()),
        status,
        ended_ms: request.end_time.map(|ms| ms.0),
        is_deleted: None,
    };
    apply_update(&app, &sight, [request.run_id, request.run_uuid], update).await
}

/// Handles `POST /api/2.0/mlflow/runs/delete`.
pub(super) async fn delete_run(
    State(app): State<AppState>,
    sight: ProjectScope,
    request: Request,
) -> Result<Json<MlflowDone>, ApiError> {
    set_deleted(&app, &sight, request, true).await
}

/// Handles `POST /api/2.0/mlflow/runs/restore`.
pub(super) async fn restore_run(
    State(app): State<AppState>,
    sight: ProjectScope,
    request: Request,
) -> Result<Json<MlflowDone>, ApiError> {
    set_deleted(&app, &sight, request, false).await
}

async fn set_deleted(
    app: &AppState,
    sight: &ProjectScope,
    request: Request,
    is_deleted: bool,
) -> Result<Json<MlflowDone>, ApiError> {
    let request: RunReferenceRequest = app.body_reader().read_json(request).await?;
    let update = ExternalRunUpdate { is_deleted: Some(is_deleted), ..ExternalRunUpdate::default() };
    apply_update(app, sight, [request.run_id, None], update).await.map(|_| Json(MlflowDone {}))
}

async fn store_log(
    app: &AppState,
    sight: &ProjectScope,
    ids: [Option<String>; 2],
    log: ExternalLog,
) -> Result<Json<MlflowDone>, ApiError> {
    let id = external_run(app, sight, ids).await?;
    let texts = log.parameters.iter().chain(&log.tags).map(|(key, value)| key.len() + value.len());
    let bytes = texts.sum::<usize>() + log.points.len() * POINT_BYTES;
    let is_due = app.logged_bytes().add(bytes as u64);
    // A run can be renamed by its tag.
    let name = log.tags.iter().find(|(key, _)| key == NAME_TAG).map(|(_, name)| name.clone());
    app.run_blocking(move |parts| -> Result<_, ApiError> {
        if is_due {
            parts.check_storage_quota(bytes as u64)?;
        }
        parts.external_runs.log(&id, &log).map_err(MlflowError::from)?;
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            let update = ExternalRunUpdate { name: Some(name), ..ExternalRunUpdate::default() };
            parts.external_runs.update_run(&id, &update).map_err(MlflowError::from)?;
        }
        Ok(())
    })
    .await?;
    Ok(Json(MlflowDone {}))
}

fn point(metric: MlflowMetric) -> ExternalPoint {
    let MlflowMetric { key, value, timestamp: MlflowInteger(at_ms), step: MlflowInteger(step) } = metric;
    ExternalPoint { key, value: value.0, step, at_ms }
}

/// Handles `POST /api/2.0/mlflow/runs/log-metric`.
pub(super) async fn log_metric(
    State(app): State<AppState>,
    sight: ProjectScope,
    request: Request,
) -> Result<Json<MlflowDone>, ApiError> {
    let request: LogMetricRequest = app.body_reader().read_json(request).await?;
    let LogMetricRequest { run_id, run_uuid, key, value, timestamp, step } = request;
    let points = vec![point(MlflowMetric { key, value, timestamp, step })];
    store_log(&app, &sight, [run_id, run_uuid], ExternalLog { points, ..ExternalLog::default() }).await
}

/// Handles `POST /api/2.0/mlflow/runs/log-parameter`.
pub(super) async fn log_parameter(
    State(app): State<AppState>,
    sight: ProjectScope,
    request: Request,
) -> Result<Json<MlflowDone>, ApiError> {
    let request: LogTextRequest = app.body_reader().read_json(request).await?;
    let parameters = vec![(request.key, request.value)];
    let log = ExternalLog { parameters, ..ExternalLog::default() };
    store_log(&app, &sight, [request.run_id, request.run_uuid], log).await
}

/// Handles `POST /api/2.0/mlflow/runs/set-tag`.
pub(super) async fn set_tag(
    State(app): State<AppState>,
    sight: ProjectScope,
    request: Request,
) -> Result<Json<MlflowDone>, ApiError> {
    let request: LogTextRequest = app.body_reader().read_json(request).await?;
    let tags = vec![(request.key, request.value)];
    let log = ExternalLog { tags, ..ExternalLog::default() };
    store_log(&app, &sight, [request.run_id, request.run_uuid], log).await
}

/// Handles `POST /api/2.0/mlflow/runs/delete-tag`.
pub(super) async fn delete_tag(
    State(app): State<AppState>,
    sight: ProjectScope,
    request: Request,
) -> Result<Json<MlflowDone>, ApiError> {
    let request: LogTextRequest = app.body_reader().read_json(request).await?;
    let id = external_run(&app, &sight, [request.run_id, request.run_uuid]).await?;
    let key = request.key.clone();
    let removed = app.run_blocking(move |parts| parts.external_runs.remove_tag(&id, &key).map_err(MlflowError::from));
    if removed.await? {
        return Ok(Json(MlflowDone {}));
    }
    let name = request.key.chars().take(80).collect();
    Err(ApiError::NotFound { kind: "tag", name, hint: "runs/get lists the tags of a run".to_owned() })
}

/// Handles `POST /api/2.0/mlflow/runs/log-batch`: all is stored, or nothing.
pub(super) async fn log_batch(
    State(app): State<AppState>,
    sight: ProjectScope,
    request: Request,
) -> Result<Json<MlflowDone>, ApiError> {
    let request: LogBatchRequest = app.body_reader().read_json(request).await?;
    let log = ExternalLog {
        parameters: pairs(request.params),
        tags: pairs(request.tags),
        points: request.metrics.into_iter().map(point).collect(),
    };
    store_log(&app, &sight, [request.run_id, None], log).await
}
