//! `GET /openapi.json`: describes every route in OpenAPI 3.1, and the inputs and outputs of serving models.
//!
//! Each protocol lists its operations, in areas. The schemas of their bodies are derived from the types of
//! `saggar_rest` that handlers parse and serialize, and their descriptions are the doc comments of these types. A test
//! checks that the operations and the route table match.

pub(crate) mod described_response;
mod document;
pub(crate) mod operation;
pub(crate) mod operation_response;
pub(crate) mod schema_catalog;
mod signature;

use std::sync::OnceLock;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use indexmap::IndexMap;
use saggar_rest::deprecations::{DEPRECATIONS, DeprecatedPart};
use saggar_rest::errors::ErrorDocument;
use serde_json::{Value, json};

use self::described_response::HandlerResponses;
use self::document::{
    ComponentsObject, DocumentMembers, InfoObject, LicenseObject, MediaTypeObject, OpenApiDocument, PathItem,
    ResponseObject, ServerObject, TagObject,
};
use self::operation::{OpenApiOperation, OperationArea};
use self::operation_response::JSON;
use self::schema_catalog::SchemaCatalog;
use crate::app::AppState;

/// The part of the document that does not depend on models: built once, and only serialized for each request.
struct RouteDocument {
    tags: Vec<TagObject>,
    paths: IndexMap<String, PathItem>,
    schemas: IndexMap<String, Value>,
    responses: IndexMap<&'static str, ResponseObject>,
}

/// Handles `GET /openapi.json`.
pub(crate) async fn openapi(State(app): State<AppState>) -> Response {
    let (mut paths, mut schemas) = (IndexMap::new(), IndexMap::new());
    for model in app.models().list() {
        let Some(serving) = &model.serving else { continue };
        let described = signature::describe_model(&model.name, serving.predictor().signature());
        paths.extend(described.paths);
        schemas.extend([described.input, described.output]);
    }
    let routes = route_document(app.operation_areas(), app.handler_responses());
    let document = OpenApiDocument {
        openapi: "3.1.0",
        info: InfoObject {
            title: "saggar",
            version: env!("CARGO_PKG_VERSION"),
            description: "Trains and serves machine-learning models that are sandboxed WebAssembly plugins.",
            license: LicenseObject { name: "MIT OR Apache-2.0", identifier: "MIT OR Apache-2.0" },
        },
        servers: [ServerObject { url: "/" }],
        tags: &routes.tags,
        paths: DocumentMembers { of_routes: &routes.paths, of_models: paths },
        components: ComponentsObject {
            schemas: DocumentMembers { of_routes: &routes.schemas, of_models: schemas },
            responses: &routes.responses,
        },
    };
    Json(document).into_response()
}

/// Returns the part of the document that does not depend on models. The areas and handlers are those of the program, so
/// that it is built once.
fn route_document(areas: &[OperationArea], handlers: &HandlerResponses) -> &'static RouteDocument {
    static ROUTES: OnceLock<RouteDocument> = OnceLock::new();
    ROUTES.get_or_init(|| {
        let (mut paths, mut catalog) = (IndexMap::new(), SchemaCatalog::new());
        for OperationArea { tag, operations } in areas {
            for operation in operations() {
                add_handler_responses(operation, handlers).insert_into(&mut paths, tag, &mut catalog);
            }
        }
        let schema = catalog.response_schema::<ErrorDocument>();
        let content = [(JSON, MediaTypeObject { schema })].into();
        RouteDocument {
            tags: areas.iter().map(|area| TagObject { name: area.tag }).collect(),
            paths,
            schemas: with_deprecated_members(catalog.into_schemas()),
            responses: [("Error", ResponseObject { description: "An error.", content })].into(),
        }
    })
}

/// Describes the deprecated members of the schemas.
fn with_deprecated_members(mut schemas: IndexMap<String, Value>) -> IndexMap<String, Value> {
    for deprecation in DEPRECATIONS {
        if let DeprecatedPart::Member { name, schema } = deprecation.part
            && let Some(Value::Object(schema)) = schemas.get_mut(schema)
            && let Value::Object(members) = schema.entry("properties").or_insert_with(|| json!({}))
        {
            let member = members.entry(name).or_insert_with(|| json!({}));
            member["deprecated"] = true.into();
            member["description"] = format!("Deprecated: use {}.", deprecation.replacement).into();
        }
    }
    schemas
}

/// Adds the responses that the type of the operation's handler describes.
fn add_handler_responses(mut operation: OpenApiOperation, handlers: &HandlerResponses) -> OpenApiOperation {
    let described = handlers.of(&operation.method, &operation.path);
    debug_assert!(
        described.is_empty() || operation.responses.is_empty(),
        "{} {}: the type of the handler describes its responses",
        operation.method,
        operation.path
    );
    operation.responses.extend(described);
    operation
}
