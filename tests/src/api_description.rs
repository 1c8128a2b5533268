//! The shape of the REST interface, derived from its OpenAPI document: what clients send and what they read. A recorded
//! description is compared with the present one, so that no change takes something from existing clients unnoticed.

mod changes;
mod shape;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

pub use changes::{InterfaceChanges, compare};
use shape::collect_fields;

/// The place of schemas that others refer to.
const SCHEMAS: &str = "#/components/schemas/";

/// What one operation or parameter accepts, or what a response contains.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldShape {
    /// JSON types, or `#NAME` for a schema with a name.
    pub types: BTreeSet<String>,
    /// Whether it is always there.
    pub required: bool,
    /// The possible values, if they are listed.
    pub values: Option<BTreeSet<String>>,
}

/// The fields of a document by path; the document itself has the empty path.
pub type DocumentShape = BTreeMap<String, FieldShape>;

/// An operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperationShape {
    /// Parameters by place and name, such as `query limit`.
    pub parameters: DocumentShape,
    /// Whether a body is required; `None` if the operation has no body.
    pub body_required: Option<bool>,
    /// Bodies by content type.
    pub request: BTreeMap<String, DocumentShape>,
    /// Successful responses by status and content type, such as `200 application/json`. A response without content has
    /// an empty content type.
    pub responses: BTreeMap<String, DocumentShape>,
}

/// The interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InterfaceShape {
    /// Operations by method and path, such as `GET /api/v1/jobs`.
    pub operations: BTreeMap<String, OperationShape>,
    /// Named schemas that requests contain.
    pub request_schemas: BTreeMap<String, DocumentShape>,
    /// Named schemas that responses contain.
    pub response_schemas: BTreeMap<String, DocumentShape>,
}

impl InterfaceShape {
    /// Returns the operations of an OpenAPI document whose path begins with `prefix`, and the schemas that they use.
    pub fn from_openapi(document: &Value, prefix: &str) -> InterfaceShape {
        let mut shape = InterfaceShape::default();
        for (path, item) in members(&document["paths"]).filter(|(path, _)| path.starts_with(prefix)) {
            for (method, operation) in members(item).filter(|(method, _)| *method != "parameters") {
                let name = format!("{} {path}", method.to_uppercase());
                shape.operations.insert(name, operation_shape(&item["parameters"], operation));
            }
        }
        let schemas = &document["components"]["schemas"];
        let requests = shape.operations.values().flat_map(|it| it.request.values().chain([&it.parameters]));
        let request_schemas = reachable_schemas(schemas, requests);
        let responses = shape.operations.values().flat_map(|it| it.responses.values());
        let response_schemas = reachable_schemas(schemas, responses);
        InterfaceShape { request_schemas, response_schemas, ..shape }
    }

    /// Returns the description as JSON, for a file.
    pub fn to_json(&self) -> Value {
        let documents = |all: &BTreeMap<String, DocumentShape>| {
            Value::Object(
                all.iter().map(|(name, document)| (name.clone(), shape::document_to_json(document))).collect(),
            )
        };
        let operation = |it: &OperationShape| {
            let mut members = Map::new();
            members.insert("parameters".to_owned(), shape::document_to_json(&it.parameters));
            if let Some(required) = it.body_required {
                members.insert("body_required".to_owned(), required.into());
                members.insert("request".to_owned(), documents(&it.request));
            }
            members.insert("responses".to_owned(), documents(&it.responses));
            Value::Object(members)
        };
        let operations: Map<String, Value> =
            self.operations.iter().map(|(name, it)| (name.clone(), operation(it))).collect();
        json!({
            "operations": operations,
            "request_schemas": documents(&self.request_schemas),
            "response_schemas": documents(&self.response_schemas),
        })
    }

    /// Reads a description that [`InterfaceShape::to_json`] wrote.
    pub fn from_json(text: &Value) -> InterfaceShape {
        let documents = |all: &Value| {
            members(all).map(|(name, document)| (name.to_owned(), shape::document_from_json(document))).collect()
        };
        let operation = |it: &Value| OperationShape {
            parameters: shape::document_from_json(&it["parameters"]),
            body_required: it["body_required"].as_bool(),
            request: documents(&it["request"]),
            responses: documents(&it["responses"]),
        };
        InterfaceShape {
            operations: members(&text["operations"]).map(|(name, it)| (name.to_owned(), operation(it))).collect(),
            request_schemas: documents(&text["request_schemas"]),
            response_schemas: documents(&text["response_schemas"]),
        }
    }
}

/// Returns the members of an object; none of another value.
fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn operation_shape(of_path: &Value, operation: &Value) -> OperationShape {
    let mut shape = OperationShape::default();
    let lists = [of_path, &operation["parameters"]];
    for parameter in lists.into_iter().filter_map(Value::as_array).flatten() {
        let text = |key: &str| parameter[key].as_str().unwrap_or_default();
        let name = format!("{} {}", text("in"), text("name"));
        let mut fields = DocumentShape::new();
        collect_fields(&parameter["schema"], "", parameter["required"] == true, &mut fields);
        shape.parameters.extend(fields.into_iter().map(|(path, field)| (format!("{name}{path}"), field)));
    }
    let body = &operation["requestBody"];
    if body.is_object() {
        shape.body_required = Some(body["required"] == true);
        shape.request = content_shapes(&body["content"]).collect();
    }
    for (status, response) in members(&operation["responses"]).filter(|(status, _)| status.starts_with('2')) {
        let described = content_shapes(&response["content"]);
        shape.responses.extend(described.map(|(content, document)| (format!("{status} {content}"), document)));
        if !response["content"].is_object() {
            shape.responses.insert(format!("{status} "), DocumentShape::new());
        }
    }
    shape
}

fn content_shapes(content: &Value) -> impl Iterator<Item = (String, DocumentShape)> {
    members(content).map(|(content_type, media)| {
        let mut fields = DocumentShape::new();
        collect_fields(&media["schema"], "", true, &mut fields);
        (content_type.to_owned(), fields)
    })
}

/// Returns the named schemas that these documents refer to, directly or through others.
fn reachable_schemas<'a>(
    schemas: &Value,
    documents: impl Iterator<Item = &'a DocumentShape>,
) -> BTreeMap<String, DocumentShape> {
    let names = |document: &DocumentShape| -> Vec<String> {
        document
            .values()
            .flat_map(|field| &field.types)
            .filter_map(|it| it.strip_prefix('#'))
            .map(str::to_owned)
            .collect()
    };
    let mut waiting: Vec<String> = documents.flat_map(names).collect();
    let mut found = BTreeMap::new();
    while let Some(name) = waiting.pop() {
        if found.contains_key(&name) {
            continue;
        }
        let mut fields = DocumentShape::new();
        collect_fields(&schemas[&name], "", true, &mut fields);
        waiting.extend(names(&fields));
        found.insert(name, fields);
    }
    found
}
