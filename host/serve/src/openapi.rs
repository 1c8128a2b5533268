//! `GET /openapi.json`: describes every route in OpenAPI 3.1, and the inputs and outputs of serving models.
//!
//! Routes are described in the JSON files below, one for each area, in a short form that [`expand`] expands: `{"PATH":
//! {"METHOD": {"summary", "query": {NAME: schema}, "headers": {NAME: schema}, "body": {TYPE: schema}, "answers":
//! {STATUS: {TYPE: schema}}, "errors": [STATUS]}}}`, where a schema can be the name of one under `schemas`. Path
//! parameters are taken from the path. A test checks that the files and the route table match.

mod expand;
mod signature;

use std::sync::OnceLock;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::app::AppState;

/// The areas, each with its tag and file.
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

/// The part of the document that does not depend on models: built once, and only serialized for each request.
struct RouteDocument {
    /// Version, description, servers and tags.
    head: Map<String, Value>,
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
    responses: Value,
}

#[derive(Serialize)]
struct OpenApiDocument<'a> {
    #[serde(flatten)]
    head: &'a Map<String, Value>,
    paths: DocumentMembers<'a>,
    components: DocumentComponents<'a>,
}

#[derive(Serialize)]
struct DocumentComponents<'a> {
    schemas: DocumentMembers<'a>,
    responses: &'a Value,
}

/// The members of an object: first those of routes, then those of models. Their names cannot collide
/// (`/models/NAME/predict` without braces, and `model.NAME.input`).
struct DocumentMembers<'a> {
    of_routes: &'a Map<String, Value>,
    of_models: Vec<(String, Value)>,
}

impl Serialize for DocumentMembers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.of_routes.iter().chain(self.of_models.iter().map(|(name, value)| (name, value))))
    }
}

/// Handles `GET /openapi.json`.
pub(crate) async fn openapi(State(app): State<AppState>) -> Response {
    let (mut paths, mut schemas) = (Vec::new(), Vec::new());
    for model in app.models().list() {
        let Some(serving) = &model.serving else { continue };
        let described = signature::describe_model(&model.name, serving.predictor().signature());
        paths.push(described.path);
        schemas.extend([described.input, described.output]);
    }
    let routes = route_document();
    let document = OpenApiDocument {
        head: &routes.head,
        paths: DocumentMembers { of_routes: &routes.paths, of_models: paths },
        components: DocumentComponents {
            schemas: DocumentMembers { of_routes: &routes.schemas, of_models: schemas },
            responses: &routes.responses,
        },
    };
    Json(document).into_response()
}

fn route_document() -> &'static RouteDocument {
    static ROUTES: OnceLock<RouteDocument> = OnceLock::new();
    ROUTES.get_or_init(|| {
        let (mut paths, mut schemas) = (Map::new(), Map::new());
        for (tag, text) in AREAS {
            let area: Value = serde_json::from_str(text).expect("every file is valid JSON, as a test checks");
            schemas.extend(area["schemas"].as_object().cloned().unwrap_or_default());
            for (path, methods) in area["paths"].as_object().into_iter().flatten() {
                paths.insert(path.clone(), expand::expand_path(path, methods, tag));
            }
        }
        let head = [
            ("openapi", json!("3.1.0")),
            (
                "info",
                json!({
                    "title": "saggar",
                    "version": env!("CARGO_PKG_VERSION"),
                    "description": "Trains and serves machine-learning models that are sandboxed WebAssembly plugins.",
                    "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
                }),
            ),
            ("servers", json!([{ "url": "/" }])),
            ("tags", AREAS.iter().map(|(tag, _)| json!({ "name": tag })).collect()),
        ];
        RouteDocument {
            head: head.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            paths,
            schemas,
            responses: json!({ "Error": expand::error_schema() }),
        }
    })
}
