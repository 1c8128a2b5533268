//! Scalar expressions: what a fused kernel computes for one point of its iteration space.

use saggar_tensor::DType;
use saggar_tensor::op::{BinaryOp, RandomDistribution, Scalar, UnaryOp};
use serde::{Deserialize, Serialize};

use crate::program::ValueId;

/// The result of an earlier instruction: its position in [`ScalarExpr::instructions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Register(pub u32);

/// Straight-line code in single assignment; no two instructions are equal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScalarExpr {
    /// Each with the data type of its result.
    pub instructions: Vec<(Instruction, DType)>,
}

impl ScalarExpr {
    /// Whether a register is the folded, contracted or convolved element as it is.
    ///
    /// # Panics
    /// Where the register is not one of this code's.
    pub fn is_accumulated(&self, register: Register) -> bool {
        matches!(self.instructions[register.0 as usize].0, Instruction::Accumulated)
    }
}

/// One scalar operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Instruction {
    /// An element of a value; outside the view's bounds, `fill`.
    Load {
        /// Which value.
        value: ValueId,
        /// Which element.
        view: AffineView,
        /// What stands outside the view's bounds; none where it has no bounds.
        fill: Option<Scalar>,
    },
    /// A constant.
    Immediate(Scalar),
    /// The view's element index as a number of the instruction's data type (it has no bounds).
    Index(AffineView),
    /// The random number of element `view`, with its key loaded from `key` (`uint32[4]`); see `Source::Random`.
    Random {
        /// Seed and step.
        key: ValueId,
        /// Which stream.
        stream: u32,
        /// Bits or uniform.
        distribution: RandomDistribution,
        /// Which element; it has no bounds.
        view: AffineView,
    },
    /// The folded, contracted or convolved element; in epilogues only.
    Accumulated,
    /// The element of product `.0` of a chain; in its link only.
    Product(u32),
    /// One operand; a cast's target is the instruction's data type.
    Unary(UnaryOp, Register),
    /// Two operands of one data type.
    Binary(BinaryOp, Register, Register),
    /// Condition (`uint8`), value where it is not 0, value where it is.
    Select(Register, Register, Register),
}

/// An affine map from iteration coordinates to an element index: `offset + sum(strides[d] * coordinate[d])`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AffineView {
    /// Index at coordinate 0; may be negative where bounds exclude coordinate 0.
    pub offset: i64,
    /// For each iteration dimension; 0 repeats, negative reverses.
    pub strides: Vec<i64>,
    /// The map is meant only where every bound holds.
    pub bounds: Vec<CoordinateBound>,
}

/// `low <= coordinate[dim] < high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CoordinateBound {
    /// Which iteration dimension.
    pub dim: usize,
    /// First coordinate inside.
    pub low: i64,
    /// First coordinate past the inside.
    pub high: i64,
}
