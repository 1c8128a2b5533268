//! `GET /api/v1/jobs/{job}/notebook`: the address of a notebook, with its token. It requires the right to submit jobs of the
//! project, because the token lets its holder run programs.

use axum::Json;
use axum::extract::{Path, State};
use saggar_jobs::{JobError, JobSpec, NOTEBOOK_QUEUE};
use saggar_rest::jobs::NotebookDocument;

use super::mounts;
use crate::access::{Actor, ProjectScope};
use crate::api::visible_job::VisibleJob;
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::ApiError;

/// Handles `GET /api/v1/jobs/{job}/notebook`.
pub(crate) async fn get(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
    job: Result<VisibleJob, ApiError>,
) -> Result<Json<NotebookDocument>, ApiError> {
    let VisibleJob(job) = job?;
    let is_notebook = serde_json::from_str::<JobSpec>(&job.spec).is_ok_and(|spec| spec.notebook.is_some());
    if !is_notebook {
        let hint = "the job is no notebook; `saggar run --mode notebook` starts one".to_owned();
        return Err(ApiError::NotFound { kind: "notebook", name, hint });
    }
    let path = app.jobs().running_notebook(&job.name).map(|it| saggar_notebook::lab_path(&job.name, &it.token));
    let given: Result<(), ApiError> = Ok(());
    if path.is_some() {
        app.audit().record(&actor, AuditAction::NotebookOpen, &job.name, &format!("in {}", job.project), &given);
    }
    let (state, reason) = (job.state.name().to_owned(), job.reason.sentence);
    Ok(Json(NotebookDocument { job: job.name, state, reason, path }))
}

/// Validates a notebook and pins its data. All notebooks wait in their own queue, which exists if the server allows them.
///
/// # Errors
/// Returns `NotebooksOff` if it does not; `Job` if the specification is invalid; the errors of mounts and secrets.
pub(super) async fn pin_notebook(app: &AppState, sight: &ProjectScope, spec: &mut JobSpec) -> Result<(), ApiError> {
    if !app.jobs().allows_notebooks() {
        return Err(JobError::NotebooksOff.into());
    }
    spec.queue = NOTEBOOK_QUEUE.to_owned();
    spec.validate().map_err(JobError::from)?;
    for mount in &mut spec.data {
        mounts::pin_mount(app, sight, mount).await?;
    }
    super::requirements::check_secrets(app, sight, spec).await
}
