//! `GET /api/v1/datasets/{name}/{version}/export`: a version as a tar archive, read from its columns as the client takes it.

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use saggar_store::Effect;

use super::pieces;
use crate::access::{Sight, things};
use crate::app::App;
use crate::error::ApiError;

/// The archive. A version that is removed meanwhile is answered to its end.
pub(crate) async fn tar(
    State(app): State<App>,
    Path((name, version)): Path<(String, String)>,
    sight: Sight,
) -> Result<Response, ApiError> {
    let file = format!("{name}-{version}.tar");
    let open = move |parts: &crate::Parts| {
        let reference = format!("{name}/{version}");
        let info = things::find_dataset(parts, sight.rights(), Effect::ReadDataset, &reference)?;
        Ok::<_, ApiError>(parts.datasets.export(&info.name, info.version)?)
    };
    let export = app.blocking(open).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/x-tar".to_owned()),
        (header::CONTENT_LENGTH, export.tar_bytes().to_string()),
        // The name is that of a dataset which there is, so it has no quotation mark.
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{file}\"")),
    ];
    let bytes = export.tar_bytes();
    Ok((headers, pieces::body(export.into_tar(), bytes)).into_response())
}
