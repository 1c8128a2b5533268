//! The errors of serving models.

use std::time::Duration;

use saggar_plugin::PluginError;
use saggar_store::error::{ModelError, StoreError};
use thiserror::Error;

use super::desired_state::DesiredStateError;
use super::model_config::ModelConfigError;
use super::model_reference::ReferenceError;
use super::version_state::VersionState;

/// Why a prediction was not answered, or a command on a model failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServingError {
    /// A version is named by neither a number nor an alias.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The model does not exist.
    #[error("no model {name}; {}", known_models(known))]
    NoModel {
        /// The requested name.
        name: String,
        /// The names of existing models.
        known: Vec<String>,
    },
    /// The alias points to no version.
    #[error("no alias {model}@{alias}; {hint}")]
    NoAlias {
        /// The model's name.
        model: String,
        /// The alias.
        alias: String,
        /// How to list or set aliases.
        hint: String,
    },
    /// The model has no such version on disk, or no complete version if none was named.
    #[error("no version {model}{}; GET /api/v1/models/{model} lists them", version_suffix(*version))]
    NoVersion {
        /// The model's name.
        model: String,
        /// The version, if one was named.
        version: Option<u64>,
    },
    /// The version is not loaded.
    #[error("version {version} of model {model} is {}; {}", state_name(*state), serving_version_text(*serving))]
    VersionNotServing {
        /// The model's name.
        model: String,
        /// The requested version.
        version: u64,
        /// The state of that version, or `None` if it does not exist.
        state: Option<VersionState>,
        /// The version that serves, if any.
        serving: Option<u64>,
    },
    /// No version of the model serves yet.
    #[error("model {model} is not ready: {reason}")]
    NotReady {
        /// The model's name.
        model: String,
        /// The reason.
        reason: String,
    },
    /// No model is ready.
    #[error("no model is ready")]
    NothingReady,
    /// A version that was requested failed to load.
    #[error("{model}{} did not come up: {reason}", version_suffix(*version))]
    LoadFailed {
        /// The model's name.
        model: String,
        /// The version, if one was named.
        version: Option<u64>,
        /// The reason.
        reason: String,
    },
    /// The command is not possible in the current state.
    #[error("{what}: {reason}")]
    Conflict {
        /// The object of the command.
        what: String,
        /// The reason.
        reason: String,
    },
    /// An invalid change of a model's desired state.
    #[error(transparent)]
    DesiredState(#[from] DesiredStateError),
    /// A shadow's share of the requests is out of range.
    #[error("percent: expected 1 to 100, got {:?}", percent.to_string())]
    ShadowPercent {
        /// The share in percent.
        percent: u32,
    },
    /// Invalid settings of a model.
    #[error(transparent)]
    Config(#[from] ModelConfigError),
    /// The model's queue is full.
    #[error("model {model} has {waiting} predictions waiting or running, the most it takes")]
    QueueFull {
        /// The model's name.
        model: String,
        /// The number of predictions waiting or running.
        waiting: usize,
    },
    /// The predictions queued before this one take longer than its deadline allows.
    #[error(
        "model {model} has {waiting} predictions waiting or running, which leave no time for another by its deadline"
    )]
    NoTimeLeft {
        /// The model's name.
        model: String,
        /// The number of predictions waiting or running.
        waiting: usize,
    },
    /// The deadline passed before the prediction started.
    #[error("the deadline of {} ms passed while the prediction was queued", limit.as_millis())]
    DeadlineQueued {
        /// The time limit of the request.
        limit: Duration,
    },
    /// Other requests hold the memory that this one needs.
    #[error("the memory for requests is in use: by your other requests, or by those of other clients")]
    MemoryFull,
    /// The request needs more memory than one client can use.
    #[error("the request takes up to {bytes} bytes of memory, and one client has at most {share_bytes}")]
    MemoryShare {
        /// The bytes that it needs.
        bytes: u64,
        /// The maximum of bytes for one client.
        share_bytes: u64,
    },
    /// The plugin failed or rejected the input.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// Reading or writing a model's files failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Reading or writing files or objects failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A fault of the server.
    #[error("internal error")]
    Internal {
        /// The cause, for the log only.
        cause: String,
    },
}

fn known_models(known: &[String]) -> String {
    if known.is_empty() { "no models exist yet".to_owned() } else { format!("known are {}", known.join(", ")) }
}

fn version_suffix(version: Option<u64>) -> String {
    version.map_or_else(String::new, |version| format!("@{version}"))
}

fn state_name(state: Option<VersionState>) -> &'static str {
    state.map_or("unknown", VersionState::name)
}

fn serving_version_text(serving: Option<u64>) -> String {
    serving.map_or_else(|| "no version serves".to_owned(), |version| format!("version {version} serves"))
}
