//! Scalar expressions: the code of a fused kernel for one point of its iteration space.

use saggar_tensor::DType;
use saggar_tensor::op::{BinaryOp, RandomDistribution, Scalar, UnaryOp};
use serde::{Deserialize, Serialize};

use super::ValueId;

/// The result of an earlier instruction, as an index into [`ScalarExpr::instructions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Register(pub u32);

/// Straight-line code in single-assignment form; no two instructions are equal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScalarExpr {
    /// Instructions, each with the data type of its result.
    pub instructions: Vec<(Instruction, DType)>,
}

impl ScalarExpr {
    /// Returns whether `register` is the unmodified reduced, contracted or convolved element.
    ///
    /// # Panics
    /// Panics if the register is not one of this expression's.
    pub fn is_accumulated(&self, register: Register) -> bool {
        matches!(self.instructions[register.0 as usize].0, Instruction::Accumulated)
    }
}

/// One scalar operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Instruction {
    /// Loads an element of a value, or `fill` outside the view's bounds.
    Load {
        /// The value.
        value: ValueId,
        /// The view that gives the element's index.
        view: AffineView,
        /// Result outside the view's bounds; `None` if the view has no bounds.
        fill: Option<Scalar>,
    },
    /// A constant.
    Immediate(Scalar),
    /// The view's element index, converted to the instruction's data type. The view has no bounds.
    Index(AffineView),
    /// The random number of element `view`, with the key loaded from `key` (`uint32[4]`); see `SourceOp::Random`.
    Random {
        /// Value that holds seed and step.
        key: ValueId,
        /// Number of the random stream.
        stream: u32,
        /// Distribution: bits or uniform.
        distribution: RandomDistribution,
        /// The view that gives the element's index; it has no bounds.
        view: AffineView,
    },
    /// The reduced, contracted or convolved element. Valid in epilogues only.
    Accumulated,
    /// The element of product `.0` of a fused matmul. Valid in its score expression only.
    Product(u32),
    /// An operator of one operand; a cast's target is the instruction's data type.
    Unary(UnaryOp, Register),
    /// An operator of two operands of one data type.
    Binary(BinaryOp, Register, Register),
    /// Condition (`uint8`), value if it is not 0, value if it is 0.
    Select(Register, Register, Register),
}

/// An affine map from iteration coordinates to an element index: `offset + sum(strides[d] * coordinate[d])`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AffineView {
    /// Index at coordinate 0; can be negative if the bounds exclude coordinate 0.
    pub offset: i64,
    /// Stride of each iteration dimension; 0 repeats, negative reverses.
    pub strides: Vec<i64>,
    /// The map is defined only if every bound holds.
    pub bounds: Vec<CoordinateBound>,
}

/// `low <= coordinate[dim] < high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CoordinateBound {
    /// The iteration dimension.
    pub dim: usize,
    /// First coordinate inside.
    pub low: i64,
    /// First coordinate after the bound range.
    pub high: i64,
}
