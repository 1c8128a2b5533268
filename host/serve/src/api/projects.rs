//! `PUT /api/v1/models/{model}/projects` and `/api/v1/datasets/{name}/projects`: which projects a thing belongs to.

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::routing::{MethodRouter, put};
use saggar_store::Projects;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::Actor;
use crate::app::App;
use crate::audit::Action;
use crate::error::ApiError;
use crate::json_body::JsonBody;

/// The routes of this module.
pub(crate) fn routes() -> [(&'static str, MethodRouter<App>); 2] {
    [("/api/v1/models/{model}/projects", put(of_model)), ("/api/v1/datasets/{name}/projects", put(of_dataset))]
}

/// `{"projects": ["digits"]}`; an empty list has it belong to none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Assignment {
    projects: Vec<String>,
}

/// `PUT /api/v1/models/{model}/projects`.
async fn of_model(State(app): State<App>, Path(name): Path<String>, request: Request) -> Result<Json<Value>, ApiError> {
    assign(app, name, request, Action::ModelAssign, crate::Parts::model_projects).await
}

impl JsonBody for Assignment {
    const EXAMPLE: &'static str = r#"{"projects": ["digits"]}"#;
}

/// `PUT /api/v1/datasets/{name}/projects`.
async fn of_dataset(
    State(app): State<App>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    assign(app, name, request, Action::DatasetAssign, crate::Parts::dataset_projects).await
}

async fn assign(
    app: App,
    name: String,
    request: Request,
    action: Action,
    of: fn(&crate::Parts) -> Projects,
) -> Result<Json<Value>, ApiError> {
    let actor = Actor::of(request.extensions());
    let Assignment { projects } = app.bodies().json(request).await?;
    let (thing, detail) = (name.clone(), projects.join(", "));
    let assign = move |parts: &crate::Parts| {
        let of = of(parts);
        of.set(&thing, projects)?;
        Ok::<_, ApiError>(of.recorded(&thing)?.unwrap_or_default())
    };
    let assigned = app.blocking(assign).await;
    app.audit().record(&actor, action, &name, &detail, &assigned);
    Ok(Json(json!({ "name": name, "projects": assigned? })))
}
