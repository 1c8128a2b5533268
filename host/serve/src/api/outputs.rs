//! `GET /api/v1/jobs/{job}/output`: the files that a job wrote, listed and one by one.

use std::fs::File;
use std::io::{self, Read};

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::stream;
use saggar_store::OutputFile;
use serde_json::{Value, json};

use crate::access::SeenJob;
use crate::app::App;
use crate::error::ApiError;
use crate::limits::{OUTPUT_PIECE_BYTES, OUTPUTS_NAMED_MAX};

/// `GET /api/v1/jobs/{job}/output`.
pub(crate) async fn list(State(app): State<App>, SeenJob(job): SeenJob) -> Result<Json<Value>, ApiError> {
    let files = app.jobs().outputs(&job.id).await?;
    let file = |file: &OutputFile| json!({ "path": file.path, "bytes": file.bytes });
    Ok(Json(json!({ "files": files.iter().map(file).collect::<Vec<Value>>() })))
}

/// `GET /api/v1/jobs/{job}/output/{path}`: the file as it was when the answer began.
pub(crate) async fn one(
    State(app): State<App>,
    SeenJob(job): SeenJob,
    Path((_, path)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let Some((file, bytes)) = app.jobs().output(&job.id, &path).await? else {
        let files = app.jobs().outputs(&job.id).await?;
        let name = path.chars().take(200).collect();
        return Err(ApiError::NotFound { kind: "output", name, hint: there_is(&job.name, &files) });
    };
    let headers = [
        (header::CONTENT_TYPE, content_type(&path).to_owned()),
        (header::CONTENT_LENGTH, bytes.to_string()),
        // What a plugin wrote is never taken for a page of this server.
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    Ok((headers, Body::from_stream(stream::try_unfold((file, bytes), piece))).into_response())
}

/// The next bytes of the file, of which `left` are to come.
async fn piece((file, left): (File, u64)) -> io::Result<Option<(Bytes, (File, u64))>> {
    if left == 0 {
        return Ok(None);
    }
    let read = move || {
        let mut bytes = Vec::new();
        Read::take(&file, left.min(OUTPUT_PIECE_BYTES)).read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("an output lacks its last {left} bytes")));
        }
        let left = left - bytes.len() as u64;
        Ok(Some((bytes.into(), (file, left))))
    };
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
}

/// `job digits-1 wrote confusion.csv, target-003.png`
fn there_is(job: &str, files: &[OutputFile]) -> String {
    let named: Vec<&str> = files.iter().take(OUTPUTS_NAMED_MAX).map(|file| file.path.as_str()).collect();
    match files.len() - named.len() {
        _ if files.is_empty() => format!("job {job} wrote nothing yet"),
        0 => format!("job {job} wrote {}", named.join(", ")),
        more => format!("job {job} wrote {} and {more} more", named.join(", ")),
    }
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "png" => "image/png",
        "csv" => "text/csv; charset=utf-8",
        "json" => "application/json",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
