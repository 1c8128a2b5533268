//! What the server needs of a model version and of whoever brings one up. Tests put models of their own here.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use saggar_plugin::{LoadedModel, ModelSignature, PluginError, PredictionOptions};
use saggar_store::checkpoint::SavedVariable;
use saggar_store::error::ModelError;
use saggar_store::models::VersionFiles;
use thiserror::Error;

use super::device_usage::DeviceUsageAccount;
use crate::predict::decode::PredictionTensor;

/// A model version that is up. Shared by every thread that predicts; dropping it frees all that it holds.
pub trait ModelPredictor: Debug + Send + Sync {
    /// What it takes and gives.
    fn signature(&self) -> &ModelSignature;

    /// Device bytes that it holds.
    fn device_bytes(&self) -> u64;

    /// Whether [`ModelPredictor::predict`] calls a device's driver, from which it may never return. Such a prediction runs on a
    /// thread of the blocking pool, however quick it usually is, so that its request can be answered at its deadline.
    fn calls_driver(&self) -> bool {
        false
    }

    /// The model on its device, where it is one that can be given tensors there.
    fn device_model(&self) -> Option<&LoadedModel> {
        None
    }

    /// To be called after calls of what [`ModelPredictor::device_model`] gave, which go past [`ModelPredictor::predict`].
    fn report_device_use(&self) {}

    /// Predicts one batch of any size: one tensor for each input, in the signature's order. Called from threads that may
    /// block, or where it is known to be quick; several at once, at most as many as the model has lanes. What is known of
    /// the outputs early goes to the terms' sink, which is let go before it returns.
    ///
    /// # Errors
    /// `PredictionDeadline` where it takes longer than the terms give; `Cancelled`; whatever else a plugin can do wrong.
    fn predict(
        &self,
        inputs: Vec<PredictionTensor>,
        terms: &PredictionOptions,
    ) -> Result<Vec<PredictionTensor>, PluginError>;
}

/// A part of bringing a version up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadPhase {
    /// Reading files and checking their digests.
    Verify,
    /// Compiling the component, or finding it compiled.
    Compile,
    /// Making the first instance: graphs, weights, the device's programs.
    Load,
    /// Predicting once for each batch size.
    Warmup,
}

impl LoadPhase {
    /// The phase as a metric's label.
    pub const fn name(self) -> &'static str {
        match self {
            LoadPhase::Verify => "verify",
            LoadPhase::Compile => "compile",
            LoadPhase::Load => "load",
            LoadPhase::Warmup => "warmup",
        }
    }
}

/// How a version came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadKind {
    /// With instances and programs of its own.
    Full,
    /// With those of a version that differs in its weights alone.
    Weights,
}

impl LoadKind {
    /// The kind as users and metrics name it.
    pub const fn name(self) -> &'static str {
        match self {
            LoadKind::Full => "full",
            LoadKind::Weights => "weights",
        }
    }
}

/// A version just brought up.
#[derive(Debug)]
pub struct LoadedVersion {
    /// The model.
    pub predictor: Arc<dyn ModelPredictor>,
    /// The device it runs on.
    pub device: String,
    /// What it holds of the device and takes from it. Versions that share instances share an account.
    pub device_usage: Vec<Arc<DeviceUsageAccount>>,
    /// How it came up.
    pub kind: LoadKind,
}

/// A version to be brought up.
#[derive(Clone, Copy, Debug)]
pub struct VersionCandidate<'a> {
    /// The model.
    pub model: &'a str,
    /// Its files, which were verified.
    pub files: &'a VersionFiles,
    /// Its weights, as they were read when they were verified.
    pub variables: &'a [SavedVariable],
    /// Calls at a time.
    pub instances_max: usize,
}

/// Brings versions up.
pub trait ModelHost: Debug + Send + Sync {
    /// Loads and warms a version, telling `phase` how long each part took. Called from a thread that may block.
    ///
    /// # Errors
    /// [`LoadError`]; the version is not tried again until its files change.
    fn load_version(
        &self,
        it: VersionCandidate<'_>,
        phase: &mut dyn FnMut(LoadPhase, Duration),
    ) -> Result<LoadedVersion, LoadError>;

    /// The device that versions run on and why its driver gave it up, where it did: what came up before is lost then. Asked
    /// several times a second; does not wait.
    fn lost_device(&self) -> Option<(String, String)> {
        None
    }

    /// Takes another device in place of a lost one. Called from a thread that may block.
    ///
    /// # Errors
    /// Why there is none; it may be tried again.
    fn reopen_device(&self) -> Result<(), LoadError> {
        Ok(())
    }
}

/// Why a version cannot be brought up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Its files are not as its manifest says.
    #[error(transparent)]
    Files(#[from] ModelError),
    /// Its plugin is refused, or fails.
    #[error(transparent)]
    Plugin(PluginError),
    /// Its plugin takes longer than loading may take.
    #[error("{error}, which is the time for loading: `saggar serve --load-timeout` gives more")]
    TimedOut {
        /// Where the plugin was.
        error: PluginError,
    },
    /// A warm-up sample of its model cannot be predicted.
    #[error("warm-up: {reason}")]
    Warmup {
        /// Which, and why.
        reason: String,
    },
    /// A fault of ours.
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
    /// The reason, from a closed set.
    pub fn reason(&self) -> &'static str {
        match self {
            LoadError::Files(ModelError::Incomplete { .. }) => "DAMAGED",
            LoadError::Files(_) => "UNREADABLE",
            LoadError::Plugin(error) | LoadError::TimedOut { error } => error.reason(),
            LoadError::Warmup { .. } => "WARMUP",
            LoadError::Panicked => "PANICKED",
        }
    }

    /// Whether the version itself is at fault, rather than this machine.
    pub fn is_rejection(&self) -> bool {
        match self {
            LoadError::Files(_) | LoadError::Warmup { .. } => true,
            LoadError::Plugin(error) | LoadError::TimedOut { error } => {
                !matches!(error.reason(), "DEVICE_LOST" | "OUT_OF_MEMORY" | "DEVICE" | "ENGINE" | "BUSY")
            }
            LoadError::Panicked => false,
        }
    }
}
