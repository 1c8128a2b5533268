//! What users tell jobs: stop, make room, save, go away. A command to a job that is not there is written down, too.

use axum::Json;
use axum::extract::{Path, State};
use saggar_jobs::JobError;
use saggar_store::records::{Job, Reason};
use serde_json::Value;

use super::shown;
use crate::access::{Actor, SeenJob, Sight};
use crate::app::App;
use crate::audit::Action;
use crate::error::ApiError;

/// `POST /api/v1/jobs/{job}/stop`.
pub(crate) async fn stop(
    State(app): State<App>,
    Path(name): Path<String>,
    actor: Actor,
    sight: Sight,
    job: Result<SeenJob, ApiError>,
) -> Result<Json<Value>, ApiError> {
    let stopped: Result<Job, ApiError> = async {
        let SeenJob(job) = job?;
        Ok(app.jobs().stop(&job.id, Reason::new("STOPPED", "stopped by a user")).await?)
    }
    .await;
    app.audit().record(&actor, Action::JobStop, &name, "", &stopped);
    Ok(Json(shown::alone(&app, &sight, &stopped?).await?))
}

/// `POST /api/v1/jobs/{job}/preempt`.
pub(crate) async fn preempt(
    State(app): State<App>,
    Path(name): Path<String>,
    actor: Actor,
    sight: Sight,
    job: Result<SeenJob, ApiError>,
) -> Result<Json<Value>, ApiError> {
    let preempted: Result<Job, ApiError> = async {
        let SeenJob(job) = job?;
        Ok(app.jobs().preempt(&job.id).await?)
    }
    .await;
    app.audit().record(&actor, Action::JobPreempt, &name, "", &preempted);
    Ok(Json(shown::alone(&app, &sight, &preempted?).await?))
}

/// `POST /api/v1/jobs/{job}/checkpoint`.
pub(crate) async fn checkpoint(
    State(app): State<App>,
    sight: Sight,
    SeenJob(job): SeenJob,
) -> Result<Json<Value>, ApiError> {
    if !app.jobs().checkpoint(&job.id) {
        let (state, hint) = (job.state.name().to_owned(), "only a running job can be checkpointed".to_owned());
        return Err(JobError::State { name: job.name, state, hint }.into());
    }
    Ok(Json(shown::alone(&app, &sight, &job).await?))
}
