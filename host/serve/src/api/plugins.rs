//! `/api/v1/plugins`: WebAssembly components, checked at upload and addressed by their content.

pub(crate) mod resume;

use axum::Json;
use axum::extract::{Request, State};
use bytes::Bytes;
use saggar_store::digest::Digest;
use saggar_store::error::StoreError;
use saggar_store::objects::ObjectStorage;
use serde_json::{Value, json};

use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;
use crate::limits::PLUGIN_BYTES_MAX;
use crate::plugin_inspector::PluginFacts;

/// Handles `POST /api/v1/plugins`.
pub(crate) async fn upload(State(app): State<AppState>, request: Request) -> Result<Json<PluginFacts>, ApiError> {
    let (parts, body) = request.into_parts();
    let body = app.body_reader().read(&parts, body, PLUGIN_BYTES_MAX).await?;
    Ok(Json(store_plugin(&app, body.bytes.clone()).await?))
}

/// Handles `GET /api/v1/plugins`.
pub(crate) async fn list(State(app): State<AppState>, sight: ProjectScope) -> Result<Json<Value>, ApiError> {
    let objects = &app.parts().objects;
    let mut plugins = Vec::new();
    for object in objects.list_flat(FACTS_FOLDER).await? {
        match load_facts(objects, &object.name).await {
            Ok(Some(facts)) => {
                let test = resume::load_resume_test(objects, &facts.digest).await?;
                let mut shown = json!(facts);
                shown["resume_test"] = test.map_or(Value::Null, |test| resume::resume_test_json(&test, &sight));
                plugins.push(shown);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(object = object.name, %error, "plugin left out of the list"),
        }
    }
    Ok(Json(json!({ "plugins": plugins })))
}

/// Returns the facts of an uploaded plugin.
///
/// # Errors
/// Returns `NotFound` if it was not uploaded, and `PluginRefused` if it can no longer run here.
pub(crate) async fn facts(app: &AppState, digest: &Digest) -> Result<PluginFacts, ApiError> {
    let objects = &app.parts().objects;
    if let Some(facts) = load_facts(objects, &facts_object_name(digest)).await? {
        return Ok(facts);
    }
    match objects.get_blob(digest).await {
        Ok(wasm) => store_plugin(app, wasm).await,
        Err(StoreError::NotFound { .. }) => Err(ApiError::NotFound {
            kind: "plugin",
            name: digest.hex(),
            hint: "upload it first: POST /api/v1/plugins".to_owned(),
        }),
        Err(error) => Err(error.into()),
    }
}

/// The folder of the facts, each stored under its plugin's digest.
const FACTS_FOLDER: &str = "plugins";

fn facts_object_name(digest: &Digest) -> String {
    format!("{FACTS_FOLDER}/{digest}.json")
}

/// Checks and stores a component. The bytes are stored before the facts, so that every listed plugin exists.
async fn store_plugin(app: &AppState, wasm: Bytes) -> Result<PluginFacts, ApiError> {
    let bytes = wasm.clone();
    let inspect = move |parts: &crate::AppParts| parts.inspector.inspect(&bytes).map_err(ApiError::PluginRefused);
    let facts = app.run_blocking(inspect).await?;
    let objects = &app.parts().objects;
    // A plugin that is already stored needs no space: a full store must not refuse it.
    if load_facts(objects, &facts_object_name(&facts.digest)).await?.is_none() {
        let bytes = facts.bytes;
        app.run_blocking(move |parts| parts.check_storage_quota(bytes)).await?;
    }
    let digest = objects.put_blob(wasm).await?;
    let text = serde_json::to_vec(&facts).expect("facts are plain data");
    objects.create(&facts_object_name(&digest), text.into()).await?;
    tracing::info!(%digest, trains = facts.trains, predicts = facts.predicts, "plugin kept");
    Ok(facts)
}

/// Reads the facts from an object. Returns `None` if the object does not exist or holds something else.
async fn load_facts(objects: &ObjectStorage, name: &str) -> Result<Option<PluginFacts>, StoreError> {
    match objects.get(name).await {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
