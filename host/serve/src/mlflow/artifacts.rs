//! Artefacts: the outputs of jobs, and what they logged ([`logged_artifacts`]). External runs have none.
//!
//! MLflow's clients read the address of a run's artefacts, `mlflow-artifacts:/jobs/digits-7`, and list and fetch what is
//! below it.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use saggar_rest::mlflow::{ArtifactListResponse, MlflowFile};
use saggar_store::OutputFile;

use super::experiments::required;
use super::logged_artifacts;
use super::runs::{EXTERNAL_ARTIFACTS, FoundRun, JOB_ARTIFACTS, find_run, run_info};
use crate::access::ProjectScope;
use crate::api::file_stream;
use crate::api::query::QueryParameters;
use crate::app::AppState;
use crate::error::ApiError;

/// Handles `GET /api/2.0/mlflow/artifacts/list`: paths are relative to the run's artefacts.
pub(super) async fn list_of_run(
    State(app): State<AppState>,
    sight: ProjectScope,
    parameters: QueryParameters,
) -> Result<Json<ArtifactListResponse>, ApiError> {
    let id = parameters.get("run_id").or_else(|| parameters.get("run_uuid"));
    let found = find_run(&app, &sight, id.map_or_else(|| required(&parameters, "run_id"), Ok)?).await?;
    let folder = parameters.get("path").unwrap_or_default().trim_matches('/').to_owned();
    let mut files = list_folder(&files(&app, &found).await?, &folder);
    for file in files.iter_mut().filter(|_| !folder.is_empty()) {
        file.path = format!("{folder}/{}", file.path);
    }
    Ok(Json(ArtifactListResponse { root_uri: Some(run_info(found.run()).artifact_uri), files }))
}

/// Handles `GET /api/2.0/mlflow-artifacts/artifacts`: paths are relative to the folder.
pub(super) async fn list(
    State(app): State<AppState>,
    sight: ProjectScope,
    parameters: QueryParameters,
) -> Result<Json<ArtifactListResponse>, ApiError> {
    let (found, folder) = find_place(&app, &sight, required(&parameters, "path")?).await?;
    let files = list_folder(&files(&app, &found).await?, &folder);
    Ok(Json(ArtifactListResponse { root_uri: None, files }))
}

/// Handles `GET /api/2.0/mlflow-artifacts/artifacts/{path}`: the file as it was when the response began.
pub(super) async fn download(
    State(app): State<AppState>,
    sight: ProjectScope,
    Path(path): Path<String>,
) -> Result<Response, ApiError> {
    let (found, file) = find_place(&app, &sight, &path).await?;
    artifact_response(&app, &found, &file).await
}

/// Returns an artefact of a run as it is now.
pub(super) async fn artifact_response(app: &AppState, found: &FoundRun, file: &str) -> Result<Response, ApiError> {
    let FoundRun::Job(job, _) = found else { return Err(no_artifact(file)) };
    let (body, bytes) = match app.jobs().open_output(&job.id, file).await? {
        Some((content, bytes)) => (file_stream::stream_body(content, bytes), bytes),
        None => {
            let key = logged_artifacts::key_of_path(file).ok_or_else(|| no_artifact(file))?;
            let read = app.jobs().read_logged_items(&job.id, vec![key]).await?.pop().flatten();
            let content = read.ok_or_else(|| no_artifact(file))?;
            let bytes = content.len() as u64;
            (Body::from(content), bytes)
        }
    };
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, bytes.to_string()),
        // A browser must not treat a file that a plugin wrote as a page of this server.
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    Ok((headers, body).into_response())
}

/// Returns the run of a path, and the path below its artefacts.
async fn find_place(app: &AppState, sight: &ProjectScope, path: &str) -> Result<(FoundRun, String), ApiError> {
    let (kind, rest) = path.trim_matches('/').split_once('/').ok_or_else(|| no_artifact(path))?;
    let (id, below) = rest.split_once('/').unwrap_or((rest, ""));
    let found = find_run(app, sight, id).await?;
    let expected = match found {
        FoundRun::Job(..) => JOB_ARTIFACTS,
        FoundRun::External(_) => EXTERNAL_ARTIFACTS,
    };
    if kind == expected { Ok((found, below.trim_matches('/').to_owned())) } else { Err(no_artifact(path)) }
}

fn no_artifact(path: &str) -> ApiError {
    ApiError::NotFound {
        kind: "artefact",
        name: path.chars().take(200).collect(),
        hint: "mlflow.artifacts.list_artifacts(run_id=...) lists those of a run".to_owned(),
    }
}

/// Returns the outputs of a job and what it logged.
async fn files(app: &AppState, found: &FoundRun) -> Result<Vec<OutputFile>, ApiError> {
    let FoundRun::Job(job, _) = found else { return Ok(Vec::new()) };
    let items = app.jobs().list_logged_items(&job.id).await?;
    // An output of the same path comes later, and replaces the item in its folder.
    let mut files: Vec<OutputFile> = items.iter().map(logged_artifacts::listed_file).collect();
    files.extend(app.jobs().list_outputs(&job.id).await?);
    Ok(files)
}

/// Returns the files and folders in a folder, by name, or the file of this path. Names are relative to the folder.
fn list_folder(outputs: &[OutputFile], folder: &str) -> Vec<MlflowFile> {
    let mut entries: BTreeMap<String, Option<u64>> = BTreeMap::new();
    for file in outputs {
        let below = match folder {
            "" => Some(file.path.as_str()),
            folder => file.path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')),
        };
        match below.map(|below| below.split_once('/').map_or((below, Some(file.bytes)), |(name, _)| (name, None))) {
            Some((name, bytes)) => _ = entries.insert(name.to_owned(), bytes),
            None if file.path == folder => {
                let name = folder.rsplit('/').next().unwrap_or_default();
                entries.insert(name.to_owned(), Some(file.bytes));
            }
            None => {}
        }
    }
    let entry = |(path, file_size): (String, Option<u64>)| MlflowFile { path, is_dir: file_size.is_none(), file_size };
    entries.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_lists_its_files_and_folders() {
        let output = |path: &str, bytes| OutputFile { path: path.to_owned(), bytes };
        let outputs =
            [output("a.csv", 1), output("images/1.png", 2), output("images/big/2.png", 3), output("imagesx", 4)];
        let names = |folder: &str| {
            let entries = list_folder(&outputs, folder).into_iter();
            entries.map(|file| (file.path, file.is_dir, file.file_size)).collect::<Vec<_>>()
        };
        let (csv, x) = (("a.csv".to_owned(), false, Some(1)), ("imagesx".to_owned(), false, Some(4)));
        assert_eq!(names(""), [csv.clone(), ("images".to_owned(), true, None), x]);
        assert_eq!(names("images"), [("1.png".to_owned(), false, Some(2)), ("big".to_owned(), true, None)]);
        assert_eq!(names("a.csv"), [csv]);
        assert!(names("none").is_empty());
    }
}
