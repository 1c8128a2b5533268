//! The reference importer: turns ONNX files into served models.
//!
//! A file is parsed and checked ([`model`]), its initializers become the model's variables, and the rest is stored as
//! the model's configuration ([`import`]). To serve the model, the same plugin builds a graph for each batch size
//! ([`build`]), each node by its operator's rule ([`ops`]). Rules build with a [`graph::FoldingGraph`], which folds
//! constants and passes the rest to a [`backend::GraphBackend`]: the host, or an interpreter in tests.

pub mod backend;
mod base64;
pub mod build;
pub mod call;
pub mod elem;
pub mod error;
pub mod external;
pub mod fold;
pub mod graph;
pub mod host;
pub mod import;
mod import_hints;
pub mod model;
pub mod node;
pub mod ops;
pub mod plan;
mod predict;
pub mod proto;
pub mod signature;
pub mod tensor;
pub mod value;

pub use predict::OnnxPredictor;

saggar_plugin::export!(importer: OnnxPredictor);
