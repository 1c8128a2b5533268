//! `/api/v1/datasets`: versions, and uploads in chunks that can be cut off and gone on with.

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use saggar_store::dataset::DatasetInfo;
use saggar_store::dataset::upload::UploadFile;
use saggar_store::digest::Digest;
use saggar_store::limits::CHUNK_BYTES_MAX;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::error::{ApiError, no_content};

/// The body of `POST /api/v1/datasets`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Announcement {
    name: String,
    files: Vec<UploadFile>,
}

/// `GET /api/v1/datasets`.
pub(crate) async fn list(State(app): State<App>) -> Result<Json<Value>, ApiError> {
    let infos = app.blocking(|parts| parts.datasets.list()).await?;
    Ok(Json(json!({ "datasets": infos.iter().map(dataset).collect::<Vec<Value>>() })))
}

/// `POST /api/v1/datasets`: announces an upload and answers which chunks are missing.
pub(crate) async fn begin(State(app): State<App>, request: Request) -> Result<Json<Value>, ApiError> {
    let Announcement { name, files } = app.bodies().json(request).await?;
    let begun = app.blocking(move |parts| parts.uploads.begin(&name, files)).await?;
    let mut answer = json!({ "upload": begun.id, "missing": begun.missing });
    if let Some(version) = begun.version {
        answer["version"] = json!(version);
    }
    Ok(Json(answer))
}

/// `PUT /api/v1/datasets/{name}/uploads/{id}/chunks/{sha256}`.
pub(crate) async fn chunk(
    State(app): State<App>,
    Path((_, id, sha256)): Path<(String, String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let (id, sha256) = (digest("id", &id)?, digest("sha256", &sha256)?);
    let (parts, body) = request.into_parts();
    let body = app.bodies().read(&parts.headers, body, CHUNK_BYTES_MAX).await?;
    app.blocking(move |parts| parts.uploads.put_chunk(&id, &sha256, &body.bytes)).await?;
    Ok(no_content())
}

/// `POST /api/v1/datasets/{name}/uploads/{id}/commit`.
pub(crate) async fn commit(
    State(app): State<App>,
    Path((name, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let id = digest("id", &id)?;
    let now_ms = app.now_ms();
    let commit = move |parts: &crate::Parts| {
        let info = parts.uploads.commit(&name, &id, now_ms)?;
        // One number over all of them: it is only read where a dataset was added.
        let bytes: u64 = parts.datasets.list()?.iter().map(|info| info.bytes).sum();
        parts.metrics.families.dataset_bytes.with_label_values::<&str>(&[]).set(bytes as f64);
        Ok::<_, saggar_store::DatasetError>(info)
    };
    let info = app.blocking(commit).await?;
    tracing::info!(dataset = info.name, version = info.version, items = info.items, "dataset taken in");
    Ok(Json(dataset(&info)).into_response())
}

fn digest(name: &'static str, text: &str) -> Result<Digest, ApiError> {
    let expected = "64 lower-case hexadecimal digits";
    text.parse().map_err(|_| ApiError::Parameter { name, expected, got: text.chars().take(80).collect() })
}

fn dataset(info: &DatasetInfo) -> Value {
    let field = |field: &saggar_store::Field| {
        json!({
            "name": field.name,
            "dtype": field.item.dtype.name(),
            "shape": field.item.shape.dims(),
            "classes": field.classes,
        })
    };
    let split = |split: &saggar_store::Split| (split.name.clone(), json!(split.items.end - split.items.start));
    json!({
        "name": info.name,
        "version": info.version,
        "digest": info.digest,
        "items": info.items,
        "bytes": info.bytes,
        "fields": info.fields.iter().map(field).collect::<Vec<Value>>(),
        "splits": info.splits.iter().map(split).collect::<Map<String, Value>>(),
        "created_ms": info.created_ms,
    })
}
