//! Serving of models: their versions on disk, the loaded versions, the transitions between them, and predictions. Nothing
//! here depends on the protocol by which a request arrives.

mod batching;
pub mod desired_state;
mod ensemble;
mod error;
mod guest_threads;
mod http_handler;
pub mod import;
pub mod json_text;
pub mod lifecycle;
pub mod limits;
pub mod live_version;
pub mod metrics;
pub mod model_config;
pub mod model_reference;
pub mod model_state;
pub mod plugin_host;
pub mod prediction;
pub mod predictor;
pub mod promotion_gate;
pub mod request_memory;
pub mod router;
pub mod serving_policy;
pub mod shutdown;
#[cfg(test)]
mod tests;
pub mod unserved_reason;
pub mod version_origin;
pub mod version_state;

pub use error::ServingError;
pub use http_handler::handler_call::{HandlerAnswer, run_handler};
pub use http_handler::handler_stream::HandlerStream;
pub use import::import_error::ImportError;
pub use import::model_files::ModelFiles;
pub use import::{DroppedFiles, ModelImporter, OnnxImporter};
pub use lifecycle::ModelLifecycle;
pub use lifecycle::device_recovery::DeviceRecovery;
pub use lifecycle::publish::WeightsSource;
pub use lifecycle::push::{PushedContent, PushedVersion};
pub use lifecycle::reconcile_loop::{ReconcileLoop, ReconcileTriggers};
pub use lifecycle::removal::RemovedVersions;
pub use lifecycle::residency::EVICTION_REASONS;
pub use lifecycle::version_load::SampleDecoder;
pub use live_version::{LiveVersion, VersionLease};
pub use metrics::device_usage::DeviceUsageAccount;
pub use metrics::prediction_outcome::{PredictionFailure, PredictionOutcome};
pub use metrics::rejection::RejectionReason;
pub use metrics::statistics::{RequestTimings, VersionStatistics};
pub use model_config::{
    BatchConfig, ConfigDuration, EnsembleConfig, EnsembleStep, InstanceLimit, InstanceRange, KeepAlive, ModelConfig,
    ModelConfigError, QueueConfig, ResponseCacheConfig,
};
pub use model_reference::{ModelReference, ReferenceError, VersionSelector};
pub use model_state::{ModelStatus, VersionStatus};
pub use plugin_host::PluginHost;
pub use prediction::deadline::PredictionDeadline;
pub use prediction::prediction_call::{CompletedPrediction, ComputeTimings, PredictionCall};
pub use prediction::prediction_inputs::PredictionInputs;
pub use prediction::prediction_sampler::{PredictionSample, PredictionSampler, SampleTicket};
pub use prediction::prediction_service::PredictionService;
pub use predictor::{
    CandidateContent, LoadError, LoadKind, LoadPhase, LoadedVersion, ModelHost, ModelPredictor, VersionCandidate,
};
pub use promotion_gate::PromotionGate;
pub use request_memory::{ClientKey, MemoryCharge, RequestMemoryBudget};
pub use router::ModelRouter;
pub use unserved_reason::{FollowPolicy, UnservedReason};
pub use version_origin::VersionOrigin;
pub use version_state::VersionState;
