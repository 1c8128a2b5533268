//! A response of an operation, and the schema of a body.

use serde_json::Value;

use super::schema_catalog::SchemaCatalog;

/// The media type of JSON.
pub(crate) const JSON: &str = "application/json";

/// A response that is not an error.
pub(crate) struct OperationResponse {
    pub(super) status: u16,
    /// The content in one media type, or `None` if the response has no body.
    pub(super) content: Option<MediaContent>,
}

impl OperationResponse {
    /// Creates a response with content in one media type. Others of the same status can be added.
    pub(crate) fn new(status: u16, media_type: &'static str, schema: SchemaSource) -> OperationResponse {
        OperationResponse { status, content: Some((media_type, schema)) }
    }

    /// Creates a response without a body.
    pub(crate) fn empty(status: u16) -> OperationResponse {
        OperationResponse { status, content: None }
    }
}

/// A media type, and the schema of its content.
pub(super) type MediaContent = (&'static str, SchemaSource);

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
