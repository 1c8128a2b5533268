//! What the server needs of a model version and of whoever brings one up. Tests put models of their own here.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use saggar_device::Meter;
use saggar_plugin::{PieceSink, PluginError, Signature};
use saggar_store::error::ModelError;
use saggar_store::models::VersionFiles;
use thiserror::Error;

use crate::predict::decode::Tensor;

/// A model version that is up. Shared by every thread that predicts; dropping it frees all that it holds.
pub trait Predictor: Debug + Send + Sync {
    /// What it takes and gives.
    fn signature(&self) -> &Signature;

    /// Predicts one batch of any size. Called from threads that may block, several at once, at most
    /// `limits::COMPUTING_MAX`. What is known of the outputs early goes to `pieces`, which is let go before it returns.
    ///
    /// # Errors
    /// `Deadline` where it takes longer than `limit`; whatever else a plugin can do wrong.
    fn predict(
        &self,
        inputs: Vec<Tensor>,
        limit: Duration,
        pieces: Option<Arc<dyn PieceSink>>,
    ) -> Result<Vec<Tensor>, PluginError>;
}

/// A part of bringing a version up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading files and checking their digests.
    Verify,
    /// Compiling the component, or finding it compiled.
    Compile,
    /// Making the first instance: graphs, weights, the device's programs.
    Load,
    /// Predicting once for each batch size.
    Warmup,
}

impl Phase {
    /// The phase as a metric's label.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Verify => "verify",
            Phase::Compile => "compile",
            Phase::Load => "load",
            Phase::Warmup => "warmup",
        }
    }
}

/// A version just brought up.
#[derive(Debug)]
pub struct Loaded {
    /// The model.
    pub predictor: Box<dyn Predictor>,
    /// The device it runs on.
    pub device: String,
    /// What it holds of the device and takes from it.
    pub meter: Meter,
}

/// Brings versions up.
pub trait ModelHost: Debug + Send + Sync {
    /// Loads and warms a version whose files were verified, telling `phase` how long each part took. Called from a
    /// thread that may block, one version at a time.
    ///
    /// # Errors
    /// [`LoadError`]; the version is not tried again until its files change.
    fn bring_up(&self, files: &VersionFiles, phase: &mut dyn FnMut(Phase, Duration)) -> Result<Loaded, LoadError>;
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
    Plugin(#[from] PluginError),
    /// A fault of ours.
    #[error("loading it panicked; the server's log has the details")]
    Panicked,
}

impl LoadError {
    /// The reason, from a closed set.
    pub fn reason(&self) -> &'static str {
        match self {
            LoadError::Files(ModelError::Incomplete { .. }) => "DAMAGED",
            LoadError::Files(_) => "UNREADABLE",
            LoadError::Plugin(error) => error.reason(),
            LoadError::Panicked => "PANICKED",
        }
    }

    /// Whether the version itself is at fault, rather than this machine.
    pub fn is_rejection(&self) -> bool {
        match self {
            LoadError::Files(_) => true,
            LoadError::Plugin(error) => {
                !matches!(error.reason(), "DEVICE_LOST" | "OUT_OF_MEMORY" | "DEVICE" | "ENGINE")
            }
            LoadError::Panicked => false,
        }
    }
}
