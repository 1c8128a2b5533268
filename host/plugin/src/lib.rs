//! Plugins: the WebAssembly component host, its WIT bindings, limits, artefact cache and version watcher.
//!
//! A plugin gets what this crate gives it and nothing else: handles of tensors, variables, graphs and batches that the
//! host owns. [`Host`] compiles components, [`train`] runs one inside a job, [`LoadedModel`] predicts with one.
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
mod engine;
pub mod error;
mod fault;
mod graphs;
mod import;
mod initial;
mod inspect;
mod job;
pub mod limits;
mod logging;
mod loss_scale;
pub mod model;
mod rehearsal;
mod replies;
pub mod shards;
mod shuffle;
mod state;
mod tensors;
pub mod train;
mod variables;
pub mod watch;
mod worlds;

pub use compiler::{CompileChildren, Compiler, Purpose};
pub use declarations::{Declarations, ParameterDeclaration, ParameterType};
pub use engine::{Host, HostConfig, Plugin};
pub use error::PluginError;
pub use import::{Import, Imported, import};
pub use model::{
    LoadedModel, ModelLimits, ModelParts, ModelPort, NamedBytes, Route, Segment, Signature, Started, Terms,
};
pub use rehearsal::{Rehearsed, rehearse};
pub use replies::{Piece, PieceSink, Undelivered};
pub use saggar_device::CancelToken;
pub use shards::{Mean, Shards};
pub use train::{Beginning, JobContext, LogLevel, OpenedModel, Outcome, TrainLimits, train};
pub use watch::ModelWatch;
pub use worlds::{WIT, World, exports, worlds};
