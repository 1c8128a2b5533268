//! `POST /api/v1/plugins/fetch`: fetches a component of another server, once, by its URL and SHA-256.

use axum::Json;
use axum::extract::{Request, State};
use bytes::Bytes;
use saggar_fetch::FetchRequest;
use saggar_rest::plugins::{FetchPluginRequest, PluginDocument};
use saggar_store::StoreError;
use saggar_store::digest::Digest;

use crate::api::query::parse_digest;
use crate::app::AppState;
use crate::error::ApiError;
use crate::json_body::JsonBody;
use crate::limits::PLUGIN_BYTES_MAX;

impl JsonBody for FetchPluginRequest {
    const EXAMPLE: &'static str = r#"{"url": "https://example.com/plugins/net.wasm", "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}"#;
}

/// Handles `POST /api/v1/plugins/fetch`. A plugin that is stored already is not fetched again.
pub(crate) async fn fetch(State(app): State<AppState>, request: Request) -> Result<Json<PluginDocument>, ApiError> {
    let FetchPluginRequest { url, sha256 } = app.body_reader().read_json(request).await?;
    let sha256 = parse_digest("sha256", &sha256.to_ascii_lowercase())?;
    let facts = match super::facts(&app, &sha256).await {
        Ok(facts) => facts,
        Err(ApiError::NotFound { .. }) => {
            let fetch = move |parts: &crate::AppParts| fetch_component(parts, &url, &sha256);
            super::store_plugin(&app, app.run_blocking(fetch).await?).await?
        }
        Err(error) => return Err(error),
    };
    Ok(Json(app.run_blocking(move |_| Ok::<_, ApiError>(facts.document())).await?))
}

/// Fetches the component. Blocks.
fn fetch_component(parts: &crate::AppParts, url: &str, sha256: &Digest) -> Result<Bytes, ApiError> {
    let request = FetchRequest { url, sha256, bytes_max: PLUGIN_BYTES_MAX as u64 };
    let file = parts.fetcher.fetch(&request, &parts.home.fetched())?;
    let read = std::fs::read(file.path()).map_err(StoreError::io(file.path()))?;
    Ok(read.into())
}
