//! The job that a route names.

use std::collections::HashMap;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use saggar_store::records::JobRecord;

use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;

/// The job that a route's `{job}` names, if it is visible to the request. It is looked up before the body is read, so
/// that a request cannot distinguish a hidden job from a missing one.
#[derive(Debug)]
pub(crate) struct VisibleJob(pub(crate) JobRecord);

impl FromRequestParts<AppState> for VisibleJob {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<VisibleJob, ApiError> {
        let named = Path::<HashMap<String, String>>::from_request_parts(parts, app).await;
        let Path(named) = named.map_err(|error| ApiError::Parameter {
            name: "job",
            expected: "a job's name or identifier",
            got: error.body_text().chars().take(80).collect(),
        })?;
        let name = named.get("job").map(String::as_str).unwrap_or_default();
        Ok(VisibleJob(ProjectScope::from_extensions(&parts.extensions).find_job(app.jobs(), name).await?))
    }
}
