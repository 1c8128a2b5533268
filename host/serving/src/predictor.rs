//! The traits that the server requires of a model version and of the host that loads versions. Tests implement them
//! with test models.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use saggar_compile::DisabledOptimizations;
use saggar_plugin::{
    DeclaredWeights, FailureReason, HandlerOptions, HandlerRequest, HandlerResponse, LoadedModel, ModelSignature,
    NamedTensor, PluginError, PredictionOptions,
};
use saggar_store::ImageInputs;
use saggar_store::checkpoint::SavedVariable;
use saggar_store::error::ModelError;
use saggar_store::models::VersionFiles;
use thiserror::Error;

use crate::metrics::device_usage::DeviceUsageAccount;

/// A loaded model version. It is shared by all threads that predict. Dropping it frees all that it holds.
pub trait ModelPredictor: Debug + Send + Sync {
    /// Returns its inputs and outputs.
    fn signature(&self) -> &ModelSignature;

    /// Returns the device bytes that it holds.
    fn device_bytes(&self) -> u64;

    /// Returns whether [`ModelPredictor::predict`] calls a device driver, which can block forever. Such a prediction
    /// runs on a thread of the blocking pool, however quick it usually is, so that its request can be answered at its
    /// deadline.
    fn calls_driver(&self) -> bool {
        false
    }

    /// Returns the model on its device if it accepts tensors there, else `None`.
    fn device_model(&self) -> Option<&LoadedModel> {
        None
    }

    /// Reports device usage. Called after direct calls of the model that [`ModelPredictor::device_model`] returned,
    /// which bypass [`ModelPredictor::predict`].
    fn report_device_use(&self) {}

    /// Predicts one batch of any size, with one tensor per input in the signature's order. Called from threads that can
    /// block, or if it is known to be quick. Concurrent calls are limited to the number of the model's batch slots.
    /// Early chunks of the outputs go to the sink of the options, which is released before this returns.
    ///
    /// # Errors
    /// Returns `Deadline` if it takes longer than the options allow, `Cancelled`, and any other error of the plugin.
    fn predict(&self, inputs: Vec<NamedTensor>, terms: &PredictionOptions) -> Result<Vec<NamedTensor>, PluginError>;

    /// Answers an HTTP request to one of the handlers of the signature. Called from threads that can block. Returns
    /// `None` if the response was streamed to the sink of the options, which is released before this returns.
    ///
    /// # Errors
    /// Returns `MissingExport` for a model without handlers, and the errors of [`LoadedModel::handle`].
    fn handle(
        &self,
        request: HandlerRequest,
        options: &HandlerOptions,
    ) -> Result<Option<HandlerResponse>, PluginError> {
        let _ = (request, options);
        Err(PluginError::MissingExport { export: "saggar:plugin/http-handler", purpose: "handle requests" })
    }
}

/// A phase of loading a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadPhase {
    /// Reading files and verifying their digests.
    Verify,
    /// Compiling the component, or finding it in the cache.
    Compile,
    /// Creating the first instance: graphs, weights, and the device's programs.
    Load,
    /// Predicting once for each batch size.
    Warmup,
}

impl LoadPhase {
    /// Returns the phase as a metric's label.
    pub const fn name(self) -> &'static str {
        match self {
            LoadPhase::Verify => "verify",
            LoadPhase::Compile => "compile",
            LoadPhase::Load => "load",
            LoadPhase::Warmup => "warmup",
        }
    }
}

/// How a version was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadKind {
    /// With new instances and programs.
    Full,
    /// With the instances and programs of a version that differs only in its weights.
    Weights,
}

impl LoadKind {
    /// Returns the kind as users and metrics name it.
    pub const fn name(self) -> &'static str {
        match self {
            LoadKind::Full => "full",
            LoadKind::Weights => "weights",
        }
    }
}

/// A version that was just loaded.
#[derive(Debug)]
pub struct LoadedVersion {
    /// The model.
    pub predictor: Arc<dyn ModelPredictor>,
    /// The device it runs on.
    pub device: String,
    /// The accounts of its device usage. Versions that share instances share an account.
    pub device_usage: Vec<Arc<DeviceUsageAccount>>,
    /// How it was loaded.
    pub kind: LoadKind,
}

/// A version to be loaded.
#[derive(Clone, Copy, Debug)]
pub struct VersionCandidate<'a> {
    /// The model.
    pub model: &'a str,
    /// Its verified files.
    pub files: &'a VersionFiles,
    /// Its weights, as read for the verification.
    pub variables: &'a [SavedVariable],
    /// Maximum number of concurrent calls.
    pub instances_max: usize,
    /// The optimizations that are switched off for the model.
    pub without: DisabledOptimizations,
}

/// The content of a version before it is published.
#[derive(Clone, Copy, Debug)]
pub struct CandidateContent<'a> {
    /// The plugin's component.
    pub plugin: &'a [u8],
    /// The weights.
    pub variables: &'a [SavedVariable],
    /// The configuration passed to the plugin's `predictor.load`.
    pub config: &'a str,
    /// The preprocessing of its image inputs.
    pub inputs: &'a ImageInputs,
    /// Whether the kinds of the variables are known. Otherwise the plugin decides which of them are statistics.
    pub has_kinds: bool,
}

/// Loads versions.
pub trait ModelHost: Debug + Send + Sync {
    /// Loads content that is not published yet, predicts once with it, and drops it again. Returns the weights with the
    /// kinds that the plugin declares, and those that it did not ask for. Called from a blocking thread.
    ///
    /// # Errors
    /// Returns [`LoadError`] if a version with this content could not be served.
    fn check_content(&self, it: CandidateContent<'_>) -> Result<DeclaredWeights, LoadError>;

    /// Loads and warms up a version, and reports the duration of each phase to `phase`. Called from a blocking thread.
    ///
    /// # Errors
    /// Returns [`LoadError`]. The version is not retried until its files change.
    fn load_version(
        &self,
        it: VersionCandidate<'_>,
        phase: &mut dyn FnMut(LoadPhase, Duration),
    ) -> Result<LoadedVersion, LoadError>;

    /// Returns the device that versions run on and the driver's reason if the device was lost, else `None`. A lost
    /// device also loses all versions that were loaded before. Polled several times a second. Does not block.
    fn lost_device(&self) -> Option<(String, String)> {
        None
    }

    /// Opens another device to replace a lost one. Called from a blocking thread.
    ///
    /// # Errors
    /// Returns an error if no device can be opened. It can be retried.
    fn reopen_device(&self) -> Result<(), LoadError> {
        Ok(())
    }
}

/// The reason for which a version cannot be loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Its files do not match its manifest.
    #[error(transparent)]
    Files(#[from] ModelError),
    /// Its plugin is refused, or fails.
    #[error(transparent)]
    Plugin(PluginError),
    /// Its plugin exceeds the load timeout.
    #[error("{error}: this is the load timeout, which `saggar serve --load-timeout` changes")]
    TimedOut {
        /// The plugin's error, which names the phase.
        error: PluginError,
    },
    /// A warm-up sample of its model cannot be predicted.
    #[error("warm-up: {reason}")]
    Warmup {
        /// The sample, and the error.
        reason: String,
    },
    /// A bug in the server.
    #[error("loading it panicked; the server's log has the details")]
    Panicked,
}

impl From<PluginError> for LoadError {
    fn from(error: PluginError) -> LoadError {
        match error {
            PluginError::Deadline { .. } => LoadError::TimedOut { error },
            error => LoadError::Plugin(error),
        }
    }
}

impl LoadError {
    /// Returns the reason, from a closed set.
    pub fn reason(&self) -> &'static str {
        match self {
            LoadError::Files(ModelError::Incomplete { .. }) => "DAMAGED",
            LoadError::Files(_) => "UNREADABLE",
            LoadError::Plugin(error) | LoadError::TimedOut { error } => error.reason().as_str(),
            LoadError::Warmup { .. } => "WARMUP",
            LoadError::Panicked => "PANICKED",
        }
    }

    /// Returns how the plugin failed, or `None` if something else did.
    pub fn failure_reason(&self) -> Option<FailureReason> {
        match self {
            LoadError::Plugin(error) | LoadError::TimedOut { error } => Some(error.reason()),
            LoadError::Files(_) | LoadError::Warmup { .. } | LoadError::Panicked => None,
        }
    }

    /// Returns whether the version itself is at fault, rather than this machine.
    pub fn is_rejection(&self) -> bool {
        match self {
            LoadError::Files(_) | LoadError::Warmup { .. } => true,
            LoadError::Plugin(error) | LoadError::TimedOut { error } => !matches!(
                error.reason(),
                FailureReason::Busy
                    | FailureReason::DeviceLost
                    | FailureReason::OutOfMemory
                    | FailureReason::Device
                    | FailureReason::Engine
            ),
            LoadError::Panicked => false,
        }
    }
}
