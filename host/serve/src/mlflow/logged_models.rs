//! The search for logged models finds nothing, because jobs publish models. MLflow's client sends it before it lists a
//! folder of artefacts.

use axum::Json;
use axum::extract::{Request, State};
use saggar_rest::mlflow::{LoggedModelListResponse, SearchLoggedModelsRequest};

use crate::app::AppState;
use crate::error::ApiError;
use crate::json_body::JsonBody;

impl JsonBody for SearchLoggedModelsRequest {
    const EXAMPLE: &'static str = r#"{"experiment_ids": ["0"], "filter": "name = 'digits'"}"#;
}

/// Handles `POST /api/2.0/mlflow/logged-models/search`.
pub(super) async fn search(
    State(app): State<AppState>,
    request: Request,
) -> Result<Json<LoggedModelListResponse>, ApiError> {
    let _: SearchLoggedModelsRequest = app.body_reader().read_json(request).await?;
    Ok(Json(LoggedModelListResponse::default()))
}
