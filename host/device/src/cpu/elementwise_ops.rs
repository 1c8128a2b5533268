//! Dispatch of unary and binary operators to the loops that compute them.

use saggar_tensor::DType;
use saggar_tensor::op::{BinaryOp, UnaryOp};

use super::element::{self, Element, UnaryFunction, with_element};
use super::elementwise_loops::{BlockSource, apply_binary, apply_unary, elements_mut};

/// Conversion between element types with the semantics of `UnaryOp::Cast`, which are those of Rust's `as`.
struct CastFunction;

macro_rules! conversions {
    ($($from:ty => $($to:ty)*;)*) => {$($(
        impl UnaryFunction<$from, $to> for CastFunction {
            #[inline(always)]
            fn apply(x: $from) -> $to {
                x as $to
            }
        }
    )*)*};
}

conversions! {
    f32 => f32 i64 u64 i32 u32 i8 u8;
    i64 => f32 i64 u64 i32 u32 i8 u8;
    u64 => f32 i64 u64 i32 u32 i8 u8;
    i32 => f32 i64 u64 i32 u32 i8 u8;
    u32 => f32 i64 u64 i32 u32 i8 u8;
    i8 => f32 i64 u64 i32 u32 i8 u8;
    u8 => f32 i64 u64 i32 u32 i8 u8;
}

/// An element type, with the operators that only some types have.
pub(super) trait ElementOps: Element {
    /// Computes an operator that only floats have.
    fn float(op: UnaryOp, x: BlockSource<'_, Self>, out: &mut [Self]);
    /// Computes a conversion.
    fn cast(to: DType, x: BlockSource<'_, Self>, bytes: &mut [u8], len: usize);
}

impl ElementOps for f32 {
    fn float(op: UnaryOp, x: BlockSource<'_, f32>, out: &mut [f32]) {
        match op {
            UnaryOp::Exp => apply_unary::<_, _, element::Exp>(x, out),
            UnaryOp::Log => apply_unary::<_, _, element::Log>(x, out),
            UnaryOp::Sqrt => apply_unary::<_, _, element::Sqrt>(x, out),
            UnaryOp::Reciprocal => apply_unary::<_, _, element::Reciprocal>(x, out),
            UnaryOp::Sin => apply_unary::<_, _, element::Sin>(x, out),
            UnaryOp::Cos => apply_unary::<_, _, element::Cos>(x, out),
            UnaryOp::Tanh => apply_unary::<_, _, element::Tanh>(x, out),
            UnaryOp::Erf => apply_unary::<_, _, element::Erf>(x, out),
            UnaryOp::Floor => apply_unary::<_, _, element::Floor>(x, out),
            UnaryOp::Ceil => apply_unary::<_, _, element::Ceil>(x, out),
            UnaryOp::RoundEven => apply_unary::<_, _, element::RoundEven>(x, out),
            UnaryOp::Neg
            | UnaryOp::Abs
            | UnaryOp::Sign
            | UnaryOp::LogicalNot
            | UnaryOp::StopGradient
            | UnaryOp::Cast(_) => {
                unreachable!("`unary` answers for operators of all types")
            }
        }
    }

    fn cast(to: DType, x: BlockSource<'_, f32>, bytes: &mut [u8], len: usize) {
        with_element!(to, R => apply_unary::<f32, R, CastFunction>(x, &mut elements_mut::<R>(bytes)[..len]));
    }
}

macro_rules! integer_operand {
    ($($t:ident)*) => {$(
        impl ElementOps for $t {
            fn float(op: UnaryOp, _: BlockSource<'_, $t>, _: &mut [$t]) {
                unreachable!("inference refuses {op:?} of integers")
            }

            fn cast(to: DType, x: BlockSource<'_, $t>, bytes: &mut [u8], len: usize) {
                with_element!(to, R => apply_unary::<$t, R, CastFunction>(x, &mut elements_mut::<R>(bytes)[..len]));
            }
        }
    )*};
}

integer_operand!(i64 u64 i32 u32 i8 u8);

/// Computes a unary operator into the first `len` elements of a slot.
pub(super) fn unary<T: ElementOps>(op: UnaryOp, x: BlockSource<'_, T>, bytes: &mut [u8], len: usize) {
    match op {
        UnaryOp::Neg => apply_unary::<T, T, element::Neg>(x, &mut elements_mut(bytes)[..len]),
        UnaryOp::Abs => apply_unary::<T, T, element::Abs>(x, &mut elements_mut(bytes)[..len]),
        UnaryOp::Sign => apply_unary::<T, T, element::Sign>(x, &mut elements_mut(bytes)[..len]),
        UnaryOp::LogicalNot => apply_unary::<T, u8, element::LogicalNot>(x, &mut bytes[..len]),
        UnaryOp::StopGradient => super::elementwise_loops::copy(x, &mut elements_mut(bytes)[..len]),
        UnaryOp::Cast(to) => T::cast(to, x, bytes, len),
        UnaryOp::Exp
        | UnaryOp::Log
        | UnaryOp::Sqrt
        | UnaryOp::Reciprocal
        | UnaryOp::Sin
        | UnaryOp::Cos
        | UnaryOp::Tanh
        | UnaryOp::Erf
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::RoundEven => T::float(op, x, &mut elements_mut(bytes)[..len]),
    }
}

/// Computes a binary operator into the first `len` elements of a slot.
pub(super) fn binary<T: Element>(
    op: BinaryOp,
    a: BlockSource<'_, T>,
    b: BlockSource<'_, T>,
    bytes: &mut [u8],
    len: usize,
) {
    match op {
        BinaryOp::Add => apply_binary::<T, T, element::Add>(a, b, &mut elements_mut(bytes)[..len]),
        BinaryOp::Sub => apply_binary::<T, T, element::Sub>(a, b, &mut elements_mut(bytes)[..len]),
        BinaryOp::Mul => apply_binary::<T, T, element::Mul>(a, b, &mut elements_mut(bytes)[..len]),
        BinaryOp::Div => apply_binary::<T, T, element::Div>(a, b, &mut elements_mut(bytes)[..len]),
        BinaryOp::Pow => apply_binary::<T, T, element::Pow>(a, b, &mut elements_mut(bytes)[..len]),
        BinaryOp::Max => apply_binary::<T, T, element::Max>(a, b, &mut elements_mut(bytes)[..len]),
        BinaryOp::Min => apply_binary::<T, T, element::Min>(a, b, &mut elements_mut(bytes)[..len]),
        BinaryOp::Equal => apply_binary::<T, u8, element::Equal>(a, b, &mut bytes[..len]),
        BinaryOp::Less => apply_binary::<T, u8, element::Less>(a, b, &mut bytes[..len]),
        BinaryOp::LessOrEqual => apply_binary::<T, u8, element::LessOrEqual>(a, b, &mut bytes[..len]),
        BinaryOp::LogicalAnd => apply_binary::<T, u8, element::LogicalAnd>(a, b, &mut bytes[..len]),
        BinaryOp::LogicalOr => apply_binary::<T, u8, element::LogicalOr>(a, b, &mut bytes[..len]),
        BinaryOp::LogicalXor => apply_binary::<T, u8, element::LogicalXor>(a, b, &mut bytes[..len]),
    }
}
