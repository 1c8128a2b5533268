//! From operators to the loops that compute them: every operator of the unary and binary families.

use saggar_tensor::DType;
use saggar_tensor::op::{Binary, Unary};

use super::element::{self, Element, Function, with_element};
use super::lanes::{Source, each, elements_mut, zip};

/// Conversion between element types, as `Unary::Cast` has it and Rust's `as`.
struct Convert;

macro_rules! conversions {
    ($($from:ty => $($to:ty)*;)*) => {$($(
        impl Function<$from, $to> for Convert {
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

/// An element type with the operators that only some types have.
pub(super) trait Operand: Element {
    /// An operator of floats alone.
    fn float(op: Unary, x: Source<'_, Self>, out: &mut [Self]);
    /// A conversion.
    fn cast(to: DType, x: Source<'_, Self>, bytes: &mut [u8], len: usize);
}

impl Operand for f32 {
    fn float(op: Unary, x: Source<'_, f32>, out: &mut [f32]) {
        match op {
            Unary::Exp => each::<_, _, element::Exp>(x, out),
            Unary::Log => each::<_, _, element::Log>(x, out),
            Unary::Sqrt => each::<_, _, element::Sqrt>(x, out),
            Unary::Reciprocal => each::<_, _, element::Reciprocal>(x, out),
            Unary::Sin => each::<_, _, element::Sin>(x, out),
            Unary::Cos => each::<_, _, element::Cos>(x, out),
            Unary::Tanh => each::<_, _, element::Tanh>(x, out),
            Unary::Erf => each::<_, _, element::Erf>(x, out),
            Unary::Floor => each::<_, _, element::Floor>(x, out),
            Unary::Ceil => each::<_, _, element::Ceil>(x, out),
            Unary::RoundEven => each::<_, _, element::RoundEven>(x, out),
            Unary::Neg | Unary::Abs | Unary::Sign | Unary::LogicalNot | Unary::StopGradient | Unary::Cast(_) => {
                unreachable!("`unary` answers for operators of all types")
            }
        }
    }

    fn cast(to: DType, x: Source<'_, f32>, bytes: &mut [u8], len: usize) {
        with_element!(to, R => each::<f32, R, Convert>(x, &mut elements_mut::<R>(bytes)[..len]));
    }
}

macro_rules! integer_operand {
    ($($t:ident)*) => {$(
        impl Operand for $t {
            fn float(op: Unary, _: Source<'_, $t>, _: &mut [$t]) {
                unreachable!("inference refuses {op:?} of integers")
            }

            fn cast(to: DType, x: Source<'_, $t>, bytes: &mut [u8], len: usize) {
                with_element!(to, R => each::<$t, R, Convert>(x, &mut elements_mut::<R>(bytes)[..len]));
            }
        }
    )*};
}

integer_operand!(i64 u64 i32 u32 i8 u8);

/// Computes a unary operator into the first `len` elements of a slot.
pub(super) fn unary<T: Operand>(op: Unary, x: Source<'_, T>, bytes: &mut [u8], len: usize) {
    match op {
        Unary::Neg => each::<T, T, element::Neg>(x, &mut elements_mut(bytes)[..len]),
        Unary::Abs => each::<T, T, element::Abs>(x, &mut elements_mut(bytes)[..len]),
        Unary::Sign => each::<T, T, element::Sign>(x, &mut elements_mut(bytes)[..len]),
        Unary::LogicalNot => each::<T, u8, element::LogicalNot>(x, &mut bytes[..len]),
        Unary::StopGradient => super::lanes::copy(x, &mut elements_mut(bytes)[..len]),
        Unary::Cast(to) => T::cast(to, x, bytes, len),
        Unary::Exp
        | Unary::Log
        | Unary::Sqrt
        | Unary::Reciprocal
        | Unary::Sin
        | Unary::Cos
        | Unary::Tanh
        | Unary::Erf
        | Unary::Floor
        | Unary::Ceil
        | Unary::RoundEven => T::float(op, x, &mut elements_mut(bytes)[..len]),
    }
}

/// Computes a binary operator into the first `len` elements of a slot.
pub(super) fn binary<T: Element>(op: Binary, a: Source<'_, T>, b: Source<'_, T>, bytes: &mut [u8], len: usize) {
    match op {
        Binary::Add => zip::<T, T, element::Add>(a, b, &mut elements_mut(bytes)[..len]),
        Binary::Sub => zip::<T, T, element::Sub>(a, b, &mut elements_mut(bytes)[..len]),
        Binary::Mul => zip::<T, T, element::Mul>(a, b, &mut elements_mut(bytes)[..len]),
        Binary::Div => zip::<T, T, element::Div>(a, b, &mut elements_mut(bytes)[..len]),
        Binary::Pow => zip::<T, T, element::Pow>(a, b, &mut elements_mut(bytes)[..len]),
        Binary::Max => zip::<T, T, element::Max>(a, b, &mut elements_mut(bytes)[..len]),
        Binary::Min => zip::<T, T, element::Min>(a, b, &mut elements_mut(bytes)[..len]),
        Binary::Equal => zip::<T, u8, element::Equal>(a, b, &mut bytes[..len]),
        Binary::Less => zip::<T, u8, element::Less>(a, b, &mut bytes[..len]),
        Binary::LessOrEqual => zip::<T, u8, element::LessOrEqual>(a, b, &mut bytes[..len]),
        Binary::LogicalAnd => zip::<T, u8, element::LogicalAnd>(a, b, &mut bytes[..len]),
        Binary::LogicalOr => zip::<T, u8, element::LogicalOr>(a, b, &mut bytes[..len]),
        Binary::LogicalXor => zip::<T, u8, element::LogicalXor>(a, b, &mut bytes[..len]),
    }
}
