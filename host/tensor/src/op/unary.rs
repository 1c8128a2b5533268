//! Element-wise operators of one operand: the table, and the enum that it defines. Operand and result have the same
//! shape, and the same data type unless stated otherwise.

use serde::{Deserialize, Serialize};

use super::facts::{OperandTypes, OperatorSmoothness, RealDomain, UnaryFacts};
use crate::DType;

/// Exact, smooth arithmetic of signed numbers. Other rows say how they differ.
const SIGNED: UnaryFacts = UnaryFacts {
    operands: OperandTypes::Signed,
    domain: RealDomain::All,
    smoothness: OperatorSmoothness::Smooth,
    is_exponential: false,
    cost: 1,
    error_units: 0.0,
};

/// A float function with one rounding.
const ROUNDED: UnaryFacts = UnaryFacts { operands: OperandTypes::Float, cost: 2, error_units: 1.0, ..SIGNED };

/// A float function that is approximated.
const APPROXIMATE: UnaryFacts = UnaryFacts { cost: 4, error_units: 4.0, ..ROUNDED };

/// Rounding to an integer.
const TO_INTEGER: UnaryFacts =
    UnaryFacts { operands: OperandTypes::Float, smoothness: OperatorSmoothness::Stepped, ..SIGNED };

const CAST: UnaryFacts = UnaryFacts { operands: OperandTypes::Any, error_units: 1.0, ..SIGNED };

/// Passes the table of unary operators without attributes to the macro `$user`. Each row has the documentation, the
/// variant, the method of [`GraphBuilder`](crate::GraphBuilder), the name, and the facts.
macro_rules! unary_table {
    ($user:ident) => {
        $user! {
            /// `-x`; signed integers wrap. Float or signed integer.
            Neg: neg, "neg", SIGNED;
            /// `|x|`; signed integers wrap. Float or signed integer.
            Abs: abs, "abs", UnaryFacts { smoothness: OperatorSmoothness::Kinked, ..SIGNED };
            /// -1, 0 or 1; NaN stays NaN. Float or signed integer.
            Sign: sign, "sign", UnaryFacts { smoothness: OperatorSmoothness::Stepped, ..SIGNED };
            /// `e^x`. Float.
            Exp: exp, "exp", UnaryFacts { is_exponential: true, ..APPROXIMATE };
            /// Natural logarithm; NaN below 0, -inf at 0. Float.
            Log: log, "log", UnaryFacts { domain: RealDomain::Positive, ..APPROXIMATE };
            /// Square root; NaN below 0. Float.
            Sqrt: sqrt, "sqrt", UnaryFacts { domain: RealDomain::Positive, ..ROUNDED };
            /// `1/x`. Float.
            Reciprocal: reciprocal, "reciprocal", UnaryFacts { domain: RealDomain::NonZero, ..ROUNDED };
            /// Sine, radians. Float.
            Sin: sin, "sin", UnaryFacts { cost: 6, ..APPROXIMATE };
            /// Cosine, radians. Float.
            Cos: cos, "cos", UnaryFacts { cost: 6, ..APPROXIMATE };
            /// Hyperbolic tangent. Float.
            Tanh: tanh, "tanh", APPROXIMATE;
            /// Gauss error function. Float.
            Erf: erf, "erf", UnaryFacts { cost: 6, ..APPROXIMATE };
            /// Largest integer not above the operand. Float.
            Floor: floor, "floor", TO_INTEGER;
            /// Smallest integer not below the operand. Float.
            Ceil: ceil, "ceil", TO_INTEGER;
            /// Nearest integer, ties to even. Float.
            RoundEven: round_even, "round-even", TO_INTEGER;
            /// 1 if the operand is 0, else 0. `uint8`.
            LogicalNot: logical_not, "logical-not",
                UnaryFacts { operands: OperandTypes::Boolean, smoothness: OperatorSmoothness::Stepped, ..SIGNED };
            /// The operand unchanged; its gradient is zero. Any type.
            StopGradient: stop_gradient, "stop-gradient",
                UnaryFacts { operands: OperandTypes::Any, cost: 0, ..SIGNED };
        }
    };
}
pub(crate) use unary_table;

macro_rules! define_unary_op {
    ($($(#[$doc:meta])* $variant:ident: $method:ident, $name:literal, $facts:expr;)*) => {
        /// An element-wise operator of one operand.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum UnaryOp {
            $($(#[$doc])* $variant,)*
            /// Conversion to another data type. Float to integer truncates toward zero and saturates (NaN becomes 0);
            /// integer to a narrower integer keeps the low bits.
            Cast(DType),
        }

        impl UnaryOp {
            /// Every operator without attributes: all except `Cast`.
            pub const WITHOUT_ATTRIBUTES: &'static [UnaryOp] = &[$(UnaryOp::$variant),*];

            /// Returns the operator's stable name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(UnaryOp::$variant => $name,)*
                    UnaryOp::Cast(_) => "cast",
                }
            }

            /// Returns the operator's row of the table.
            pub const fn facts(self) -> UnaryFacts {
                match self {
                    $(UnaryOp::$variant => $facts,)*
                    UnaryOp::Cast(_) => CAST,
                }
            }
        }
    };
}
unary_table!(define_unary_op);

impl UnaryOp {
    /// Returns whether the result equals an operand of this data type, bit by bit.
    pub fn is_identity(self, operand: DType) -> bool {
        self == UnaryOp::StopGradient || self == UnaryOp::Cast(operand)
    }

    /// Returns whether the derivative of the result is 0 wherever it exists, or is defined as 0.
    pub fn has_zero_slope(self) -> bool {
        self == UnaryOp::StopGradient || self.facts().smoothness == OperatorSmoothness::Stepped
    }

    pub(super) fn prototypes() -> impl Iterator<Item = UnaryOp> {
        UnaryOp::WITHOUT_ATTRIBUTES.iter().copied().chain([UnaryOp::Cast(DType::F32)])
    }
}
