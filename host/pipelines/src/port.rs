//! What pipelines need of the server.

use std::collections::BTreeMap;

use async_trait::async_trait;
use saggar_jobs::JobSpec;
use saggar_project::OutputType;
use saggar_store::records::StateReason;
use saggar_store::{AccessRights, JobState};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

/// The name of the input that is the plugin of a job.
pub const PLUGIN_INPUT: &str = "plugin";

/// A job as a run sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobObservation {
    /// The name.
    pub name: String,
    /// The state.
    pub state: JobState,
    /// The reason for the state.
    pub reason: StateReason,
}

/// Something that a step read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepInput {
    /// Which input it is: `plugin`, `init_from`, a mount point, an input of a step, or `from` of a data step.
    pub name: String,
    /// The resolved reference, such as `mnist/3`.
    pub reference: String,
    /// The SHA-256 of the content, where there is one; the output of a job is identified by the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// An output of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputReference {
    /// The value that other steps use: a reference such as `model:face@12`, a text, a number or a boolean.
    pub value: Value,
    /// The type; absent in records of versions without types.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<OutputType>,
    /// The SHA-256 of the content, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl OutputReference {
    /// Returns an output of this type.
    pub fn new(kind: OutputType, value: impl Into<Value>, digest: Option<String>) -> OutputReference {
        OutputReference { value: value.into(), kind: Some(kind), digest }
    }
}

/// A job whose references are resolved.
#[derive(Clone, Debug)]
pub struct PreparedJob {
    /// The specification, with the versions of everything that it names.
    pub spec: JobSpec,
    /// What it reads.
    pub inputs: Vec<StepInput>,
}

/// A deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeployRequest {
    /// The model; that of `from` if omitted.
    pub model: Option<String>,
    /// A version, `model:face@12`, or a checkpoint to publish, `job:mnist-7/checkpoint@1200`.
    pub from: String,
    /// The alias to set; the default version if omitted.
    pub alias: Option<String>,
}

/// Why a step could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StepFailure {
    /// It fails again in the same way.
    #[error("{}", .0.sentence)]
    Permanent(StateReason),
    /// A fault of the server, or a full queue: the step is tried again.
    #[error("{0}")]
    Transient(String),
}

impl StepFailure {
    /// Returns a permanent failure.
    pub fn permanent(code: &str, sentence: impl Into<String>) -> StepFailure {
        StepFailure::Permanent(StateReason::new(code, sentence))
    }
}

/// The parts of the server that run steps. Called from the driver of a run, which waits for each call; calls can take as
/// long as loading a model. A driver can be ended at any instant, and then every call is repeated by the next server.
#[async_trait]
pub trait PipelinePort: Send + Sync {
    /// Returns the job that was submitted under this key.
    ///
    /// # Errors
    /// `Transient`.
    async fn find_job(&self, idempotency_key: &str) -> Result<Option<JobObservation>, StepFailure>;

    /// Returns the job of this name, or `None` if it was removed.
    ///
    /// # Errors
    /// `Transient`.
    async fn job(&self, name: &str) -> Result<Option<JobObservation>, StepFailure>;

    /// Resolves the references of a specification, with the current rights of the key.
    ///
    /// # Errors
    /// `Permanent` if something does not exist or is not allowed; `Transient`.
    async fn prepare(&self, spec: JobSpec, rights: &AccessRights) -> Result<PreparedJob, StepFailure>;

    /// Submits a prepared job. A second call with the same key returns the job of the first one.
    ///
    /// # Errors
    /// The errors of `prepare`.
    async fn submit(
        &self,
        spec: JobSpec,
        rights: &AccessRights,
        idempotency_key: &str,
    ) -> Result<JobObservation, StepFailure>;

    /// Asks a job to stop. One that is over stays as it is.
    ///
    /// # Errors
    /// `Transient`.
    async fn stop_job(&self, name: &str, reason: &StateReason) -> Result<(), StepFailure>;

    /// Returns the outputs of a job that succeeded.
    ///
    /// # Errors
    /// `Transient`.
    async fn outputs(&self, job: &str) -> Result<BTreeMap<String, OutputReference>, StepFailure>;

    /// Returns the newest checkpoint of a job that can be continued from, as `job:NAME/checkpoint@STEP`, or `None`.
    ///
    /// # Errors
    /// `Transient`.
    async fn newest_checkpoint(&self, job: &str) -> Result<Option<String>, StepFailure>;

    /// Returns whether outputs still exist.
    ///
    /// # Errors
    /// `Transient`.
    async fn has_outputs(&self, outputs: &BTreeMap<String, OutputReference>) -> Result<bool, StepFailure>;

    /// Deploys a version if the condition of the model allows it. A version that is deployed already stays so.
    ///
    /// # Errors
    /// `Permanent` if the condition refuses it, or it cannot be loaded; `Transient`.
    async fn deploy(&self, request: &DeployRequest, rights: &AccessRights) -> Result<OutputReference, StepFailure>;
}
