//! Models: the versions on disk, those that are up, and the way from one to the next.

mod batch;
mod bring_up;
pub(crate) mod cache;
mod commands;
mod ensemble;
mod found;
mod guest_threads;
pub mod import;
pub mod lifecycle;
mod load_turns;
pub mod loader;

pub mod metered;
mod model_files;
mod pace;
pub mod plan;
pub mod plugin_host;
pub mod predictor;
mod publish;
pub(crate) mod queue;
mod residency;
mod revival;
pub mod router;
mod series;
pub mod settings;
mod shadow;
pub mod state;
pub mod statistics;
mod turns;
pub mod version;
mod version_series;

pub use import::{DroppedFiles, ImportError, ModelImporter, OnnxImporter};
pub use lifecycle::Lifecycle;
pub use loader::{Loader, Ticks};
pub use metered::Account;
pub use model_files::ModelFiles;
pub use plugin_host::PluginHost;
pub use predictor::{Candidate, Kind, LoadError, Loaded, ModelHost, Phase, Predictor};
pub use publish::Weights;
pub use revival::Revival;
pub use router::ModelRouter;
pub use settings::{BadSettings, Batch, Caching, Ensemble, Instances, KeepAlive, Settings, Step, Time, Waiting};
pub use state::{ModelStatus, VersionStatus};
pub use statistics::Statistics;
pub use version::{Lease, Origin, Serving, VersionState};
