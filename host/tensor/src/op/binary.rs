//! Element-wise operators of two operands of one shape and one data type: the table, and the enum that it defines.

use serde::{Deserialize, Serialize};

use super::facts::{BinaryFacts, NeutralOperand, OperandTypes, OperatorSmoothness, RealDomain};

/// Smooth arithmetic with one rounding. Other rows say how they differ.
const ARITHMETIC: BinaryFacts = BinaryFacts {
    operands: OperandTypes::Any,
    is_boolean: false,
    domains: [RealDomain::All, RealDomain::All],
    smoothness: OperatorSmoothness::Smooth,
    neutral: NeutralOperand::Absent,
    cost: 1,
    error_units: 1.0,
};

/// One of both operands.
const EXTREME: BinaryFacts = BinaryFacts { smoothness: OperatorSmoothness::Kinked, error_units: 0.0, ..ARITHMETIC };

const COMPARISON: BinaryFacts = BinaryFacts { is_boolean: true, smoothness: OperatorSmoothness::Stepped, ..EXTREME };

const LOGICAL: BinaryFacts = BinaryFacts { operands: OperandTypes::Boolean, ..COMPARISON };

/// Passes the table of binary operators to the macro `$user`. Each row has the documentation, the variant, the method
/// of [`GraphBuilder`](crate::GraphBuilder), the name, and the facts.
macro_rules! binary_table {
    ($user:ident) => {
        $user! {
            /// Sum; integers wrap.
            // x + -0 is x for every float, but -0 + 0 is +0.
            Add: add, "add", BinaryFacts { neutral: NeutralOperand::Either { float: -0.0, int: 0 }, ..ARITHMETIC };
            /// Difference; integers wrap.
            Sub: sub, "sub", BinaryFacts { neutral: NeutralOperand::Second { float: 0.0, int: 0 }, ..ARITHMETIC };
            /// Product; integers wrap.
            Mul: mul, "mul", BinaryFacts { neutral: NeutralOperand::Either { float: 1.0, int: 1 }, ..ARITHMETIC };
            /// Quotient; integers truncate toward zero, and division by zero gives 0 (defined so that every device
            /// agrees).
            Div: div, "div", BinaryFacts {
                domains: [RealDomain::All, RealDomain::NonZero],
                neutral: NeutralOperand::Second { float: 1.0, int: 1 },
                cost: 2,
                ..ARITHMETIC
            };
            /// `a` to the power of `b`. Float.
            Pow: pow, "pow", BinaryFacts {
                operands: OperandTypes::Float,
                domains: [RealDomain::Positive, RealDomain::All],
                cost: 8,
                error_units: 4.0,
                ..ARITHMETIC
            };
            /// The larger; NaN if either is NaN.
            Max: max, "max", EXTREME;
            /// The smaller; NaN if either is NaN.
            Min: min, "min", EXTREME;
            /// 1 if equal, else 0. Result `uint8`.
            Equal: equal, "equal", COMPARISON;
            /// 1 if `a < b`, else 0. Result `uint8`.
            Less: less, "lesser", COMPARISON;
            /// 1 if `a <= b`, else 0. Result `uint8`.
            LessOrEqual: less_or_equal, "lesser-or-equal", COMPARISON;
            /// 1 if both are non-zero, else 0. `uint8` operands and result.
            LogicalAnd: logical_and, "logical-and", LOGICAL;
            /// 1 if either is non-zero, else 0. `uint8` operands and result.
            LogicalOr: logical_or, "logical-or", LOGICAL;
            /// 1 if exactly one is non-zero, else 0. `uint8` operands and result.
            LogicalXor: logical_xor, "logical-xor", LOGICAL;
        }
    };
}
pub(crate) use binary_table;

macro_rules! define_binary_op {
    ($($(#[$doc:meta])* $variant:ident: $method:ident, $name:literal, $facts:expr;)*) => {
        /// An element-wise operator of two operands.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum BinaryOp {
            $($(#[$doc])* $variant,)*
        }

        impl BinaryOp {
            /// Every operator.
            pub const ALL: &'static [BinaryOp] = &[$(BinaryOp::$variant),*];

            /// Returns the operator's stable name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(BinaryOp::$variant => $name,)*
                }
            }

            /// Returns the operator's row of the table.
            pub const fn facts(self) -> BinaryFacts {
                match self {
                    $(BinaryOp::$variant => $facts,)*
                }
            }
        }
    };
}
binary_table!(define_binary_op);
