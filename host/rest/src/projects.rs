//! `PUT /api/v1/models/{model}/projects` and `PUT /api/v1/datasets/{name}/projects`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sets the projects that a model or a dataset belongs to. An empty list removes it from all projects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Assignment")]
pub struct AssignProjectsRequest {
    /// The projects.
    #[schemars(length(max = 64))]
    pub projects: Vec<String>,
}

/// The projects that a model or a dataset belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "AssignedProjects")]
pub struct AssignedProjectsDocument {
    /// Its name.
    pub name: String,
    /// The projects.
    pub projects: Vec<String>,
}
