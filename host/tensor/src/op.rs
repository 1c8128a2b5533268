//! The closed set of primitive operators, in families. Every compiler stage handles each of them.
//!
//! What other code asks about an operator is answered here, in the file of its family: its name, the data types that it
//! takes, its cost, its tolerance. For element-wise operators these facts are a table (`unary.rs`, `binary.rs`).
//!
//! Primitives never broadcast implicitly: the builder inserts `MovementOp::Broadcast`. Composites (softmax, losses,
//! optimizers ...) are functions in [`crate::nn`] that build primitives; they are not listed here.

use serde::{Deserialize, Serialize};

mod binary;
mod contract;
mod convolution;
mod facts;
mod index;
mod movement;
mod reduce;
mod source;
mod unary;

pub use binary::BinaryOp;
pub(crate) use binary::binary_table;
pub use contract::ContractOp;
pub use convolution::{Conv2d, ConvolutionOp, Pool2d, PoolKind};
pub use facts::{BinaryFacts, NeutralOperand, OperandTypes, OperatorSmoothness, RealDomain, UnaryFacts};
pub use index::{IndexOp, ScatterCombine};
pub use movement::MovementOp;
pub use reduce::{ReduceKind, ReduceOp};
pub use source::{RandomDistribution, Scalar, SourceOp};
pub use unary::UnaryOp;
pub(crate) use unary::unary_table;

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

/// Defines a method for each family that returns the operator of that family.
macro_rules! family_accessors {
    ($($method:ident: $variant:ident, $family:ty;)*) => {
        impl Op {
            $(
                /// Returns the operator of this family, or `None` if it is of another family.
                pub const fn $method(&self) -> Option<&$family> {
                    if let Op::$variant(op) = self { Some(op) } else { None }
                }
            )*
        }
    };
}

family_accessors! {
    as_source: Source, SourceOp;
    as_unary: Unary, UnaryOp;
    as_binary: Binary, BinaryOp;
    as_reduce: Reduce, ReduceOp;
    as_movement: Movement, MovementOp;
    as_contract: Contract, ContractOp;
    as_convolution: Convolution, ConvolutionOp;
    as_index: Index, IndexOp;
}

impl Op {
    /// Returns the operator's stable name: lower-case words joined by hyphens, and WebNN's name if WebNN has the
    /// operator.
    pub const fn name(&self) -> &'static str {
        match self {
            Op::Source(source) => source.name(),
            Op::Unary(unary) => unary.name(),
            Op::Binary(binary) => binary.name(),
            Op::Select => "where",
            Op::Reduce(reduce) => reduce.name(),
            Op::Movement(movement) => movement.name(),
            Op::Contract(contract) => contract.name(),
            Op::Convolution(convolution) => convolution.name(),
            Op::Index(index) => index.name(),
        }
    }

    /// Returns one operator for every name and every way to combine elements, with the smallest attributes.
    pub fn prototypes() -> Vec<Op> {
        let sources = SourceOp::prototypes().into_iter().map(Op::Source);
        let elementwise = UnaryOp::prototypes().map(Op::Unary).chain(BinaryOp::ALL.iter().copied().map(Op::Binary));
        let moving =
            ReduceOp::prototypes().map(Op::Reduce).chain(MovementOp::prototypes().into_iter().map(Op::Movement));
        let windowed = ContractOp::prototypes().into_iter().map(Op::Contract);
        let windowed = windowed.chain(ConvolutionOp::prototypes().into_iter().map(Op::Convolution));
        let indexed = IndexOp::prototypes().map(Op::Index);
        sources.chain(elementwise).chain([Op::Select]).chain(moving).chain(windowed).chain(indexed).collect()
    }

    /// Returns the largest error of a device that conforms, in units of the largest magnitude in the result, or of 1 if
    /// that is larger. A unit is 2^-23 for `float32` and 2^-10 for `float16`.
    pub const fn error_units(&self) -> f64 {
        match self {
            Op::Source(_) | Op::Select | Op::Movement(_) => 0.0,
            Op::Unary(unary) => unary.facts().error_units,
            Op::Binary(binary) => binary.facts().error_units,
            Op::Reduce(reduce) => reduce.error_units(),
            Op::Contract(_) | Op::Convolution(_) | Op::Index(_) => 16.0,
        }
    }

    /// Returns the value of every element if the operator is a fill, else `None`.
    pub fn fill_value(&self) -> Option<Scalar> {
        let Some(SourceOp::Fill(value)) = self.as_source() else { return None };
        Some(*value)
    }

    /// Returns the number of the variable that the operator reads, or `None` if it is another operator.
    pub fn variable(&self) -> Option<u32> {
        let Some(SourceOp::Variable(number)) = self.as_source() else { return None };
        Some(*number)
    }

    /// Returns whether the operator is a reshape.
    pub fn is_reshape(&self) -> bool {
        matches!(self, Op::Movement(MovementOp::Reshape(_)))
    }

    /// Returns whether the operator is a sum of products of two operands: a matrix product, a convolution, or an adjoint
    /// of one.
    pub fn is_contraction(&self) -> bool {
        self.as_contract().is_some() || self.as_convolution().is_some_and(ConvolutionOp::is_contraction)
    }
}

#[cfg(test)]
mod tests;
