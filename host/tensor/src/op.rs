//! The closed vocabulary of primitive operators, in families. Every stage answers for each of them.
//!
//! Primitives never broadcast implicitly: the builder inserts `Movement::Broadcast`. Composites (softmax, losses,
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

pub use binary::Binary;
pub use contract::Contract;
pub use convolution::{Conv2d, Convolution, Pool, Pool2d};
pub use index::{Combine, Index};
pub use movement::Movement;
pub use reduce::{Reduce, ReduceKind};
pub use source::{Distribution, Scalar, Source};
pub use unary::Unary;

/// A primitive operator with its attributes; operands stand in the graph's node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// Values that come from outside or from nothing.
    Source(Source),
    /// One operand, element by element.
    Unary(Unary),
    /// Two operands of one shape, element by element.
    Binary(Binary),
    /// `condition ? a : b`, element by element; operands `[condition: uint8, a, b]` of one shape.
    Select,
    /// Fewer elements along some axes; reduced axes stay with size 1.
    Reduce(Reduce),
    /// Elements moved, repeated or left out; never changed.
    Movement(Movement),
    /// Sums of products: matrix multiplication.
    Contract(Contract),
    /// Sliding windows in two dimensions, and their adjoints.
    Convolution(Convolution),
    /// Elements chosen by other elements' values.
    Index(Index),
}
