//! `/version`, `/readyz` and the index at `/`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::models::ModelDocument;

/// The program's name, which tells a saggar server from others.
pub const PROGRAM_NAME: &str = "saggar";

/// The server's version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Version")]
pub struct VersionDocument {
    /// Always `saggar`.
    #[schemars(extend("const" = PROGRAM_NAME))]
    pub name: String,
    /// The version.
    pub version: String,
}

/// Whether every model has a version that serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Readiness")]
pub struct ReadinessDocument {
    /// Whether the server is ready.
    pub ready: bool,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<String>>,
    /// The models, if requested with `verbose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<ModelDocument>>,
}

/// An index of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Index")]
pub struct IndexDocument {
    /// Always `saggar`.
    #[schemars(extend("const" = PROGRAM_NAME))]
    pub name: String,
    /// Always `alive`, which clients of KServe's protocol V1 expect.
    #[schemars(extend("const" = "alive"))]
    pub status: String,
    /// The server's version.
    pub version: String,
    /// The paths of all routes.
    pub routes: Vec<String>,
    /// The models, without their signatures.
    pub models: Vec<ModelDocument>,
}
