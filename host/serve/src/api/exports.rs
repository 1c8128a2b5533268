//! `GET /api/v1/datasets/{name}/{version}/export`: a version as a tar archive, streamed from its columns.

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use saggar_store::AccessAction;

use super::file_stream;
use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;
use crate::resource_access;

/// Returns the archive. If the version is removed meanwhile, the response is still completed.
pub(crate) async fn tar(
    State(app): State<AppState>,
    Path((name, version)): Path<(String, String)>,
    sight: ProjectScope,
) -> Result<Response, ApiError> {
    let file = format!("{name}-{version}.tar");
    let open = move |parts: &crate::AppParts| {
        let reference = format!("{name}/{version}");
        let info = resource_access::find_dataset(parts, sight.rights(), AccessAction::ReadDataset, &reference)?;
        Ok::<_, ApiError>(parts.datasets.export(&info.name, info.version)?)
    };
    let export = app.run_blocking(open).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/x-tar".to_owned()),
        (header::CONTENT_LENGTH, export.tar_bytes().to_string()),
        // An existing dataset's name contains no quotation mark.
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{file}\"")),
    ];
    let bytes = export.tar_bytes();
    Ok((headers, file_stream::stream_body(export.into_tar(), bytes)).into_response())
}
