//! The schemas of the document, which are derived from the types of the REST interface.

use indexmap::IndexMap;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;

/// The schemas of types, by name, as they are referred to by operations.
///
/// A type's schema as a request differs from that as a response: a member with a default can be omitted in a request, and
/// is always present in a response. No type is used in both.
pub(crate) struct SchemaCatalog {
    requests: SchemaGenerator,
    responses: SchemaGenerator,
}

impl SchemaCatalog {
    pub(crate) fn new() -> SchemaCatalog {
        let settings =
            || SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = "/components/schemas".into());
        // Members of responses have no defaults: those of the types are for clients of older servers.
        let without_default = RecursiveTransform(|schema: &mut Schema| drop(schema.remove("default")));
        SchemaCatalog {
            requests: settings().for_deserialize().into_generator(),
            responses: settings().with_transform(without_default).for_serialize().into_generator(),
        }
    }

    /// Returns a reference to the schema of `T` as a request, and adds it.
    pub(crate) fn request_schema<T: JsonSchema>(&mut self) -> Value {
        self.requests.subschema_for::<T>().into()
    }

    /// Returns a reference to the schema of `T` as a response, and adds it.
    pub(crate) fn response_schema<T: JsonSchema>(&mut self) -> Value {
        self.responses.subschema_for::<T>().into()
    }

    /// Returns all schemas, by name.
    pub(crate) fn into_schemas(mut self) -> IndexMap<String, Value> {
        let responses = self.responses.take_definitions(true);
        responses.into_iter().chain(self.requests.take_definitions(true)).collect()
    }
}
