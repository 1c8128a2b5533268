//! Element types: the scalar meaning of every operator, as types for which loops are compiled.

use bytemuck::Pod;
use saggar_tensor::DType;
use saggar_tensor::op::{ReduceKind, Scalar};

use super::math;

/// An operator of two operands.
pub(super) trait BinaryOperator<T, R> {
    /// Returns the result for one pair.
    fn apply(a: T, b: T) -> R;
}

/// An operator of one operand.
pub(super) trait UnaryFunction<T, R> {
    /// Returns the result for one element.
    fn apply(x: T) -> R;
}

/// A type of registers and accumulators. `F16` elements are held as `f32`.
pub(super) trait Element: Pod + Send + Sync + PartialOrd {
    /// Converts a scalar to this type.
    fn from_scalar(scalar: Scalar) -> Self;
    /// Converts a coordinate to this type.
    fn from_index(index: i64) -> Self;
    /// Returns the result of reducing no elements.
    fn identity(kind: ReduceKind) -> Self;
    /// Returns whether the value is NaN.
    fn is_nan(self) -> bool;
    /// Returns the sum; integers wrap.
    fn add(self, other: Self) -> Self;
    /// Returns the difference; integers wrap.
    fn sub(self, other: Self) -> Self;
    /// Returns the product; integers wrap.
    fn mul(self, other: Self) -> Self;
    /// Returns the quotient; integers truncate, and division by 0 gives 0.
    fn div(self, other: Self) -> Self;
    /// Returns the power. Only for floats.
    fn pow(self, other: Self) -> Self;
    /// Returns `-x`; integers wrap.
    fn neg(self) -> Self;
    /// Returns `|x|`; integers wrap.
    fn abs(self) -> Self;
    /// Returns -1, 0, 1 or NaN.
    fn sign(self) -> Self;
    /// Returns whether the value is not 0.
    fn truth(self) -> bool;
    /// Returns the slice as `f32` if this type is `f32`, else `None`.
    fn floats(_: &[Self]) -> Option<&[f32]> {
        None
    }
    /// Returns the mutable slice as `f32` if this type is `f32`, else `None`.
    fn floats_mut(_: &mut [Self]) -> Option<&mut [f32]> {
        None
    }
}

/// Passes the functions of binary operators to the macro `$user`: those whose result has the type of the operands, and
/// those whose result is a boolean. Each has the name of its `BinaryOp`, and an expression over two operands.
macro_rules! binary_functions {
    ($user:ident) => {
        $user! {
            same {
                Add = |a, b| a.add(b);
                Sub = |a, b| a.sub(b);
                Mul = |a, b| a.mul(b);
                Div = |a, b| a.div(b);
                Pow = |a, b| a.pow(b);
                // Without a branch between the two values, so that loops are vectorised.
                Max = |a, b| if a.is_nan() | (a > b) { a } else { b };
                Min = |a, b| if a.is_nan() | (a < b) { a } else { b };
            }
            boolean {
                Equal = |a, b| a == b;
                Less = |a, b| a < b;
                LessOrEqual = |a, b| a <= b;
                LogicalAnd = |a, b| a.truth() & b.truth();
                LogicalOr = |a, b| a.truth() | b.truth();
                LogicalXor = |a, b| a.truth() ^ b.truth();
            }
        }
    };
}
pub(super) use binary_functions;

macro_rules! define_binary_functions {
    (
        same { $($same:ident = |$a:ident, $b:ident| $result:expr;)* }
        boolean { $($boolean:ident = |$c:ident, $d:ident| $truth:expr;)* }
    ) => {
        $(
            pub(super) struct $same;
            impl<T: Element> BinaryOperator<T, T> for $same {
                #[inline(always)]
                fn apply($a: T, $b: T) -> T {
                    $result
                }
            }
        )*
        $(
            pub(super) struct $boolean;
            impl<T: Element> BinaryOperator<T, u8> for $boolean {
                #[inline(always)]
                fn apply($c: T, $d: T) -> u8 {
                    u8::from($truth)
                }
            }
        )*
    };
}
binary_functions!(define_binary_functions);

/// Passes the functions of unary operators to the macro `$user`: those of all types whose result has the type of the
/// operand, those whose result is a boolean, and those of floats. Each has the name of its `UnaryOp`, and an expression
/// over the operand.
macro_rules! unary_functions {
    ($user:ident) => {
        $user! {
            same {
                Neg = |x| x.neg();
                Abs = |x| x.abs();
                Sign = |x| x.sign();
            }
            boolean {
                LogicalNot = |x| !x.truth();
            }
            float {
                Exp = |x| math::exp(x);
                Log = |x| math::log(x);
                Sqrt = |x| x.sqrt();
                Reciprocal = |x| 1.0 / x;
                Sin = |x| math::sin(x);
                Cos = |x| math::cos(x);
                Tanh = |x| math::tanh(x);
                Erf = |x| math::erf(x);
                Floor = |x| x.floor();
                Ceil = |x| x.ceil();
                RoundEven = |x| x.round_ties_even();
            }
        }
    };
}
pub(super) use unary_functions;

macro_rules! define_unary_functions {
    (
        same { $($same:ident = |$x:ident| $result:expr;)* }
        boolean { $($boolean:ident = |$y:ident| $truth:expr;)* }
        float { $($float:ident = |$z:ident| $number:expr;)* }
    ) => {
        $(
            pub(super) struct $same;
            impl<T: Element> UnaryFunction<T, T> for $same {
                #[inline(always)]
                fn apply($x: T) -> T {
                    $result
                }
            }
        )*
        $(
            pub(super) struct $boolean;
            impl<T: Element> UnaryFunction<T, u8> for $boolean {
                #[inline(always)]
                fn apply($y: T) -> u8 {
                    u8::from($truth)
                }
            }
        )*
        $(
            pub(super) struct $float;
            impl UnaryFunction<f32, f32> for $float {
                #[inline(always)]
                fn apply($z: f32) -> f32 {
                    $number
                }
            }
        )*
    };
}
unary_functions!(define_unary_functions);

/// Rounds to half precision.
pub(super) struct RoundHalf;
impl UnaryFunction<f32, f32> for RoundHalf {
    #[inline(always)]
    fn apply(x: f32) -> f32 {
        saggar_device::half::round(x)
    }
}

impl Element for f32 {
    fn floats(values: &[f32]) -> Option<&[f32]> {
        Some(values)
    }
    fn floats_mut(values: &mut [f32]) -> Option<&mut [f32]> {
        Some(values)
    }
    fn from_scalar(scalar: Scalar) -> f32 {
        scalar.as_f64() as f32
    }
    #[inline(always)]
    fn from_index(index: i64) -> f32 {
        index as f32
    }
    fn identity(kind: ReduceKind) -> f32 {
        match kind {
            ReduceKind::Sum => 0.0,
            ReduceKind::Product => 1.0,
            ReduceKind::Max => f32::NEG_INFINITY,
            ReduceKind::Min => f32::INFINITY,
        }
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        f32::is_nan(self)
    }
    #[inline(always)]
    fn add(self, other: f32) -> f32 {
        self + other
    }
    #[inline(always)]
    fn sub(self, other: f32) -> f32 {
        self - other
    }
    #[inline(always)]
    fn mul(self, other: f32) -> f32 {
        self * other
    }
    #[inline(always)]
    fn div(self, other: f32) -> f32 {
        self / other
    }
    #[inline(always)]
    fn pow(self, other: f32) -> f32 {
        math::pow(self, other)
    }
    #[inline(always)]
    fn neg(self) -> f32 {
        -self
    }
    #[inline(always)]
    fn abs(self) -> f32 {
        f32::abs(self)
    }
    #[inline(always)]
    fn sign(self) -> f32 {
        if self > 0.0 {
            1.0
        } else if self < 0.0 {
            -1.0
        } else {
            // Zero keeps its sign, and NaN stays NaN.
            self
        }
    }
    #[inline(always)]
    fn truth(self) -> bool {
        self != 0.0
    }
}

/// Implements [`Element`] for an integer type.
macro_rules! integer {
    ($($t:ident)*) => {$(
        impl Element for $t {
            fn from_scalar(scalar: Scalar) -> $t {
                match scalar {
                    Scalar::Float(value) => value as $t,
                    Scalar::Int(value) => value as $t,
                }
            }
            #[inline(always)]
            fn from_index(index: i64) -> $t {
                index as $t
            }
            fn identity(kind: ReduceKind) -> $t {
                match kind {
                    ReduceKind::Sum => 0,
                    ReduceKind::Product => 1,
                    ReduceKind::Max => $t::MIN,
                    ReduceKind::Min => $t::MAX,
                }
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
            #[inline(always)]
            fn add(self, other: $t) -> $t {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: $t) -> $t {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn mul(self, other: $t) -> $t {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn div(self, other: $t) -> $t {
                if other == 0 { 0 } else { self.wrapping_div(other) }
            }
            fn pow(self, _: $t) -> $t {
                unreachable!("inference refuses the power of integers")
            }
            #[inline(always)]
            fn neg(self) -> $t {
                self.wrapping_neg()
            }
            #[inline(always)]
            #[allow(unused_comparisons, reason = "one definition for signed and unsigned types")]
            fn abs(self) -> $t {
                if self < 0 { self.wrapping_neg() } else { self }
            }
            #[inline(always)]
            #[allow(unused_comparisons, reason = "one definition for signed and unsigned types")]
            fn sign(self) -> $t {
                if self < 0 { (0 as $t).wrapping_sub(1) } else { $t::from(self > 0) }
            }
            #[inline(always)]
            fn truth(self) -> bool {
                self != 0
            }
        }
    )*};
}

integer!(i64 u64 i32 u32 i8 u8);

/// Evaluates an expression with `$t` as the register type of a data type.
macro_rules! with_element {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            saggar_tensor::DType::F32 | saggar_tensor::DType::F16 => {
                type $t = f32;
                $body
            }
            saggar_tensor::DType::I64 => {
                type $t = i64;
                $body
            }
            saggar_tensor::DType::U64 => {
                type $t = u64;
                $body
            }
            saggar_tensor::DType::I32 => {
                type $t = i32;
                $body
            }
            saggar_tensor::DType::U32 => {
                type $t = u32;
                $body
            }
            saggar_tensor::DType::I8 => {
                type $t = i8;
                $body
            }
            saggar_tensor::DType::U8 => {
                type $t = u8;
                $body
            }
        }
    };
}
pub(super) use with_element;

/// Returns the bytes of an element of `dtype` in a register or accumulator.
pub(super) fn register_bytes(dtype: DType) -> usize {
    match dtype {
        DType::F32 | DType::F16 | DType::I32 | DType::U32 => 4,
        DType::I64 | DType::U64 => 8,
        DType::I8 | DType::U8 => 1,
    }
}
