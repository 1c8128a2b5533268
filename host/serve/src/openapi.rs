//! `GET /openapi.json`: describes every route in OpenAPI 3.1, and the inputs and outputs of serving models.
//!
//! Each protocol lists its operations, in areas. The schemas of their bodies are derived from the types of
//! `saggar_rest` that handlers parse and serialize, and their descriptions are the doc comments of these types. A test
//! checks that the operations and the route table match.

pub(crate) mod operation;
mod schema_catalog;
mod signature;

use std::sync::OnceLock;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use saggar_rest::errors::ErrorDocument;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use self::operation::OperationArea;
use self::schema_catalog::SchemaCatalog;
use crate::app::AppState;

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
        paths.extend(described.paths);
        schemas.extend([described.input, described.output]);
    }
    let routes = route_document(app.operation_areas());
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

/// Returns the part of the document that does not depend on models. The areas are those of the program, so that it is
/// built once.
fn route_document(areas: &[OperationArea]) -> &'static RouteDocument {
    static ROUTES: OnceLock<RouteDocument> = OnceLock::new();
    ROUTES.get_or_init(|| {
        let (mut paths, mut catalog) = (Map::new(), SchemaCatalog::new());
        for OperationArea { tag, operations } in areas {
            operations().into_iter().for_each(|operation| operation.insert_into(&mut paths, tag, &mut catalog));
        }
        let error = json!({
            "description": "An error.",
            "content": { "application/json": { "schema": catalog.response_schema::<ErrorDocument>() } },
        });
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
            ("tags", areas.iter().map(|area| json!({ "name": area.tag })).collect()),
        ];
        RouteDocument {
            head: head.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            paths,
            schemas: catalog.into_schemas(),
            responses: json!({ "Error": error }),
        }
    })
}
