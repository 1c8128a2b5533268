//! The closed set of primitive operators, in families. Every compiler stage handles each of them.
//!
//! Primitives never broadcast implicitly: the builder inserts `MovementOp::Broadcast`. Composites (softmax, losses,
//! optimizers ...) are functions in [`crate::nn`] that build primitives; they are not listed here.

use serde::{Deserialize, Serialize};

mod binary;
mod contract;
mod convolution;
mod index;
mod movement;
mod name;
mod reduce;
mod source;
mod unary;

pub use binary::BinaryOp;
pub use contract::ContractOp;
pub use convolution::{Conv2d, ConvolutionOp, Pool2d, PoolKind};
pub use index::{IndexOp, ScatterCombine};
pub use movement::MovementOp;
pub use reduce::{ReduceKind, ReduceOp};
pub use source::{RandomDistribution, Scalar, SourceOp};
pub use unary::UnaryOp;

/// A primitive operator with its attributes; the operands are in the graph's node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// Sources: inputs, constants, variables and generated values.
    Source(SourceOp),
    /// Element-wise operator of one operand.
    Unary(UnaryOp),
    /// Element-wise operator of two operands of one shape.
    Binary(BinaryOp),
    /// `condition ? a : b`, element by element; operands `[condition: uint8, a, b]` of one shape.
    Select,
    /// Reduction along some axes; reduced axes stay with size 1.
    Reduce(ReduceOp),
    /// Moves, repeats or drops elements without changing them.
    Movement(MovementOp),
    /// Contraction: matrix multiplication.
    Contract(ContractOp),
    /// Two-dimensional convolutions, pooling, and their adjoints.
    Convolution(ConvolutionOp),
    /// Selection of elements by index tensors.
    Index(IndexOp),
}
