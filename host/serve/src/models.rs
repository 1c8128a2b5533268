//! Models: their versions on disk, the loaded versions, and the transitions between them.

mod batch_executor;
mod commands;
mod ensemble;
mod ensemble_version;
mod guest_threads;
pub mod import;
pub mod lifecycle;
mod load_limiter;
pub mod reconcile_loop;
pub(crate) mod response_cache;
pub mod unserved_reason;
mod version_load;
mod version_scan;

pub(crate) mod batch_queue;
pub mod desired_state;
mod device_recovery;
pub mod device_usage;
mod fair_queue;
mod latency_estimator;
pub mod live_version;
pub mod model_config;
mod model_files;
mod model_metrics;
mod model_record;
pub mod model_state;
mod on_demand;
mod persisted_state;
pub mod plugin_host;
pub mod predictor;
mod publish;
mod removal;
mod residency;
pub mod router;
mod shadow;
pub mod statistics;
mod version_metrics;

pub use device_recovery::DeviceRecovery;
pub use device_usage::DeviceUsageAccount;
pub use import::{DroppedFiles, ImportError, ModelImporter, OnnxImporter};
pub use lifecycle::ModelLifecycle;
pub use live_version::{LiveVersion, VersionLease, VersionOrigin, VersionState};
pub use model_config::{
    BatchConfig, ConfigDuration, EnsembleConfig, EnsembleStep, InstanceLimit, KeepAlive, ModelConfig, ModelConfigError,
    QueueConfig, ResponseCacheConfig,
};
pub use model_files::ModelFiles;
pub use model_state::{ModelStatus, VersionStatus};
pub use plugin_host::PluginHost;
pub use predictor::{LoadError, LoadKind, LoadPhase, LoadedVersion, ModelHost, ModelPredictor, VersionCandidate};
pub use publish::WeightsSource;
pub use reconcile_loop::{ReconcileLoop, ReconcileTriggers};
pub(crate) use removal::RemovedVersions;
pub(crate) use residency::EVICTION_REASONS;
pub use router::ModelRouter;
pub use statistics::VersionStatistics;
pub use unserved_reason::{FollowPolicy, UnservedReason};
