//! `/api/v1/plugins`: WebAssembly components, checked at upload and addressed by their content. The reference plugins are
//! listed too, and stored when a job first uses one.

pub(crate) mod fetch;
pub(crate) mod resume;

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Request, State};
use bytes::Bytes;
use saggar_reference_plugins::{reference_plugin, reference_plugins};
use saggar_rest::plugins::{ListedPluginDocument, PluginDocument, PluginListDocument, ResumeTestDocument};
use saggar_store::digest::Digest;
use saggar_store::error::StoreError;
use saggar_store::objects::ObjectStorage;

use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;
use crate::limits::PLUGIN_BYTES_MAX;
use crate::plugin_inspector::PluginFacts;

/// Handles `POST /api/v1/plugins`.
pub(crate) async fn upload(State(app): State<AppState>, request: Request) -> Result<Json<PluginDocument>, ApiError> {
    let (parts, body) = request.into_parts();
    let body = app.body_reader().read(&parts, body, PLUGIN_BYTES_MAX).await?;
    let facts = store_plugin(&app, body.bytes.clone()).await?;
    Ok(Json(app.run_blocking(move |_| Ok::<_, ApiError>(facts.document())).await?))
}

/// Handles `GET /api/v1/plugins`.
pub(crate) async fn list(
    State(app): State<AppState>,
    sight: ProjectScope,
) -> Result<Json<PluginListDocument>, ApiError> {
    let objects = &app.parts().objects;
    let mut stored = Vec::new();
    for object in objects.list_flat(FACTS_FOLDER).await? {
        match load_facts(objects, &object.name).await {
            Ok(Some(facts)) => {
                let test = resume::load_resume_test(objects, &facts.digest).await?;
                let resume_test = test.map(|test| resume::resume_test_document(test, &sight));
                stored.push((facts, resume_test));
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(object = object.name, %error, "plugin left out of the list"),
        }
    }
    // The first comparison with the reference plugins encodes them.
    let plugins = app.run_blocking(move |_| Ok::<_, ApiError>(listed_plugins(stored))).await?;
    Ok(Json(PluginListDocument { plugins }))
}

/// Returns the stored plugins, and then the reference plugins that are not stored. Blocks.
fn listed_plugins(stored: Vec<(PluginFacts, Option<ResumeTestDocument>)>) -> Vec<ListedPluginDocument> {
    let digests: BTreeSet<Digest> = stored.iter().map(|(facts, _)| facts.digest).collect();
    let unused = reference_plugins().iter().filter(|plugin| !digests.contains(plugin.digest()));
    let unused = unused.map(|plugin| (PluginFacts::of_reference(plugin), None));
    let document =
        |(facts, resume_test): (PluginFacts, _)| ListedPluginDocument { plugin: facts.document(), resume_test };
    stored.into_iter().chain(unused).map(document).collect()
}

/// Returns the component of the reference plugin with this digest. Blocks.
fn reference_component(digest: &Digest) -> Option<Bytes> {
    let plugin = reference_plugins().iter().find(|plugin| plugin.digest() == digest)?;
    Some(Bytes::from_static(plugin.component()))
}

/// Returns the digest that a job's `plugin` means: that of a reference plugin if it is the name of one, else the text
/// itself.
pub(crate) async fn digest_of_name(app: &AppState, plugin: &str) -> Result<String, ApiError> {
    match reference_plugin(plugin) {
        None => Ok(plugin.to_owned()),
        Some(plugin) => app.run_blocking(move |_| Ok::<_, ApiError>(plugin.digest().hex())).await,
    }
}

/// Returns the facts of a plugin. A reference plugin is stored if it is not yet.
///
/// # Errors
/// Returns `NotFound` if it was not uploaded and is no reference plugin, and `PluginRefused` if it can no longer run here.
pub(crate) async fn facts(app: &AppState, digest: &Digest) -> Result<PluginFacts, ApiError> {
    let objects = &app.parts().objects;
    if let Some(facts) = load_facts(objects, &facts_object_name(digest)).await? {
        return Ok(facts);
    }
    match objects.get_blob(digest).await {
        Ok(wasm) => store_plugin(app, wasm).await,
        Err(StoreError::NotFound { .. }) => {
            let wanted = *digest;
            match app.run_blocking(move |_| Ok::<_, ApiError>(reference_component(&wanted))).await? {
                Some(wasm) => store_plugin(app, wasm).await,
                None => Err(ApiError::NotFound {
                    kind: "plugin",
                    name: digest.hex(),
                    hint: "upload it first: POST /api/v1/plugins".to_owned(),
                }),
            }
        }
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
    Ok(objects.find(name).await?.and_then(|text| serde_json::from_slice(&text).ok()))
}
