//! Commands to jobs: stop, preempt, pause, resume, checkpoint, annotate. Commands that are refused are audited as well,
//! also those to jobs that are missing or hidden.

use axum::Json;
use axum::extract::{Path, Request, State};
use saggar_jobs::JobError;
use saggar_rest::jobs::{AnnotateJobRequest, JobDocument, PauseRequest};
use saggar_store::records::{AnnotationChange, JobRecord, PausePoint, PauseStep, StateReason};

use super::views;
use crate::access::{Actor, ProjectScope};
use crate::api::visible_job::VisibleJob;
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::ApiError;
use crate::json_body::JsonBody;

/// Handles `POST /api/v1/jobs/{job}/stop`.
pub(crate) async fn stop(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
    sight: ProjectScope,
    job: Result<VisibleJob, ApiError>,
) -> Result<Json<JobDocument>, ApiError> {
    let stopped: Result<JobRecord, ApiError> = async {
        let VisibleJob(job) = job?;
        Ok(app.jobs().stop(&job.id, StateReason::new("STOPPED", "stopped by a user")).await?)
    }
    .await;
    answer(&app, &sight, (&actor, AuditAction::JobStop), (&name, ""), stopped).await
}

/// Handles `POST /api/v1/jobs/{job}/preempt`.
pub(crate) async fn preempt(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
    sight: ProjectScope,
    job: Result<VisibleJob, ApiError>,
) -> Result<Json<JobDocument>, ApiError> {
    let preempted: Result<JobRecord, ApiError> = async {
        let VisibleJob(job) = job?;
        Ok(app.jobs().preempt(&job.id).await?)
    }
    .await;
    answer(&app, &sight, (&actor, AuditAction::JobPreempt), (&name, ""), preempted).await
}

impl JsonBody for PauseRequest {
    const EXAMPLE: &'static str = r#"{"at_step": 1000}"#;
}

/// Handles `POST /api/v1/jobs/{job}/pause`.
pub(crate) async fn pause(
    State(app): State<AppState>,
    Path(name): Path<String>,
    job: Result<VisibleJob, ApiError>,
    request: Request,
) -> Result<Json<JobDocument>, ApiError> {
    let (actor, sight) =
        (Actor::from_extensions(request.extensions()), ProjectScope::from_extensions(request.extensions()));
    let mut detail = String::new();
    let paused: Result<JobRecord, ApiError> = async {
        let VisibleJob(job) = job?;
        let PauseRequest { at_step, metric } = app.body_reader().read_json_or_default(request).await?;
        detail = at_step.map_or_else(String::new, |step| format!("at step {step}"));
        let point = PausePoint { at: PauseStep::Step(at_step.unwrap_or(0)), metric };
        Ok(app.jobs().set_pause(&job.id, Some(point)).await?)
    }
    .await;
    answer(&app, &sight, (&actor, AuditAction::JobPause), (&name, &detail), paused).await
}

/// Handles `POST /api/v1/jobs/{job}/resume`.
pub(crate) async fn resume(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
    sight: ProjectScope,
    job: Result<VisibleJob, ApiError>,
) -> Result<Json<JobDocument>, ApiError> {
    let resumed: Result<JobRecord, ApiError> = async {
        let VisibleJob(job) = job?;
        if job.pause.is_none() {
            let hint =
                "only a job that is paused, or is to pause, can be resumed; `saggar restart` repeats one that is over";
            let (state, hint) = (job.state.name().to_owned(), hint.to_owned());
            return Err(JobError::State { name: job.name, state, hint }.into());
        }
        Ok(app.jobs().set_pause(&job.id, None).await?)
    }
    .await;
    answer(&app, &sight, (&actor, AuditAction::JobResume), (&name, ""), resumed).await
}

/// Handles `POST /api/v1/jobs/{job}/checkpoint`.
pub(crate) async fn checkpoint(
    State(app): State<AppState>,
    sight: ProjectScope,
    VisibleJob(job): VisibleJob,
) -> Result<Json<JobDocument>, ApiError> {
    if !app.jobs().request_checkpoint(&job).await? {
        let (state, hint) = (job.state.name().to_owned(), "only a running job can be checkpointed".to_owned());
        return Err(JobError::State { name: job.name, state, hint }.into());
    }
    Ok(Json(views::job_with_details(&app, &sight, &job).await?))
}

impl JsonBody for AnnotateJobRequest {
    const EXAMPLE: &'static str = r#"{"tags": {"kind": "baseline"}, "note": "The first run with augmentation"}"#;
}

/// Handles `POST /api/v1/jobs/{job}/annotate`.
pub(crate) async fn annotate(
    State(app): State<AppState>,
    Path(name): Path<String>,
    sight: ProjectScope,
    job: Result<VisibleJob, ApiError>,
    request: Request,
) -> Result<Json<JobDocument>, ApiError> {
    let actor = Actor::from_extensions(request.extensions());
    let annotated: Result<JobRecord, ApiError> = async {
        let VisibleJob(job) = job?;
        let AnnotateJobRequest { tags, remove, note } = app.body_reader().read_json(request).await?;
        app.jobs().annotate(&job.id, AnnotationChange { set: tags, remove, note }).await?;
        Ok(job)
    }
    .await;
    answer(&app, &sight, (&actor, AuditAction::JobAnnotate), (&name, ""), annotated).await
}

/// Audits a command to the job `name`, and answers with the job as it is now.
async fn answer(
    app: &AppState,
    sight: &ProjectScope,
    (actor, action): (&Actor, AuditAction),
    (name, detail): (&str, &str),
    outcome: Result<JobRecord, ApiError>,
) -> Result<Json<JobDocument>, ApiError> {
    app.audit().record(actor, action, name, detail, &outcome);
    Ok(Json(views::job_with_details(app, sight, &outcome?).await?))
}
