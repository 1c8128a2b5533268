//! Plugins: the WebAssembly component host, its WIT bindings, limits, artefact cache and version watcher.
//!
//! A plugin gets what this crate gives it and nothing else: handles of tensors, variables, graphs and batches that the
//! host owns. [`PluginEngine`] compiles components, [`train`] runs one inside a job, [`LoadedModel`] predicts with one.
//!
//! Deliberately elsewhere: what operators mean (`tensor`), what a job or a checkpoint is (`jobs`, `store`), which batches
//! requests are put into (`serve`). Nothing here is async: wasm calls and device work block the thread they are made on.

mod artifact;
mod bindings;
pub mod build;
pub mod compiler;
mod complexity;
mod convert;
mod datasets;
mod declarations;
mod dry_run;
mod engine;
pub mod error;
mod graphs;
mod host_error;
mod import;
mod initializers;
mod inspect;
mod instance_state;
mod job;
pub mod limits;
mod logging;
mod loss_scale;
pub mod model;
pub mod shards;
mod shuffle;
mod streaming;
mod tensors;
pub mod train;
mod variables;
pub mod watch;
mod worlds;

pub use compiler::{CompileChildren, CompilePurpose, CompilerMode};
pub use declarations::{ParameterDeclaration, ParameterType, PluginDeclarations};
pub use dry_run::{DryRunModel, dry_run};
pub use engine::{CompiledPlugin, PluginEngine, PluginEngineConfig};
pub use error::PluginError;
pub use import::{ImportRequest, ImportedModel, import};
pub use model::{
    InstanceStartHook, LoadedModel, ModelLimits, ModelParts, ModelPort, ModelRoute, ModelSignature, NamedTensorBytes,
    PredictionOptions, RouteSegment,
};
pub use saggar_device::CancelToken;
pub use shards::{BatchShards, ShardMean};
pub use streaming::{OutputPiece, PieceSink, SendPieceError};
pub use train::{InitialState, JobContext, LogLevel, OpenedModel, TrainLimits, TrainOutcome, train};
pub use watch::ModelWatch;
pub use worlds::{PluginWorld, WIT_FILES, component_exports, plugin_worlds};
