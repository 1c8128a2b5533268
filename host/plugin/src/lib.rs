//! The WebAssembly component host: WIT bindings, limits and artifact cache for plugins.
//!
//! A plugin gets only what this crate gives it: handles to tensors, variables, graphs and batches that the host owns.
//! [`PluginEngine`] compiles components, [`train()`] runs a plugin inside a job, [`LoadedModel`] predicts with a plugin.
//!
//! Deliberately elsewhere: the semantics of operators (`tensor`), jobs and checkpoints (`jobs`, `store`), the batching
//! of requests (`serve`), building plugins (`cli`). Nothing here is async: wasm calls and device work block the calling thread.

mod artifact;
mod bindings;
mod call_limits;
pub mod compiler;
mod complexity;
mod convert;
mod datasets;
mod declarations;
mod dispatch_observer;
mod dry_run;
mod encode;
mod engine;
pub mod error;
mod failure_reason;
mod graphs;
mod guest_error_code;
mod host_error;
mod http_handler;
mod import;
mod imported_model;
mod initializers;
mod inspect;
mod instance_state;
mod job;
mod job_context;
pub mod limits;
mod logging;
mod loss_scale;
pub mod model;
mod named_enum;
pub mod shards;
mod shuffle;
mod step;
mod streaming;
mod tensors;
pub mod train;
mod variables;
mod wasi;
mod wasi_state;
mod worlds;

pub use compiler::children::{CompileChildren, CompilePurpose, CompilerMode};
pub use datasets::batch_reader::{BatchReadOptions, BatchReader};
pub use declarations::PluginDeclarations;
pub use dispatch_observer::{DispatchObserver, ObservedGraph};
pub use dry_run::{DryRunModel, dry_run};
pub use encode::encode_component;
pub use engine::{CompiledPlugin, PluginEngine, PluginEngineConfig, WeakCompiledPlugin};
pub use error::PluginError;
pub use failure_reason::FailureReason;
pub use guest_error_code::GuestErrorCode;
pub use http_handler::handler_call::{HandlerOptions, HandlerRequest, HandlerResponse, ResponseSink};
pub use http_handler::handler_route::{HandlerMatch, HandlerMethod, HandlerRoute, match_handlers};
pub use http_handler::response_head::ResponseHead;
pub use import::{ImportRequest, import};
pub use imported_model::ImportedModel;
pub use inspect::{check_component, interface_versions};
pub use job_context::{InitialState, JobContext, LogLevel, OpenedModel};
pub use model::{
    DeclaredWeights, InstanceStartHook, LoadedModel, ModelLimits, ModelParts, ModelPort, ModelRoute, ModelSignature,
    NamedTensor, PredictionOptions, RouteSegment,
};
pub use saggar_device::CancelToken;
pub use shards::{BatchShards, ShardMean, decode_numbers};
pub use step::{StepCall, StepOutcome, StepValue, run_step};
pub use streaming::reply::{OutputPiece, PieceSink, SendPieceError};
pub use train::{TrainLimits, TrainOutcome, train};
pub use worlds::{PluginWorld, WIT_FILES, component_exports, plugin_worlds};
