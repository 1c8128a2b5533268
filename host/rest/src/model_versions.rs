//! `/api/v1/models/{model}/versions/{version}`: what one version is made of, and the forms that create one.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::models::ModelVersionDocument;

/// One version of a model: what it is made from and what it contains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "VersionDetail")]
pub struct VersionDetailDocument {
    /// The model's name.
    pub model: String,
    /// The version as in the list of versions, with the metrics of its training.
    pub version: ModelVersionDocument,
    /// What it was made from.
    pub provenance: ProvenanceDocument,
    /// The sweep or the pipeline run that its job was submitted for, if this server trained it and has their records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<VersionOriginDocument>,
    /// The configuration of its plugin.
    pub config: String,
    /// Its files, without the manifest.
    pub files: Vec<VersionFileDocument>,
    /// The bytes of its files together.
    pub stored_bytes: u64,
    /// The number of tensors of its weights.
    pub tensors: u64,
    /// The number of elements of its weights together.
    pub elements: u64,
    /// Markdown about the version for people: its card, or else one that the server generates for a version that a job
    /// published.
    pub card: Option<String>,
    /// Whether the card was generated from what the other members say.
    pub is_card_generated: bool,
    /// Whether its files have the digests of its manifest; null if that was not requested with `verify=true`.
    pub intact: Option<bool>,
    /// The file that is damaged, and how.
    pub damage: String,
}

/// What a version was made from, as far as its publisher knew.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Provenance")]
pub struct ProvenanceDocument {
    /// The dataset versions that the training read, by mount.
    pub data: BTreeMap<String, String>,
    /// SHA-256 of the content of these datasets, by mount.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data_sha256: BTreeMap<String, String>,
    /// The parameters of the training.
    pub parameters: Map<String, Value>,
    /// The seed of the training.
    pub seed: Option<u64>,
    /// The step of the training at publication.
    pub step: Option<u64>,
    /// The device of the training.
    pub device: String,
    /// The version of the program that published it.
    pub program: String,
}

/// What the job that published a version was submitted for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "VersionOrigin")]
pub struct VersionOriginDocument {
    /// The trial of a sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<VersionTrialDocument>,
    /// The step of a pipeline run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<VersionStepDocument>,
}

/// The trial that a version came from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "VersionTrial")]
pub struct VersionTrialDocument {
    /// The name of the sweep.
    pub sweep: String,
    /// The number of the trial, from 1.
    pub number: u32,
    /// The values of the searched parameters.
    pub parameters: Map<String, Value>,
    /// Whether it is the best completed trial.
    pub is_best: bool,
    /// For a copy in a population: the trials whose trainings led to it, oldest first, with itself as the last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<VersionLineageDocument>,
}

/// A part of the training that led to a version of a population.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "VersionLineage")]
pub struct VersionLineageDocument {
    /// The number of the trial.
    pub trial: u32,
    /// The training step from which it trained; null if it is not known.
    pub from_step: Option<u64>,
    /// The values of the searched parameters.
    pub parameters: Map<String, Value>,
}

/// The step of a pipeline run that a version came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "VersionStep")]
pub struct VersionStepDocument {
    /// The name of the run.
    pub run: String,
    /// The name of the step.
    pub step: String,
}

/// A file of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "VersionFile")]
pub struct VersionFileDocument {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: String,
}

/// The form of a push: a plugin, and weights that were made elsewhere. A plugin without weights can be sent alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ModelPush")]
pub struct ModelPushForm {
    /// The plugin's component.
    #[schemars(extend("format" = "binary"))]
    pub plugin: String,
    /// A safetensors file with the tensors that the plugin declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "binary"))]
    pub weights: Option<String>,
    /// The configuration passed to the plugin's `predictor.load`: by default `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// The preprocessing of its image inputs, a JSON object with an `ImagePreprocessing` for each input: by default none.
    #[serde(default, rename = "image-inputs", skip_serializing_if = "Option::is_none")]
    pub image_inputs: Option<String>,
    /// Markdown about the version for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<String>,
}

/// The form of an import of a bundle with its signature. A bundle without one can be sent alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BundleImport")]
pub struct BundleImportForm {
    /// The bundle.
    #[schemars(extend("format" = "binary"))]
    pub bundle: String,
    /// The content of its signature file, as minisign writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}
