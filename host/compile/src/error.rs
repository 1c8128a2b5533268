//! Why a graph cannot be compiled for a target: data, not prose.

use saggar_tensor::{DType, Interrupted};
use thiserror::Error;

/// A verified graph that a target cannot run.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum CompileError {
    /// The caller asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// The target has no elements of this type.
    #[error("{op} '{label}': this device has no {dtype}")]
    Unsupported {
        /// The operator's name.
        op: &'static str,
        /// The node's label, or its number in the graph.
        label: String,
        /// The type that the target lacks.
        dtype: DType,
    },
    /// One tensor is larger than the target's largest allocation.
    #[error("{op} '{label}': {value_bytes} bytes in one tensor, and this device allows {limit_bytes}")]
    ValueTooLarge {
        /// The operator's name.
        op: &'static str,
        /// The node's label, or its number in the graph.
        label: String,
        /// Bytes of the tensor in the device's memory, padded to its alignment.
        value_bytes: usize,
        /// The target's `slab_bytes_max`.
        limit_bytes: usize,
    },
}
