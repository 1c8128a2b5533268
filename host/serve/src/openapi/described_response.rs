//! Responses whose types describe them.
//!
//! The route table records the description of each handler's return type, and the document is built from it: what a
//! handler returns and what the document declares is the same type. A handler whose response has no document, such as
//! one of tensors, files, text or events, returns a plain [`Response`], and its operation describes the contents.

use std::collections::HashMap;

use axum::Json;
use axum::http::Method;
use axum::response::Response;
use schemars::JsonSchema;

use super::operation_response::{JSON, OperationResponse, SchemaSource};
use super::schema_catalog::SchemaCatalog;
use crate::error::{AcceptedResponse, CreatedResponse, NoContent, ProbeResponse, SerializedJson};

/// A return type of handlers that describes its responses.
pub(crate) trait DescribedResponse {
    /// Returns the responses that are not errors; empty if the operation describes them.
    fn responses() -> Vec<OperationResponse>;
}

/// Returns the responses of a handler.
pub(crate) type DescribeResponses = fn() -> Vec<OperationResponse>;

/// The responses of handlers, by method and path. A path is written as in the document: `/output/{path}` for the route
/// `/output/{*path}`.
#[derive(Debug, Default)]
pub(crate) struct HandlerResponses(HashMap<(Method, String), DescribeResponses>);

impl HandlerResponses {
    /// Collects the responses of these routes.
    pub(crate) fn new(routes: impl IntoIterator<Item = (Method, &'static str, DescribeResponses)>) -> HandlerResponses {
        let responses =
            routes.into_iter().map(|(method, path, describe)| ((method, path.replace("{*", "{")), describe));
        HandlerResponses(responses.collect())
    }

    /// Returns the responses that the handler of this method and path describes.
    pub(super) fn of(&self, method: &Method, path: &str) -> Vec<OperationResponse> {
        self.0.get(&(method.clone(), path.to_owned())).map_or_else(Vec::new, |describe| describe())
    }
}

/// Returns the response of a JSON document of type `T`.
fn document<T: JsonSchema>(status: u16) -> OperationResponse {
    OperationResponse::new(status, JSON, SchemaSource::Type(SchemaCatalog::response_schema::<T>))
}

impl DescribedResponse for Response {
    fn responses() -> Vec<OperationResponse> {
        Vec::new()
    }
}

impl<T: DescribedResponse, E> DescribedResponse for Result<T, E> {
    fn responses() -> Vec<OperationResponse> {
        T::responses()
    }
}

impl DescribedResponse for &'static str {
    fn responses() -> Vec<OperationResponse> {
        vec![OperationResponse::new(200, "text/plain", SchemaSource::Text)]
    }
}

impl<T: JsonSchema> DescribedResponse for Json<T> {
    fn responses() -> Vec<OperationResponse> {
        vec![document::<T>(200)]
    }
}

impl<T: JsonSchema> DescribedResponse for SerializedJson<T> {
    fn responses() -> Vec<OperationResponse> {
        vec![document::<T>(200)]
    }
}

impl<T: JsonSchema> DescribedResponse for CreatedResponse<T> {
    fn responses() -> Vec<OperationResponse> {
        vec![document::<T>(201)]
    }
}

impl<T: JsonSchema> DescribedResponse for AcceptedResponse<T> {
    fn responses() -> Vec<OperationResponse> {
        vec![document::<T>(202)]
    }
}

impl DescribedResponse for NoContent {
    fn responses() -> Vec<OperationResponse> {
        vec![OperationResponse::empty(204)]
    }
}

impl<T: JsonSchema> DescribedResponse for ProbeResponse<T> {
    fn responses() -> Vec<OperationResponse> {
        vec![document::<T>(200), document::<T>(503)]
    }
}
