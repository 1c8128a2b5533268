//! An operation of the document: a method of a path, with its parameters, bodies and responses.

use std::borrow::Cow;

use axum::http::Method;
use indexmap::IndexMap;
use saggar_rest::deprecations::{DEPRECATIONS, DeprecatedPart, InterfaceDeprecation};
use saggar_serving::limits::DEADLINE_MAX;
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::document::{
    ContentMap, MediaTypeObject, OperationObject, ParameterObject, PathItem, RequestBodyObject, ResponseObject,
    ResponseOrReference,
};
use super::operation_response::{JSON, MediaContent, OperationResponse, SchemaSource};
use super::schema_catalog::SchemaCatalog;

/// A group of operations, under one tag of the document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationArea {
    /// The tag.
    pub(crate) tag: &'static str,
    /// Returns the operations.
    pub(crate) operations: fn() -> Vec<OpenApiOperation>,
}

/// A method of a path.
pub(crate) struct OpenApiOperation {
    pub(super) method: Method,
    pub(crate) path: Cow<'static, str>,
    summary: Cow<'static, str>,
    description: Option<&'static str>,
    parameters: Vec<OperationParameter>,
    body: Vec<MediaContent>,
    /// The responses that the type of the handler does not describe.
    pub(super) responses: Vec<OperationResponse>,
    /// The statuses of error responses.
    errors: &'static [u16],
}

/// A parameter of the query or a header. All are optional.
struct OperationParameter {
    location: &'static str,
    name: &'static str,
    schema: ParameterType,
}

/// The values of a parameter.
pub(crate) enum ParameterType {
    /// Any text.
    Text,
    /// Text with this description.
    Described(&'static str),
    /// Text that matches this regular expression.
    Pattern(&'static str),
    /// A whole number.
    Integer {
        /// The smallest.
        min: u64,
    },
    /// The milliseconds that a prediction may take.
    Deadline,
}

impl OpenApiOperation {
    fn new(method: Method, path: Cow<'static, str>, summary: Cow<'static, str>) -> OpenApiOperation {
        OpenApiOperation {
            method,
            path,
            summary,
            description: None,
            parameters: Vec::new(),
            body: Vec::new(),
            responses: Vec::new(),
            errors: &[],
        }
    }

    pub(crate) fn get(path: impl Into<Cow<'static, str>>, summary: impl Into<Cow<'static, str>>) -> OpenApiOperation {
        OpenApiOperation::new(Method::GET, path.into(), summary.into())
    }

    pub(crate) fn post(path: impl Into<Cow<'static, str>>, summary: impl Into<Cow<'static, str>>) -> OpenApiOperation {
        OpenApiOperation::new(Method::POST, path.into(), summary.into())
    }

    pub(crate) fn put(path: &'static str, summary: &'static str) -> OpenApiOperation {
        OpenApiOperation::new(Method::PUT, path.into(), summary.into())
    }

    pub(crate) fn delete(path: &'static str, summary: &'static str) -> OpenApiOperation {
        OpenApiOperation::new(Method::DELETE, path.into(), summary.into())
    }

    /// Creates an operation of a path that a model declares.
    pub(crate) fn of_model(method: Method, path: String, summary: String) -> OpenApiOperation {
        OpenApiOperation::new(method, path.into(), summary.into())
    }

    pub(crate) fn patch(path: &'static str, summary: &'static str) -> OpenApiOperation {
        OpenApiOperation::new(Method::PATCH, path.into(), summary.into())
    }

    /// Adds a text that explains the operation further.
    pub(crate) fn with_description(mut self, description: &'static str) -> OpenApiOperation {
        self.description = Some(description);
        self
    }

    /// Adds a parameter of the query.
    pub(crate) fn with_query(self, name: &'static str, schema: ParameterType) -> OpenApiOperation {
        self.with_parameter("query", name, schema)
    }

    /// Adds a header.
    pub(crate) fn with_header(self, name: &'static str, schema: ParameterType) -> OpenApiOperation {
        self.with_parameter("header", name, schema)
    }

    fn with_parameter(mut self, location: &'static str, name: &'static str, schema: ParameterType) -> OpenApiOperation {
        self.parameters.push(OperationParameter { location, name, schema });
        self
    }

    /// Adds the header that limits the time of a prediction.
    pub(crate) fn with_deadline(self) -> OpenApiOperation {
        self.with_header("X-Saggar-Deadline-Ms", ParameterType::Deadline)
    }

    /// Adds a JSON body of type `T`.
    pub(crate) fn with_body<T: JsonSchema>(self) -> OpenApiOperation {
        self.with_body_content(JSON, SchemaSource::Type(SchemaCatalog::request_schema::<T>))
    }

    /// Adds a form with the fields of `T`.
    pub(crate) fn with_form<T: JsonSchema>(self) -> OpenApiOperation {
        self.with_body_content("multipart/form-data", SchemaSource::Type(SchemaCatalog::request_schema::<T>))
    }

    /// Adds a body of bytes.
    pub(crate) fn with_binary_body(self) -> OpenApiOperation {
        self.with_body_content("application/octet-stream", SchemaSource::Binary)
    }

    /// Adds the bodies that a prediction accepts.
    pub(crate) fn with_prediction_body(self) -> OpenApiOperation {
        let images = ["image/png", "image/jpeg", "image/webp"];
        let operation = self.with_body_content(JSON, SchemaSource::Anything);
        images
            .into_iter()
            .fold(operation, |operation, image| operation.with_body_content(image, SchemaSource::Binary))
            .with_binary_body()
    }

    /// Adds a body of another media type.
    pub(crate) fn with_body_content(mut self, media_type: &'static str, schema: SchemaSource) -> OpenApiOperation {
        self.body.push((media_type, schema));
        self
    }

    /// Adds the responses that the type of a handler describes, for a path that is not in the route table.
    pub(crate) fn with_responses(mut self, responses: Vec<OperationResponse>) -> OpenApiOperation {
        self.responses.extend(responses);
        self
    }

    /// Adds a JSON response of type `T`.
    pub(crate) fn with_response<T: JsonSchema>(self, status: u16) -> OpenApiOperation {
        self.with_content(status, JSON, SchemaSource::Type(SchemaCatalog::response_schema::<T>))
    }

    /// Adds the responses of a prediction.
    pub(crate) fn with_prediction_response(self) -> OpenApiOperation {
        self.with_content(200, JSON, SchemaSource::AnyObject)
            .with_content(200, "text/event-stream", SchemaSource::Text)
            .with_content(200, "image/png", SchemaSource::Binary)
            .with_content(200, "image/jpeg", SchemaSource::Binary)
    }

    /// Adds a response of another media type.
    pub(crate) fn with_content(
        mut self,
        status: u16,
        media_type: &'static str,
        schema: SchemaSource,
    ) -> OpenApiOperation {
        self.responses.push(OperationResponse::new(status, media_type, schema));
        self
    }

    /// Adds a response without a body.
    pub(crate) fn with_empty_response(mut self, status: u16) -> OpenApiOperation {
        self.responses.push(OperationResponse::empty(status));
        self
    }

    /// Sets the statuses of error responses. A response with one of these statuses that is described takes precedence.
    pub(crate) fn with_errors(mut self, errors: &'static [u16]) -> OpenApiOperation {
        self.errors = errors;
        self
    }

    /// Returns whether it declares a document that the type of its handler does not describe.
    #[cfg(test)]
    pub(crate) fn declares_document(&self) -> bool {
        let contents = self.responses.iter().filter_map(|response| response.content.as_ref());
        contents.into_iter().any(|(_, schema)| matches!(schema, SchemaSource::Type(_)))
    }

    /// Adds the operation, and the parameters of its path, to the paths of a document.
    pub(super) fn insert_into(
        self,
        paths: &mut IndexMap<String, PathItem>,
        tag: &'static str,
        catalog: &mut SchemaCatalog,
    ) {
        let item = paths.entry(self.path.clone().into_owned()).or_insert_with(|| path_item(&self.path));
        item.operations.insert(self.method.as_str().to_ascii_lowercase(), self.into_object(tag, catalog));
    }

    fn into_object(self, tag: &'static str, catalog: &mut SchemaCatalog) -> OperationObject {
        let id: String = self.path.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let method = self.method.as_str().to_ascii_lowercase();
        let body = (!self.body.is_empty()).then(|| {
            let content = self.body.iter().map(|content| media_type(content, catalog)).collect();
            RequestBodyObject { required: true, content }
        });
        let is_deprecated = |part| {
            let is_of = |it: &&InterfaceDeprecation| it.method == self.method.as_str() && it.path == self.path;
            DEPRECATIONS.iter().filter(is_of).any(|it| it.part == part)
        };
        let deprecated = is_deprecated(DeprecatedPart::Operation);
        let parameter = |it: &OperationParameter| it.to_object(is_deprecated(DeprecatedPart::Parameter(it.name)));
        let parameters = self.parameters.iter().map(parameter).collect();
        OperationObject {
            operation_id: format!("{method}_{}", id.trim_start_matches('_')),
            tags: [tag],
            summary: self.summary,
            description: self.description,
            deprecated,
            parameters,
            request_body: body,
            responses: responses(&self.responses, self.errors, catalog),
        }
    }
}

/// Returns the responses by status.
fn responses(
    described: &[OperationResponse],
    errors: &[u16],
    catalog: &mut SchemaCatalog,
) -> IndexMap<String, ResponseOrReference> {
    let mut by_status: IndexMap<String, ContentMap> = IndexMap::new();
    for OperationResponse { status, content } in described {
        let contents = by_status.entry(status.to_string()).or_default();
        contents.extend(content.iter().map(|content| media_type(content, catalog)));
    }
    let response = |content| ResponseOrReference::Response(ResponseObject { description: "The answer.", content });
    let mut responses: IndexMap<_, _> =
        by_status.into_iter().map(|(status, content)| (status, response(content))).collect();
    for status in errors {
        let reference = ResponseOrReference::Reference { reference: "#/components/responses/Error" };
        responses.entry(status.to_string()).or_insert(reference);
    }
    responses
}

impl OperationParameter {
    fn to_object(&self, deprecated: bool) -> ParameterObject {
        let schema = match self.schema {
            ParameterType::Text => json!({ "type": "string" }),
            ParameterType::Described(description) => json!({ "type": "string", "description": description }),
            ParameterType::Pattern(pattern) => json!({ "type": "string", "pattern": pattern }),
            ParameterType::Integer { min } => json!({ "type": "integer", "minimum": min }),
            ParameterType::Deadline => {
                let maximum = u64::try_from(DEADLINE_MAX.as_millis()).unwrap_or(u64::MAX);
                json!({ "type": "integer", "minimum": 1, "maximum": maximum })
            }
        };
        ParameterObject { name: self.name.to_owned(), location: self.location, required: false, deprecated, schema }
    }
}

fn media_type((media_type, schema): &MediaContent, catalog: &mut SchemaCatalog) -> (&'static str, MediaTypeObject) {
    let schema = match schema {
        SchemaSource::Text => json!({ "type": "string" }),
        SchemaSource::Binary => json!({ "type": "string", "format": "binary" }),
        SchemaSource::AnyObject => json!({ "type": "object" }),
        SchemaSource::Anything => json!({}),
        SchemaSource::Type(schema) => schema(catalog),
        SchemaSource::Model(name) => json!({ "$ref": format!("#/components/schemas/{name}") }),
    };
    (media_type, MediaTypeObject { schema })
}

/// Returns a path without operations, with its parameters.
fn path_item(path: &str) -> PathItem {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let parameter = |name: &str| {
        let schema = path_parameter_schema(name);
        ParameterObject { name: name.to_owned(), location: "path", required: true, deprecated: false, schema }
    };
    PathItem { parameters: names.map(parameter).collect(), operations: IndexMap::new() }
}

fn path_parameter_schema(name: &str) -> Value {
    match name {
        "version" => json!({ "type": "integer", "minimum": 0, "maximum": i64::MAX }),
        "sha256" => json!({ "type": "string", "pattern": saggar_rest::SHA256_PATTERN }),
        _ => json!({ "type": "string", "minLength": 1 }),
    }
}
