//! The files of an installed MLflow, from the directory that the server was started with.

use std::path::{Component, Path as FilePath, PathBuf};

use axum::extract::{Path, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Redirect, Response};
use saggar_store::regular_file;

use super::UI_PREFIX;
use crate::app::AppState;
use crate::error::ApiError;
use crate::limits::MLFLOW_UI_FILE_BYTES_MAX;

/// The page, in the directory.
const INDEX_FILE: &str = "index.html";

/// Handles `GET /mlflow`: the page's relative addresses need the slash.
pub(super) async fn redirect() -> Response {
    Redirect::permanent(UI_PREFIX).into_response()
}

/// Handles `GET /mlflow/`: the page.
pub(super) async fn page(State(app): State<AppState>) -> Result<Response, ApiError> {
    let mut response = read_file(&app, INDEX_FILE).await?;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, "no-cache".parse().expect("plain text"));
    headers.insert(CONTENT_SECURITY_POLICY, "frame-ancestors 'none'".parse().expect("plain text"));
    Ok(response)
}

/// Handles `GET /mlflow/static-files/{*path}`: a file of the page.
pub(super) async fn file(State(app): State<AppState>, Path(path): Path<String>) -> Result<Response, ApiError> {
    read_file(&app, &path).await
}

async fn read_file(app: &AppState, path: &str) -> Result<Response, ApiError> {
    let missing = |hint: &str| ApiError::NotFound {
        kind: "file of MLflow's pages",
        name: path.chars().take(80).collect(),
        hint: hint.to_owned(),
    };
    let Some(directory) = app.parts().mlflow_ui.clone() else {
        return Err(missing(
            "start the server with `saggar serve --mlflow-ui DIR`; the page /docs/coming-from/mlflow.html \
             says which directory",
        ));
    };
    let file = path_within(&directory, path).ok_or_else(|| missing("a path has no `..`"))?;
    let read =
        app.run_blocking(move |_| Ok::<_, ApiError>(regular_file::read(&file, MLFLOW_UI_FILE_BYTES_MAX))).await?;
    let bytes = read.map_err(|_| missing("does the directory of --mlflow-ui hold index.html and static?"))?;
    let headers = [(CONTENT_TYPE, media_type(path)), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
    Ok((headers, bytes).into_response())
}

/// Returns the path of a file in a directory, or `None` if it could be outside.
fn path_within(directory: &FilePath, path: &str) -> Option<PathBuf> {
    let is_plain = FilePath::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    (is_plain && !path.is_empty() && !path.contains('\0')).then(|| directory.join(path))
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json" | "map") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("gif") => "image/gif",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("wasm") => "application/wasm",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_in_its_directory() {
        let directory = FilePath::new("/pages");
        assert_eq!(path_within(directory, "static/js/main.js"), Some(PathBuf::from("/pages/static/js/main.js")));
        for outside in ["../secret", "static/../../secret", "/etc/passwd", "", ".", "a\0b"] {
            assert_eq!(path_within(directory, outside), None, "{outside:?}");
        }
    }
}
