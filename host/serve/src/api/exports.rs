//! `GET /api/v1/datasets/{name}/{version}/export`: a version as a tar archive, read from its columns as the client takes it.

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use saggar_store::AccessAction;

use super::file_stream;
use crate::access::{ProjectScope, resource_access};
use crate::app::AppState;
use crate::error::ApiError;

/// The archive. A version that is removed meanwhile is answered to its end.
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
        // The name is that of a dataset which there is, so it has no quotation mark.
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{file}\"")),
    ];
    let bytes = export.tar_bytes();
    Ok((headers, file_stream::stream_body(export.into_tar(), bytes)).into_response())
}
