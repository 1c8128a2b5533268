//! Why a file was not imported as a model.

use std::path::PathBuf;

use saggar_plugin::PluginError;
use saggar_store::ImageInputsError;
use saggar_store::error::{BundleError, ModelError, StoreError};
use thiserror::Error;

use crate::predictor::LoadError;

/// The reason for which a file was not imported.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The plugin that reads such files cannot be read. Its path stays in the log.
    #[error("the plugin that reads ONNX files cannot be read: {reason}")]
    NoPlugin {
        /// The file.
        path: PathBuf,
        /// The operating system's message.
        reason: String,
    },
    /// A file in which the model stores tensors is missing.
    #[error("the model keeps tensors in the file `{name}`, which is not with it")]
    MissingFile {
        /// The name in the model.
        name: String,
    },
    /// A file in which the model stores tensors is outside the model's folder.
    #[error(
        "the model keeps tensors in the file `{name}`: expected a relative path in the model's folder of at most 99 bytes"
    )]
    BadFileName {
        /// The name in the model.
        name: String,
    },
    /// A file was sent that the model does not refer to.
    #[error("the file `{name}` is not one that the model keeps tensors in; it names {names}")]
    UnknownFile {
        /// The file.
        name: String,
        /// The names that the model uses.
        names: String,
    },
    /// The model stores its tensors in too many files.
    #[error("the model keeps tensors in {found} files; at most {most} are read")]
    TooManyFiles {
        /// Number of files that the model names.
        found: usize,
        /// Maximum number of files.
        most: usize,
    },
    /// The model and its files are larger than the limit for imports.
    #[error("the model and the files with its tensors are larger than {bytes_max} bytes")]
    TooLarge {
        /// The limit in bytes.
        bytes_max: u64,
    },
    /// A file cannot be read.
    #[error("the file `{name}` cannot be read: {reason}")]
    Unreadable {
        /// The file.
        name: String,
        /// The error of the operating system.
        reason: String,
    },
    /// The weights are not a safetensors file.
    #[error("the weights cannot be read: {reason}")]
    BadWeights {
        /// The reason, with the tensor.
        reason: String,
    },
    /// The configuration or the card is not text, or is too long.
    #[error("the {part} is not usable: {reason}")]
    BadText {
        /// `configuration` or `card`.
        part: &'static str,
        /// The reason.
        reason: String,
    },
    /// The preprocessing of image inputs is refused.
    #[error(transparent)]
    ImageInputs(#[from] ImageInputsError),
    /// The options of an import are no JSON object.
    #[error("the options are no JSON object: {reason}")]
    Options {
        /// The parser's message.
        reason: String,
    },
    /// The bundle is refused.
    #[error("the bundle is refused: {0}")]
    Bundle(#[from] BundleError),
    /// The content cannot be served.
    #[error(transparent)]
    Load(LoadError),
    /// The server failed.
    #[error("internal error")]
    Internal {
        /// The cause, for the log only.
        cause: String,
    },
    /// The files could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The plugin refused the file, or failed.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// The version could not be published.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl From<LoadError> for ImportError {
    fn from(error: LoadError) -> ImportError {
        match error {
            LoadError::Plugin(error) => ImportError::Plugin(error),
            error => ImportError::Load(error),
        }
    }
}
