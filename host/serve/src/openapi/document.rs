//! The document as types: the objects of OpenAPI 3.1 that it uses, with their members in the order of the JSON.
//! Source: OpenAPI Specification 3.1.0, section 4.8.
//!
//! Deliberately without types: the schemas. JSON Schema is an open vocabulary, whose members depend on the kind of value.
//! `schemars::Schema`, which could represent one, is serialized with its members in another order.

use std::borrow::Cow;

use indexmap::IndexMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// The root of the document.
#[derive(Serialize)]
pub(super) struct OpenApiDocument<'a> {
    pub(super) openapi: &'static str,
    pub(super) info: InfoObject,
    pub(super) servers: [ServerObject; 1],
    pub(super) tags: &'a [TagObject],
    pub(super) paths: DocumentMembers<'a, PathItem>,
    pub(super) components: ComponentsObject<'a>,
}

/// Metadata of the interface.
#[derive(Serialize)]
pub(super) struct InfoObject {
    pub(super) title: &'static str,
    pub(super) version: &'static str,
    pub(super) description: &'static str,
    pub(super) license: LicenseObject,
}

/// The license of the interface.
#[derive(Serialize)]
pub(super) struct LicenseObject {
    pub(super) name: &'static str,
    /// An SPDX expression.
    pub(super) identifier: &'static str,
}

/// A server, relative to the URL of the document.
#[derive(Serialize)]
pub(super) struct ServerObject {
    pub(super) url: &'static str,
}

/// A group of operations.
#[derive(Serialize)]
pub(super) struct TagObject {
    pub(super) name: &'static str,
}

/// What paths refer to by name.
#[derive(Serialize)]
pub(super) struct ComponentsObject<'a> {
    pub(super) schemas: DocumentMembers<'a, Value>,
    pub(super) responses: &'a IndexMap<&'static str, ResponseObject>,
}

/// The members of an object: first those of routes, then those of models. Their names cannot collide
/// (`/models/NAME/predict` without braces, and `model.NAME.input`).
pub(super) struct DocumentMembers<'a, T> {
    pub(super) of_routes: &'a IndexMap<String, T>,
    pub(super) of_models: IndexMap<String, T>,
}

impl<T: Serialize> Serialize for DocumentMembers<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.of_routes.iter().chain(&self.of_models))
    }
}

/// The operations of a path, by method in lower case, and the parameters that they share.
#[derive(Serialize)]
pub(super) struct PathItem {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) parameters: Vec<ParameterObject>,
    #[serde(flatten)]
    pub(super) operations: IndexMap<String, OperationObject>,
}

/// An operation.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OperationObject {
    pub(super) operation_id: String,
    pub(super) tags: [&'static str; 1],
    pub(super) summary: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) deprecated: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) parameters: Vec<ParameterObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_body: Option<RequestBodyObject>,
    /// The responses by status.
    pub(super) responses: IndexMap<String, ResponseOrReference>,
}

/// A parameter.
#[derive(Serialize)]
pub(super) struct ParameterObject {
    pub(super) name: String,
    /// `path`, `query` or `header`.
    #[serde(rename = "in")]
    pub(super) location: &'static str,
    pub(super) required: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) deprecated: bool,
    pub(super) schema: Value,
}

/// The body of a request.
#[derive(Serialize)]
pub(super) struct RequestBodyObject {
    pub(super) required: bool,
    pub(super) content: ContentMap,
}

/// The content of a body, by media type.
pub(super) type ContentMap = IndexMap<&'static str, MediaTypeObject>;

/// The content of a body in one media type.
#[derive(Serialize)]
pub(super) struct MediaTypeObject {
    pub(super) schema: Value,
}

/// A response or where it is described.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ResponseOrReference {
    Response(ResponseObject),
    Reference {
        /// `#/components/responses/NAME`.
        #[serde(rename = "$ref")]
        reference: &'static str,
    },
}

/// A response. Without content, it has no body.
#[derive(Serialize)]
pub(super) struct ResponseObject {
    pub(super) description: &'static str,
    #[serde(skip_serializing_if = "ContentMap::is_empty")]
    pub(super) content: ContentMap,
}
