//! `GET /openapi.json`: every route, in OpenAPI 3.1, and what the models that serve take and give.
//!
//! Routes are described in the JSON files below, one an area, in a short form that [`expand`] writes out:
//! `{"PATH": {"METHOD": {"summary", "query": {NAME: schema}, "headers": {NAME: schema}, "body": {TYPE: schema},
//! "answers": {STATUS: {TYPE: schema}}, "errors": [STATUS]}}}`, where a schema may be the name of one under `schemas`. Path
//! parameters come from the path. A test holds the files to the route table, both ways.

mod expand;
mod signature;

use std::sync::OnceLock;

use axum::Json;
use axum::extract::State;
use serde_json::{Map, Value, json};

use crate::app::App;

/// The areas: what a group of routes is called, and its file.
const AREAS: &[(&str, &str)] = &[
    ("predict", include_str!("openapi/predict.json")),
    ("predictions", include_str!("openapi/predictions.json")),
    ("tensorflow-serving", include_str!("openapi/tfs.json")),
    ("open-inference-protocol", include_str!("openapi/oip.json")),
    ("models", include_str!("openapi/models.json")),
    ("jobs", include_str!("openapi/jobs.json")),
    ("datasets", include_str!("openapi/datasets.json")),
    ("server", include_str!("openapi/server.json")),
];

/// `GET /openapi.json`.
pub(crate) async fn openapi(State(app): State<App>) -> Json<Value> {
    let mut document = document().clone();
    for model in app.models().list() {
        let Some(serving) = &model.serving else { continue };
        let described = signature::describe(&model.name, serving.predictor().signature());
        document["components"]["schemas"][&described.input.0] = described.input.1;
        document["components"]["schemas"][&described.output.0] = described.output.1;
        document["paths"][&described.path.0] = described.path.1;
    }
    Json(document)
}

/// What does not depend on the models.
fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let (mut paths, mut schemas) = (Map::new(), Map::new());
        for (tag, text) in AREAS {
            let area: Value = serde_json::from_str(text).expect("a test reads every file");
            schemas.extend(area["schemas"].as_object().cloned().unwrap_or_default());
            for (path, methods) in area["paths"].as_object().into_iter().flatten() {
                paths.insert(path.clone(), expand::path(path, methods, tag));
            }
        }
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "saggar",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "Trains and serves machine-learning models that are sandboxed WebAssembly plugins.",
                "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
            },
            "servers": [{ "url": "/" }],
            "tags": AREAS.iter().map(|(tag, _)| json!({ "name": tag })).collect::<Vec<Value>>(),
            "paths": paths,
            "components": { "schemas": schemas, "responses": { "Error": expand::error() } },
        })
    })
}
