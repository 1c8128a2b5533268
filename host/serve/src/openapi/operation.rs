//! An operation of the document: a method of a path, with its parameters, bodies and responses.

use std::borrow::Cow;

use saggar_serving::limits::DEADLINE_MAX;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

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
    method: &'static str,
    path: Cow<'static, str>,
    summary: Cow<'static, str>,
    description: Option<&'static str>,
    parameters: Vec<OperationParameter>,
    body: Vec<MediaContent>,
    responses: Vec<(u16, Vec<MediaContent>)>,
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

/// A media type, and the schema of its content.
type MediaContent = (&'static str, SchemaSource);

/// The schema of a body.
pub(crate) enum SchemaSource {
    /// Text.
    Text,
    /// Bytes.
    Binary,
    /// Any object.
    AnyObject,
    /// Any JSON.
    Anything,
    /// The schema of a type of this program.
    Type(fn(&mut SchemaCatalog) -> Value),
    /// The schema of this name, which describes a model.
    Model(String),
}

impl OpenApiOperation {
    fn new(method: &'static str, path: Cow<'static, str>, summary: Cow<'static, str>) -> OpenApiOperation {
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
        OpenApiOperation::new("get", path.into(), summary.into())
    }

    pub(crate) fn post(path: impl Into<Cow<'static, str>>, summary: impl Into<Cow<'static, str>>) -> OpenApiOperation {
        OpenApiOperation::new("post", path.into(), summary.into())
    }

    pub(crate) fn put(path: &'static str, summary: &'static str) -> OpenApiOperation {
        OpenApiOperation::new("put", path.into(), summary.into())
    }

    pub(crate) fn delete(path: &'static str, summary: &'static str) -> OpenApiOperation {
        OpenApiOperation::new("delete", path.into(), summary.into())
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
        let images = ["image/png", "image/jpeg"];
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

    /// Adds a JSON response of type `T`.
    pub(crate) fn with_response<T: JsonSchema>(self, status: u16) -> OpenApiOperation {
        self.with_content(status, JSON, SchemaSource::Type(SchemaCatalog::response_schema::<T>))
    }

    /// Adds the responses of a prediction.
    pub(crate) fn with_prediction_response(self) -> OpenApiOperation {
        self.with_content(200, JSON, SchemaSource::AnyObject)
            .with_content(200, "text/event-stream", SchemaSource::Text)
            .with_content(200, "image/png", SchemaSource::Binary)
    }

    /// Adds a response of another media type.
    pub(crate) fn with_content(
        mut self,
        status: u16,
        media_type: &'static str,
        schema: SchemaSource,
    ) -> OpenApiOperation {
        self.content_of(status).push((media_type, schema));
        self
    }

    /// Adds a response without a body.
    pub(crate) fn with_empty_response(mut self, status: u16) -> OpenApiOperation {
        self.content_of(status);
        self
    }

    fn content_of(&mut self, status: u16) -> &mut Vec<MediaContent> {
        let at = self.responses.iter().position(|(known, _)| *known == status).unwrap_or_else(|| {
            self.responses.push((status, Vec::new()));
            self.responses.len() - 1
        });
        &mut self.responses[at].1
    }

    /// Sets the statuses of error responses. A response with one of these statuses that is described takes precedence.
    pub(crate) fn with_errors(mut self, errors: &'static [u16]) -> OpenApiOperation {
        self.errors = errors;
        self
    }

    /// Adds the operation, and the parameters of its path, to the paths of a document.
    pub(crate) fn insert_into(self, paths: &mut Map<String, Value>, tag: &str, catalog: &mut SchemaCatalog) {
        let item = paths.entry(self.path.as_ref()).or_insert_with(|| path_item(&self.path));
        item[self.method] = self.to_openapi(tag, catalog);
    }

    fn to_openapi(&self, tag: &str, catalog: &mut SchemaCatalog) -> Value {
        let id: String = self.path.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let id = format!("{}_{}", self.method, id.trim_start_matches('_'));
        let mut operation = json!({ "operationId": id, "tags": [tag], "summary": self.summary });
        if let Some(description) = self.description {
            operation["description"] = description.into();
        }
        if !self.parameters.is_empty() {
            operation["parameters"] = self.parameters.iter().map(OperationParameter::to_openapi).collect();
        }
        if !self.body.is_empty() {
            operation["requestBody"] = json!({ "required": true, "content": content(&self.body, catalog) });
        }
        let mut responses = Map::new();
        for (status, contents) in &self.responses {
            let mut response = json!({ "description": "The answer." });
            if !contents.is_empty() {
                response["content"] = content(contents, catalog);
            }
            responses.insert(status.to_string(), response);
        }
        for status in self.errors {
            responses.entry(status.to_string()).or_insert_with(|| json!({ "$ref": "#/components/responses/Error" }));
        }
        operation["responses"] = Value::Object(responses);
        operation
    }
}

/// The media type of JSON.
pub(crate) const JSON: &str = "application/json";

impl OperationParameter {
    fn to_openapi(&self) -> Value {
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
        json!({ "name": self.name, "in": self.location, "required": false, "schema": schema })
    }
}

fn content(contents: &[MediaContent], catalog: &mut SchemaCatalog) -> Value {
    let media = |(media_type, schema): &MediaContent| {
        let schema = match schema {
            SchemaSource::Text => json!({ "type": "string" }),
            SchemaSource::Binary => json!({ "type": "string", "format": "binary" }),
            SchemaSource::AnyObject => json!({ "type": "object" }),
            SchemaSource::Anything => json!({}),
            SchemaSource::Type(schema) => schema(catalog),
            SchemaSource::Model(name) => json!({ "$ref": format!("#/components/schemas/{name}") }),
        };
        ((*media_type).to_owned(), json!({ "schema": schema }))
    };
    contents.iter().map(media).collect::<Map<String, Value>>().into()
}

/// Returns the members that all methods of a path share: its parameters.
fn path_item(path: &str) -> Value {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let parameters: Vec<Value> = names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": path_parameter(name) }))
        .collect();
    if parameters.is_empty() { json!({}) } else { json!({ "parameters": parameters }) }
}

fn path_parameter(name: &str) -> Value {
    match name {
        "version" => json!({ "type": "integer", "minimum": 0, "maximum": i64::MAX }),
        "sha256" => json!({ "type": "string", "pattern": saggar_rest::SHA256_PATTERN }),
        _ => json!({ "type": "string", "minLength": 1 }),
    }
}
