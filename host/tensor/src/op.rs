//! The closed vocabulary of primitive operators, in families. Every stage answers for each of them.
//!
//! Primitives never broadcast implicitly: the builder inserts `MovementOp::Broadcast`. Composites (softmax, losses,
//! optimisers ...) are functions in [`crate::nn`] that build primitives; they are not listed here.

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

/// A primitive operator with its attributes; operands stand in the graph's node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// Values that come from outside or from nothing.
    Source(SourceOp),
    /// One operand, element by element.
    Unary(UnaryOp),
    /// Two operands of one shape, element by element.
    Binary(BinaryOp),
    /// `condition ? a : b`, element by element; operands `[condition: uint8, a, b]` of one shape.
    Select,
    /// Fewer elements along some axes; reduced axes stay with size 1.
    Reduce(ReduceOp),
    /// Elements moved, repeated or left out; never changed.
    Movement(MovementOp),
    /// Sums of products: matrix multiplication.
    Contract(ContractOp),
    /// Sliding windows in two dimensions, and their adjoints.
    Convolution(ConvolutionOp),
    /// Elements chosen by other elements' values.
    Index(IndexOp),
}
