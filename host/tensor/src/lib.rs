//! The tensor intermediate representation: data types, shapes, the closed operator families, the graph and its builder,
//! type inference, verification of untrusted graphs, composites (`nn`), reverse-mode gradients (`grad`), and the naive
//! reference interpreter (`interp`) that defines the meaning of every operator.
//!
//! No I/O, no clock, no device.

#![deny(clippy::wildcard_enum_match_arm)]

pub mod builder;
pub mod dtype;
pub mod error;
pub mod grad;
pub mod graph;
pub mod infer;
pub mod interp;
pub mod interrupt;
pub mod limits;
pub mod micro_batches;
pub mod mixed_precision;
pub mod nn;
pub mod op;
pub mod shape;
pub mod text;
pub mod verify;

pub use builder::GraphBuilder;
pub use dtype::DType;
pub use error::{GraphError, MicroBatchError, NodeResult};
pub use graph::{Graph, GraphNode, GraphPort, NodeId};
pub use interrupt::{InterruptCheck, InterruptedError};
pub use op::Op;
pub use shape::{Descriptor, Shape, ShapeError};
pub use verify::{VerifiedGraph, verify, verify_interruptible};
