//! Why a graph cannot be compiled for a target: data, not prose.

use saggar_tensor::InterruptedError;
use thiserror::Error;

/// A verified graph that a target cannot run.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum CompileError {
    /// The caller asked to stop.
    #[error(transparent)]
    Interrupted(#[from] InterruptedError),
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
    /// The kernels would be too large together; see [`crate::limits`].
    #[error("the graph's kernels have more than {limit} {what} together: compute less in one graph")]
    ProgramTooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How many of them a program may have.
        limit: usize,
    },
    /// The compiler broke a promise of its own: the graph is refused rather than computed wrongly.
    #[error("internal error in the compiler's {pass}, at {place}: {what}; please report it together with the graph")]
    Internal {
        /// The pass that broke it, or that found it broken.
        pass: &'static str,
        /// The kernel or the node where it did.
        place: String,
        /// What was promised.
        what: &'static str,
    },
}
