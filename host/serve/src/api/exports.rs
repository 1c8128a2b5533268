//! `GET /api/v1/datasets/{name}/{version}/export`: a version as a tar archive, read from its columns as the client takes it.

use std::io::{self, Read};

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::stream;
use saggar_store::dataset::ExportedTar;

use crate::app::App;
use crate::error::ApiError;
use crate::limits::OUTPUT_PIECE_BYTES;

/// The archive. A version that is removed meanwhile is answered to its end.
pub(crate) async fn tar(
    State(app): State<App>,
    Path((name, version)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let file = format!("{name}-{version}.tar");
    let open = move |parts: &crate::Parts| {
        let info = parts.datasets.resolve(&format!("{name}/{version}"))?;
        parts.datasets.export(&info.name, info.version)
    };
    let export = app.blocking(open).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/x-tar".to_owned()),
        (header::CONTENT_LENGTH, export.tar_bytes().to_string()),
        // The name is that of a dataset which there is, so it has no quotation mark.
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{file}\"")),
    ];
    Ok((headers, Body::from_stream(stream::try_unfold(export.into_tar(), piece))).into_response())
}

/// The next bytes. Columns are files: reading them may wait for the disk.
async fn piece(mut tar: ExportedTar) -> io::Result<Option<(Bytes, ExportedTar)>> {
    let read = move || {
        let mut bytes = Vec::new();
        Read::take(&mut tar, OUTPUT_PIECE_BYTES).read_to_end(&mut bytes)?;
        Ok(if bytes.is_empty() { None } else { Some((bytes.into(), tar)) })
    };
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
}
