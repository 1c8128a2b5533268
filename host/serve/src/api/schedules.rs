//! `/api/v1/schedules`: jobs that are submitted at the times of a cron expression.

use axum::Json;
use axum::extract::{Path, Request, State};
use saggar_clock::UnixMillis;
use saggar_jobs::{JobError, JobSpec};
use saggar_rest::schedules::{RemovedScheduleDocument, ScheduleDocument, ScheduleListDocument, SetScheduleRequest};
use saggar_store::records::JobSchedule;
use serde_json::Value;

use super::jobs::submit;
use crate::access::{Actor, ProjectScope};
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::{ApiError, CreatedResponse};
use crate::json_body::JsonBody;

impl JsonBody for SetScheduleRequest<JobSpec> {
    const EXAMPLE: &'static str = r#"{"name": "nightly", "cron": "0 3 * * *", "spec": {"project": "digits", "plugin": "SHA-256 of a plugin, as POST /api/v1/plugins answers it"}}"#;
}

/// Handles `POST /api/v1/schedules`.
pub(crate) async fn set(
    State(app): State<AppState>,
    request: Request,
) -> Result<CreatedResponse<ScheduleDocument>, ApiError> {
    let (actor, sight) =
        (Actor::from_extensions(request.extensions()), ProjectScope::from_extensions(request.extensions()));
    let SetScheduleRequest { name, cron, mut spec } = app.body_reader().read_json(request).await?;
    let asked = spec.clone();
    // Its references must exist now; each scheduled job resolves them again when it is due.
    submit::pin_spec(&app, &sight, &mut spec).await?;
    let _turn = app.reference_lock().write().await;
    let set = match is_hidden(&app, &sight, &name).await? {
        // Names are unique on the server: a hidden schedule of this name is not replaced.
        true => {
            let reason = "the name is taken; choose another one".to_owned();
            Err(ApiError::Conflict { what: format!("schedule {name}"), reason })
        }
        false => app.jobs().set_schedule(&name, &cron, &asked, actor.rights.clone()).await.map_err(ApiError::from),
    };
    app.audit().record(&actor, AuditAction::ScheduleSet, &name, &cron, &set);
    let set = set?;
    let next = app.jobs().schedules().await?.into_iter().find(|(schedule, _)| schedule.name == set.name);
    Ok(CreatedResponse(schedule_document(&set, next.and_then(|(_, next)| next))))
}

/// Handles `GET /api/v1/schedules`.
pub(crate) async fn list(
    State(app): State<AppState>,
    sight: ProjectScope,
) -> Result<Json<ScheduleListDocument>, ApiError> {
    let schedules = app.jobs().schedules().await?;
    let seen = schedules.iter().filter(|(schedule, _)| sight.contains_project(&schedule_project(schedule)));
    let schedules = seen.map(|(schedule, next)| schedule_document(schedule, *next)).collect();
    Ok(Json(ScheduleListDocument { schedules }))
}

/// Handles `DELETE /api/v1/schedules/{name}`.
pub(crate) async fn remove(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
    sight: ProjectScope,
) -> Result<Json<RemovedScheduleDocument>, ApiError> {
    let _turn = app.reference_lock().write().await;
    let removed = match is_hidden(&app, &sight, &name).await? {
        true => Err(JobError::no_schedule(&name).into()),
        false => app.jobs().remove_schedule(&name).await.map_err(ApiError::from),
    };
    app.audit().record(&actor, AuditAction::ScheduleRemove, &name, "", &removed);
    removed?;
    Ok(Json(RemovedScheduleDocument { name }))
}

/// Returns whether a schedule of this name exists that the client cannot see.
async fn is_hidden(app: &AppState, sight: &ProjectScope, name: &str) -> Result<bool, ApiError> {
    let schedules = app.jobs().schedules().await?;
    Ok(schedules
        .iter()
        .any(|(schedule, _)| schedule.name == name && !sight.contains_project(&schedule_project(schedule))))
}

/// Returns the project that a schedule submits jobs to, or an empty name, which no key is limited to, if it cannot be
/// read.
fn schedule_project(schedule: &JobSchedule) -> String {
    serde_json::from_str::<JobSpec>(&schedule.spec).map(|spec| spec.project).unwrap_or_default()
}

fn schedule_document(schedule: &JobSchedule, next_ms: Option<UnixMillis>) -> ScheduleDocument {
    ScheduleDocument {
        name: schedule.name.clone(),
        cron: schedule.cron.clone(),
        spec: serde_json::from_str(&schedule.spec).unwrap_or(Value::Null),
        owner: schedule.owner.clone(),
        created_ms: schedule.created_ms,
        next_ms,
        last_job: schedule.last_job.clone(),
    }
}
