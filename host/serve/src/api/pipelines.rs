//! `/api/v1/pipelines` and `/api/v1/pipeline-runs`. A run belongs to the project of its jobs, and is visible as they are.

mod components;
mod views;

use std::collections::HashMap;

use axum::Json;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use saggar_pipelines::{PipelineError, RunRequest};
use saggar_rest::pipelines::{
    CheckedPipelineDocument, PipelineApprovalRequest, PipelineRestartRequest, PipelineRunDocument,
    PipelineRunListDocument, PipelineScheduleDocument, PipelineScheduleListDocument, RemovedPipelineRunDocument,
    RemovedPipelineScheduleDocument, SetPipelineScheduleRequest,
};
use saggar_store::records::{PipelineRunFilter, PipelineRunRecord, PipelineRunState};

pub(in crate::api) use views::run_with_steps;

use super::jobs::submit;
use super::query::QueryParameters;
use crate::access::{Actor, ProjectScope};
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::{ApiError, CreatedResponse};
use crate::json_body::JsonBody;
use crate::limits::JOBS_LISTED_DEFAULT;

impl JsonBody for RunRequest {
    const EXAMPLE: &'static str = r#"{"plan": {"name": "nightly", "project": "digits", "steps": [{"name": "train", "spec": {"plugin": "SHA-256 of a plugin, as POST /api/v1/plugins answers it"}}]}, "params": {}}"#;
}

impl JsonBody for PipelineApprovalRequest {
    const EXAMPLE: &'static str = r#"{"step": "ask", "approve": true}"#;
}

impl JsonBody for PipelineRestartRequest {
    const EXAMPLE: &'static str = r#"{"from": "train"}"#;
}

impl JsonBody for SetPipelineScheduleRequest<RunRequest> {
    const EXAMPLE: &'static str = r#"{"cron": "0 3 * * *", "run": {"plan": {"name": "nightly", "project": "digits", "steps": [{"name": "train", "spec": {"plugin": "SHA-256 of a plugin"}}]}}}"#;
}

/// The run that a route's `{run}` names, if it is visible to the request. A hidden one looks like a missing one.
#[derive(Debug)]
pub(crate) struct VisibleRun(pub(crate) PipelineRunRecord);

impl FromRequestParts<AppState> for VisibleRun {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<VisibleRun, ApiError> {
        let named = Path::<HashMap<String, String>>::from_request_parts(parts, app).await;
        let Path(named) = named.map_err(|error| ApiError::Parameter {
            name: "run",
            expected: "a run's name or identifier",
            got: error.body_text().chars().take(80).collect(),
        })?;
        let name = named.get("run").map(String::as_str).unwrap_or_default();
        Ok(VisibleRun(find_visible(app, &ProjectScope::from_extensions(&parts.extensions), name).await?))
    }
}

/// Returns the run of this name or identifier. One that the client cannot see looks like a missing one.
///
/// # Errors
/// `NotFound`; `Records`.
pub(in crate::api) async fn find_visible(
    app: &AppState,
    sight: &ProjectScope,
    name: &str,
) -> Result<PipelineRunRecord, PipelineError> {
    let run = app.pipelines().get(name).await?;
    match sight.contains_project(&run.project) {
        true => Ok(run),
        false => Err(PipelineError::NotFound { name: name.to_owned() }),
    }
}

/// Handles `POST /api/v1/pipelines/check`.
pub(crate) async fn check(
    State(app): State<AppState>,
    request: Request,
) -> Result<Json<CheckedPipelineDocument>, ApiError> {
    let sight = ProjectScope::from_extensions(request.extensions());
    let mut request: RunRequest = app.body_reader().read_json(request).await?;
    let params = components::complete_and_check(&app, sight.rights(), &mut request).await?;
    let (name, steps) = (request.plan.name, request.plan.steps.len() as u64);
    Ok(Json(CheckedPipelineDocument { name, steps, params: params.into() }))
}

/// Handles `POST /api/v1/pipeline-runs`.
pub(crate) async fn start(
    State(app): State<AppState>,
    request: Request,
) -> Result<CreatedResponse<PipelineRunDocument>, ApiError> {
    let (actor, sight) =
        (Actor::from_extensions(request.extensions()), ProjectScope::from_extensions(request.extensions()));
    let idempotency_key = submit::idempotency_key(request.headers())?;
    let mut request: RunRequest = app.body_reader().read_json(request).await?;
    let project = request.plan.project.clone();
    sight.check_submission(&project)?;
    let idempotency_key = idempotency_key.map(|key| sight.idempotency_key(&project, key));
    let started = match components::complete_and_check(&app, sight.rights(), &mut request).await {
        Ok(_) => app.pipelines().start(&request, actor.rights.clone(), idempotency_key).await.map_err(ApiError::from),
        Err(error) => Err(error),
    };
    let name = started.as_ref().map_or("", |run| run.name.as_str());
    app.audit().record(&actor, AuditAction::PipelineRun, name, &format!("in {project}"), &started);
    Ok(CreatedResponse(views::run_with_steps(&app, &started?).await?))
}

/// Handles `GET /api/v1/pipeline-runs?pipeline=&state=&limit=&cursor=`.
pub(crate) async fn list(
    State(app): State<AppState>,
    sight: ProjectScope,
    parameters: QueryParameters,
) -> Result<Json<PipelineRunListDocument>, ApiError> {
    let limit = parameters.parse("limit", "a whole number")?.unwrap_or(JOBS_LISTED_DEFAULT);
    let state = parameters.get("state").map(|state| {
        let expected = "a state: RUNNING, SUCCEEDED, FAILED or CANCELLED";
        let got = state.chars().take(80).collect();
        let found = PipelineRunState::from_name(&state.to_ascii_uppercase());
        found.ok_or(ApiError::Parameter { name: "state", expected, got })
    });
    let filter = PipelineRunFilter {
        pipeline: parameters.get("pipeline").map(str::to_owned),
        projects: sight.projects(),
        state: state.transpose()?,
        limit: limit.clamp(1, saggar_store::limits::JOBS_LISTED_MAX),
        before: parameters.parse("cursor", "the cursor of the previous response")?,
    };
    let limit = filter.limit as usize;
    let runs = app.pipelines().list(filter).await?;
    let cursor = if runs.len() == limit { runs.last().map(|run| run.cursor) } else { None };
    Ok(Json(PipelineRunListDocument { runs: runs.iter().map(views::run_document).collect(), cursor }))
}

/// Handles `GET /api/v1/pipeline-runs/{run}`.
pub(crate) async fn get(
    State(app): State<AppState>,
    VisibleRun(run): VisibleRun,
) -> Result<Json<PipelineRunDocument>, ApiError> {
    Ok(Json(views::run_with_steps(&app, &run).await?))
}

/// Returns the response to a command and records the command, or its refusal, in the audit log.
async fn audited_run(
    app: &AppState,
    actor: &Actor,
    action: AuditAction,
    (run, detail): (&PipelineRunRecord, &str),
    done: Result<(), PipelineError>,
) -> Result<Json<PipelineRunDocument>, ApiError> {
    let done = done.map_err(ApiError::from);
    app.audit().record(actor, action, &run.name, detail, &done);
    done?;
    let run = app.pipelines().get(&run.id).await?;
    Ok(Json(views::run_with_steps(app, &run).await?))
}

/// Handles `POST /api/v1/pipeline-runs/{run}/stop`.
pub(crate) async fn stop(
    State(app): State<AppState>,
    VisibleRun(run): VisibleRun,
    actor: Actor,
) -> Result<Json<PipelineRunDocument>, ApiError> {
    let done = app.pipelines().stop(&run, &actor.principal.to_string()).await;
    audited_run(&app, &actor, AuditAction::PipelineStop, (&run, ""), done).await
}

/// Handles `POST /api/v1/pipeline-runs/{run}/approve`.
pub(crate) async fn approve(
    State(app): State<AppState>,
    VisibleRun(run): VisibleRun,
    request: Request,
) -> Result<Json<PipelineRunDocument>, ApiError> {
    let actor = Actor::from_extensions(request.extensions());
    let PipelineApprovalRequest { step, approve } = app.body_reader().read_json(request).await?;
    let done = app.pipelines().decide_approval(&run, &step, approve, &actor.principal.to_string()).await;
    let detail = format!("step {step} {}", if approve { "approved" } else { "rejected" });
    audited_run(&app, &actor, AuditAction::PipelineApprove, (&run, &detail), done).await
}

/// Handles `POST /api/v1/pipeline-runs/{run}/restart`.
pub(crate) async fn restart(
    State(app): State<AppState>,
    VisibleRun(run): VisibleRun,
    request: Request,
) -> Result<Json<PipelineRunDocument>, ApiError> {
    let actor = Actor::from_extensions(request.extensions());
    let PipelineRestartRequest { from } = app.body_reader().read_json_or_default(request).await?;
    let done = app.pipelines().restart(&run, from.as_deref()).await;
    let detail = from.map_or_else(String::new, |step| format!("from step {step}"));
    audited_run(&app, &actor, AuditAction::PipelineRestart, (&run, &detail), done).await
}

/// Handles `DELETE /api/v1/pipeline-runs/{run}`. The jobs of the run stay.
pub(crate) async fn remove(
    State(app): State<AppState>,
    VisibleRun(run): VisibleRun,
    actor: Actor,
) -> Result<Json<RemovedPipelineRunDocument>, ApiError> {
    let removed = app.pipelines().remove(&run).await.map_err(ApiError::from);
    app.audit().record(&actor, AuditAction::PipelineRemove, &run.name, "", &removed);
    removed?;
    Ok(Json(RemovedPipelineRunDocument { name: run.name }))
}

/// Handles `GET /api/v1/pipelines`: the pipelines that have a schedule.
pub(crate) async fn list_schedules(
    State(app): State<AppState>,
    sight: ProjectScope,
) -> Result<Json<PipelineScheduleListDocument>, ApiError> {
    let schedules = app.pipelines().schedules().await?;
    let seen = schedules.iter().filter(|(schedule, _)| sight.contains_project(&schedule.project));
    let pipelines = seen.map(|(schedule, next)| views::schedule_document(schedule, *next)).collect();
    Ok(Json(PipelineScheduleListDocument { pipelines }))
}

/// Handles `POST /api/v1/pipelines`: sets the schedule of a pipeline.
pub(crate) async fn set_schedule(
    State(app): State<AppState>,
    request: Request,
) -> Result<CreatedResponse<PipelineScheduleDocument>, ApiError> {
    let (actor, sight) =
        (Actor::from_extensions(request.extensions()), ProjectScope::from_extensions(request.extensions()));
    let SetPipelineScheduleRequest { cron, run } = app.body_reader().read_json(request).await?;
    let mut run: RunRequest = run;
    sight.check_submission(&run.plan.project)?;
    components::complete_and_check(&app, sight.rights(), &mut run).await?;
    let name = run.plan.name.clone();
    let _turn = app.reference_lock().write().await;
    let set = match is_hidden(&app, &sight, &name).await? {
        // Names are unique on the server: a hidden schedule of this name is not replaced.
        true => {
            let reason = "the name is taken; choose another one".to_owned();
            Err(ApiError::Conflict { what: format!("pipeline {name}"), reason })
        }
        false => app.pipelines().set_schedule(&cron, &run, actor.rights.clone()).await.map_err(ApiError::from),
    };
    app.audit().record(&actor, AuditAction::ScheduleSet, &name, &cron, &set);
    let set = set?;
    let next = app.pipelines().schedules().await?.into_iter().find(|(schedule, _)| schedule.name == set.name);
    Ok(CreatedResponse(views::schedule_document(&set, next.and_then(|(_, next)| next))))
}

/// Handles `DELETE /api/v1/pipelines/{name}`: removes the schedule of a pipeline; its runs stay.
pub(crate) async fn remove_schedule(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
    sight: ProjectScope,
) -> Result<Json<RemovedPipelineScheduleDocument>, ApiError> {
    let _turn = app.reference_lock().write().await;
    let removed = match is_hidden(&app, &sight, &name).await? {
        true => Err(PipelineError::NoSchedule { name: name.clone() }),
        false => app.pipelines().remove_schedule(&name).await,
    };
    let removed = removed.map_err(ApiError::from);
    app.audit().record(&actor, AuditAction::ScheduleRemove, &name, "", &removed);
    removed?;
    Ok(Json(RemovedPipelineScheduleDocument { name }))
}

/// Returns whether a schedule of this name exists that the client cannot see.
async fn is_hidden(app: &AppState, sight: &ProjectScope, name: &str) -> Result<bool, ApiError> {
    let schedules = app.pipelines().schedules().await?;
    Ok(schedules.iter().any(|(it, _)| it.name == name && !sight.contains_project(&it.project)))
}
