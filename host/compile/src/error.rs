//! Reasons why a graph cannot be compiled for a target, as data instead of prose.

use saggar_tensor::InterruptedError;
use thiserror::Error;

/// The error for a verified graph that a target cannot run.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum CompileError {
    /// The caller requested to stop.
    #[error(transparent)]
    Interrupted(#[from] InterruptedError),
    /// One tensor exceeds the target's largest allocation.
    #[error("{op} '{label}': {value_bytes} bytes in one tensor, but this device allows {limit_bytes}")]
    ValueTooLarge {
        /// The operator's name.
        op: &'static str,
        /// The node's label, or its number in the graph.
        label: String,
        /// Size of the tensor in the device's memory, padded to its alignment, in bytes.
        value_bytes: usize,
        /// The target's `slab_bytes_max`, in bytes.
        limit_bytes: usize,
    },
    /// The kernels together exceed a limit of [`crate::limits`].
    #[error("the graph's kernels have more than {limit} {what} together: compute less in one graph")]
    ProgramTooLarge {
        /// The counted quantity that exceeds its limit.
        what: &'static str,
        /// Largest count that a program can have.
        limit: usize,
    },
    /// The compiler violated one of its invariants. It refuses the graph instead of computing a wrong result.
    #[error("internal error in the compiler's {pass}, at {place}: {what}; please report it together with the graph")]
    Internal {
        /// The pass that violated the invariant or detected the violation.
        pass: &'static str,
        /// The affected kernel or node.
        place: String,
        /// The violated invariant.
        what: &'static str,
    },
}
