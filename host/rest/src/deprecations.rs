//! What is deprecated in the REST interface: the one list of it, from which the server announces it in responses and in
//! `/openapi.json`, counts its uses, and `saggar doctor` names the replacements.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The part of an operation that is deprecated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeprecatedPart {
    /// The whole operation.
    Operation,
    /// A parameter of the query or a header, by name.
    Parameter(&'static str),
    /// A member of the JSON object that is the body, and the schema that has it.
    Member {
        /// The member's name.
        name: &'static str,
        /// The schema's name in `/openapi.json`.
        schema: &'static str,
    },
}

/// Something deprecated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceDeprecation {
    /// Its name, distinct in the list: the label of its metric.
    pub name: &'static str,
    /// The method of the operation.
    pub method: &'static str,
    /// The path of the operation, with its parameters in braces.
    pub path: &'static str,
    /// What of it.
    pub part: DeprecatedPart,
    /// Since when, in Unix seconds.
    pub since: i64,
    /// From when it may stop working, in Unix seconds, if that is known.
    pub sunset: Option<i64>,
    /// What to use instead.
    pub replacement: &'static str,
}

/// Everything that is deprecated.
pub const DEPRECATIONS: &[InterfaceDeprecation] = &[InterfaceDeprecation {
    name: "model.json instances_max",
    method: "PUT",
    path: "/api/v1/models/{model}/config",
    part: DeprecatedPart::Member { name: "instances_max", schema: "ModelConfig" },
    // 26 November 2026.
    since: 1_795_651_200,
    sunset: None,
    replacement: "\"instances\": {\"max\": N}",
}];

/// What is deprecated on this server, and how often it was used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Deprecations")]
pub struct DeprecationListDocument {
    /// Each deprecated part of the interface.
    pub deprecations: Vec<DeprecationDocument>,
}

/// A deprecated part of the interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Deprecation")]
pub struct DeprecationDocument {
    /// Its name.
    pub name: String,
    /// The method and the path of its operation.
    pub operation: String,
    /// Since when it is deprecated, in Unix seconds.
    pub since: i64,
    /// From when it may stop working, in Unix seconds, if that is known.
    pub sunset: Option<i64>,
    /// What to use instead.
    pub replacement: String,
    /// How often it was used since the server started.
    pub uses: u64,
}
