//! `/api/v1/sweeps`: hyper-parameter searches.

mod create;
mod publish;
mod views;

use axum::Json;
use axum::extract::{Path, State};
use saggar_rest::sweeps::{SweepDocument, SweepListDocument};
use saggar_store::records::SweepRecord;
use saggar_sweeps::SweepError;

pub(crate) use create::create;
pub(crate) use publish::publish;
pub(in crate::api) use views::{sweep_document, sweep_with_trials, trial_lineage};

use crate::access::{Actor, ProjectScope};
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::ApiError;

/// Handles `GET /api/v1/sweeps`.
pub(crate) async fn list(
    State(app): State<AppState>,
    sight: ProjectScope,
) -> Result<Json<SweepListDocument>, ApiError> {
    let mut sweeps = Vec::new();
    for record in app.sweeps().list(sight.projects()).await? {
        let trials = app.sweeps().trials(&record.id).await?;
        sweeps.push(views::sweep_document(&record, &trials));
    }
    Ok(Json(SweepListDocument { sweeps }))
}

/// Handles `GET /api/v1/sweeps/{sweep}`, by name or identifier.
pub(crate) async fn get(
    State(app): State<AppState>,
    sight: ProjectScope,
    Path(name): Path<String>,
) -> Result<Json<SweepDocument>, ApiError> {
    let record = find_visible(&app, &sight, &name).await?;
    Ok(Json(views::sweep_with_trials(&app, &record).await?))
}

/// Handles `POST /api/v1/sweeps/{sweep}/stop`.
pub(crate) async fn stop(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
    sight: ProjectScope,
) -> Result<Json<SweepDocument>, ApiError> {
    let stopped: Result<SweepRecord, ApiError> = async {
        let record = find_visible(&app, &sight, &name).await?;
        Ok(app.sweeps().stop(&record.id).await?)
    }
    .await;
    app.audit().record(&actor, AuditAction::SweepStop, &name, "", &stopped);
    Ok(Json(views::sweep_with_trials(&app, &stopped?).await?))
}

/// Handles `POST /api/v1/sweeps/{sweep}/resume`.
pub(crate) async fn resume(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
    sight: ProjectScope,
) -> Result<Json<SweepDocument>, ApiError> {
    let resumed: Result<SweepRecord, ApiError> = async {
        let record = find_visible(&app, &sight, &name).await?;
        Ok(app.sweeps().resume(&record.id).await?)
    }
    .await;
    app.audit().record(&actor, AuditAction::SweepResume, &name, "", &resumed);
    Ok(Json(views::sweep_with_trials(&app, &resumed?).await?))
}

/// Returns the sweep of this name or identifier. One that the client cannot see looks like a missing one.
///
/// # Errors
/// `NotFound`; `Records`.
pub(in crate::api) async fn find_visible(
    app: &AppState,
    sight: &ProjectScope,
    name: &str,
) -> Result<SweepRecord, SweepError> {
    let record = app.sweeps().get(name).await?;
    if sight.contains_project(&record.project) {
        return Ok(record);
    }
    Err(SweepError::NotFound { name: name.to_owned() })
}
