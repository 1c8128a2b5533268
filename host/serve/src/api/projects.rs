//! `PUT /api/v1/models/{model}/projects` and `/api/v1/datasets/{name}/projects`: assigns models and datasets to
//! projects.

use axum::Json;
use axum::extract::{Path, Request, State};
use saggar_store::ProjectAssignments;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::Actor;
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::ApiError;
use crate::json_body::JsonBody;

/// `{"projects": ["digits"]}`; an empty list removes it from all projects.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AssignProjectsRequest {
    projects: Vec<String>,
}

/// Handles `PUT /api/v1/models/{model}/projects`.
pub(crate) async fn assign_model(
    State(app): State<AppState>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    assign(app, name, request, AuditAction::ModelAssign, crate::AppParts::model_projects).await
}

impl JsonBody for AssignProjectsRequest {
    const EXAMPLE: &'static str = r#"{"projects": ["digits"]}"#;
}

/// Handles `PUT /api/v1/datasets/{name}/projects`.
pub(crate) async fn assign_dataset(
    State(app): State<AppState>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    assign(app, name, request, AuditAction::DatasetAssign, crate::AppParts::dataset_projects).await
}

async fn assign(
    app: AppState,
    name: String,
    request: Request,
    action: AuditAction,
    of: fn(&crate::AppParts) -> ProjectAssignments,
) -> Result<Json<Value>, ApiError> {
    let actor = Actor::from_extensions(request.extensions());
    let AssignProjectsRequest { projects } = app.body_reader().read_json(request).await?;
    let (thing, detail) = (name.clone(), projects.join(", "));
    let assign = move |parts: &crate::AppParts| {
        let of = of(parts);
        of.set(&thing, projects)?;
        Ok::<_, ApiError>(of.recorded_projects(&thing)?.unwrap_or_default())
    };
    let assigned = app.run_blocking(assign).await;
    app.audit().record(&actor, action, &name, &detail, &assigned);
    Ok(Json(json!({ "name": name, "projects": assigned? })))
}
