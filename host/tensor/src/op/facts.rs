//! The columns of the operator tables: what other code asks about an element-wise operator.
//!
//! The rows are in `unary.rs` and `binary.rs`. Inference reads the data types, the compiler the cost and the neutral
//! operand, gradients the smoothness, and the test generators and the conformance suite all of them.

use crate::DType;

/// The data types that the operands of an operator can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandTypes {
    /// Every data type.
    Any,
    /// Float types.
    Float,
    /// Float types and signed integers.
    Signed,
    /// `uint8`, whose elements are true if they are not 0.
    Boolean,
}

impl OperandTypes {
    /// Returns whether operands can have this data type.
    pub const fn contains(self, dtype: DType) -> bool {
        match self {
            OperandTypes::Any => true,
            OperandTypes::Float => dtype.is_float(),
            OperandTypes::Signed => dtype.is_float() || dtype.is_signed_integer(),
            OperandTypes::Boolean => matches!(dtype, DType::U8),
        }
    }

    /// Returns the data types, in the order of [`DType::ALL`].
    pub fn dtypes(self) -> impl Iterator<Item = DType> {
        DType::ALL.into_iter().filter(move |&dtype| self.contains(dtype))
    }

    /// Returns the words for these data types in messages.
    pub const fn description(self) -> &'static str {
        match self {
            OperandTypes::Any => "any type",
            OperandTypes::Float => "float32 or float16",
            OperandTypes::Signed => "a float or signed integer type",
            OperandTypes::Boolean => "uint8",
        }
    }
}

/// The numbers for which a float operator has a finite result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RealDomain {
    /// Every finite number.
    All,
    /// Every finite number except 0.
    NonZero,
    /// Positive numbers.
    Positive,
}

/// How a float operator depends on its operands, within its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorSmoothness {
    /// Differentiable everywhere.
    Smooth,
    /// Continuous, with kinks: at 0, or if two operands are equal.
    Kinked,
    /// Piecewise constant: the derivative is 0 wherever it exists.
    Stepped,
}

/// The operand that leaves the other operand of a binary operator unchanged, bit by bit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NeutralOperand {
    /// No operand does.
    Absent,
    /// The second operand, if it has this value.
    Second {
        /// The value of float types. The sign of 0 counts.
        float: f64,
        /// The value of integer types.
        int: i128,
    },
    /// Either operand, if it has this value.
    Either {
        /// The value of float types. The sign of 0 counts.
        float: f64,
        /// The value of integer types.
        int: i128,
    },
}

/// A row of the table of unary operators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnaryFacts {
    /// Data types of the operand. The result has the same one, except that of a cast.
    pub operands: OperandTypes,
    /// The floats with a finite result.
    pub domain: RealDomain,
    /// How the result depends on a float operand.
    pub smoothness: OperatorSmoothness,
    /// Whether the result grows as fast as `e^|x|`. Else its magnitude is at most that of the operand or 1, whichever is
    /// larger, if the domain is [`RealDomain::All`].
    pub is_exponential: bool,
    /// Work for each element, in additions.
    pub cost: u32,
    /// Largest error of a device; see [`Op::error_units`](super::Op::error_units).
    pub error_units: f64,
}

/// A row of the table of binary operators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BinaryFacts {
    /// Data types of the operands, which are equal.
    pub operands: OperandTypes,
    /// Whether the result is a boolean (`uint8`, 0 or 1). Else it has the data type of the operands.
    pub is_boolean: bool,
    /// The floats with a finite result, for each operand.
    pub domains: [RealDomain; 2],
    /// How the result depends on float operands.
    pub smoothness: OperatorSmoothness,
    /// The operand that changes nothing.
    pub neutral: NeutralOperand,
    /// Work for each element, in additions.
    pub cost: u32,
    /// Largest error of a device; see [`Op::error_units`](super::Op::error_units).
    pub error_units: f64,
}
