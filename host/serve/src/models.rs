//! Models: the versions on disk, the one of each that serves, and the way from one to the next.

pub mod import;
pub mod loader;
mod metered;
pub mod plugin_host;
pub mod predictor;
pub mod router;
mod series;
pub mod version;

pub use import::{DroppedFiles, ImportError, ModelImporter, OnnxImporter};
pub use loader::{Loader, Ticks};
pub use plugin_host::PluginHost;
pub use predictor::{LoadError, Loaded, ModelHost, Phase, Predictor};
pub use router::{ModelRouter, ModelStatus, VersionStatus};
pub use version::{Lease, Origin, Serving, VersionState};
