//! `/api/v1/experiments`: labels that jobs share.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The experiments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Experiments")]
pub struct ExperimentListDocument {
    /// The experiments, by name.
    pub experiments: Vec<ExperimentDocument>,
}

/// An experiment: a label that jobs share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Experiment")]
pub struct ExperimentDocument {
    /// Its name.
    pub name: String,
    /// The projects of its jobs.
    pub projects: Vec<String>,
    /// The number of its jobs in each state.
    pub jobs: BTreeMap<String, u64>,
    /// When its first job was submitted, in Unix milliseconds.
    pub created_ms: u64,
    /// When one of its jobs last began or ended.
    pub changed_ms: u64,
    /// The newest 100 pipeline runs that have jobs of it. Like the next member, only in the response of
    /// `GET /api/v1/experiments/{experiment}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline_runs: Option<Vec<ExperimentMemberDocument>>,
    /// The newest 100 sweeps that have jobs of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweeps: Option<Vec<ExperimentMemberDocument>>,
}

/// A pipeline run or a sweep that has jobs of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "ExperimentMember")]
pub struct ExperimentMemberDocument {
    /// Its name.
    pub name: String,
    /// Its project.
    pub project: String,
    /// Its state.
    pub state: String,
    /// When it was created, in Unix milliseconds.
    pub created_ms: u64,
    /// The number of its jobs that are in the experiment.
    pub jobs: u64,
}
