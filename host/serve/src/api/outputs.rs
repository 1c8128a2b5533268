//! `GET /api/v1/jobs/{job}/output`: lists and returns the files that a job wrote.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use saggar_jobs::{JobSpec, PredictionSpec};
use saggar_rest::outputs::{OutputFileDocument, OutputListDocument};
use saggar_store::OutputFile;
use saggar_store::records::JobRecord;

use super::file_stream;
use super::visible_job::VisibleJob;
use crate::app::AppState;
use crate::error::ApiError;
use crate::limits::OUTPUTS_NAMED_MAX;

/// Handles `GET /api/v1/jobs/{job}/output`.
pub(crate) async fn list(
    State(app): State<AppState>,
    VisibleJob(job): VisibleJob,
) -> Result<Json<OutputListDocument>, ApiError> {
    let files = app.jobs().list_outputs(&job.id).await?;
    Ok(Json(OutputListDocument { files: files.into_iter().map(output_document).collect() }))
}

/// Describes a file that a job wrote.
pub(super) fn output_document(file: OutputFile) -> OutputFileDocument {
    OutputFileDocument { path: file.path, bytes: file.bytes }
}

/// Handles `GET /api/v1/jobs/{job}/output/{path}`: the file as it was when the response began.
pub(crate) async fn download(
    State(app): State<AppState>,
    VisibleJob(job): VisibleJob,
    Path((_, path)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let Some((file, bytes)) = app.jobs().open_output(&job.id, &path).await? else {
        let files = app.jobs().list_outputs(&job.id).await?;
        let name = path.chars().take(200).collect();
        return Err(ApiError::NotFound { kind: "output", name, hint: known_files_hint(&job.name, &files) });
    };
    let origin = origin_headers(&app, &job).await?;
    let headers = [
        (header::CONTENT_TYPE, content_type(&path).to_owned()),
        (header::CONTENT_LENGTH, bytes.to_string()),
        // A browser must not treat a file that a plugin wrote as a page of this server.
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    Ok((headers, origin, file_stream::stream_body(file, bytes)).into_response())
}

/// Returns the headers that say what computed a job's outputs: the plugin, the device of its last attempt, and for
/// predictions the version of the model and the digest of its weights, if it still exists.
async fn origin_headers(app: &AppState, job: &JobRecord) -> Result<HeaderMap, ApiError> {
    let unreadable = |error: serde_json::Error| ApiError::Internal { cause: format!("the job's spec: {error}") };
    let spec: JobSpec = serde_json::from_str(&job.spec).map_err(unreadable)?;
    let mut headers = HeaderMap::new();
    let mut insert = |name: &'static str, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    };
    insert("x-saggar-plugin", &format!("sha256:{}", spec.plugin));
    if let Some(attempt) = app.jobs().attempts(&job.id).await?.last() {
        insert("x-saggar-device", &attempt.device);
    }
    let Some(PredictionSpec { model, version: Some(version), .. }) = spec.predict else { return Ok(headers) };
    insert("x-saggar-model", &format!("{model}@{version}"));
    let read = move |parts: &crate::AppParts| Ok::<_, ApiError>(parts.model_registry().manifest(&model, version).ok());
    if let Some(manifest) = app.run_blocking(read).await? {
        insert("x-saggar-digest", &format!("sha256:{}", manifest.weights));
    }
    Ok(headers)
}

/// Returns a hint such as `job digits-1 wrote confusion.csv, target-003.png`.
fn known_files_hint(job: &str, files: &[OutputFile]) -> String {
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
