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
    /// Computes a function that only floats have.
    fn float<F: UnaryFunction<f32, f32>>(x: BlockSource<'_, Self>, out: &mut [Self]);
    /// Computes a conversion.
    fn cast(to: DType, x: BlockSource<'_, Self>, bytes: &mut [u8], len: usize);
}

impl ElementOps for f32 {
    fn float<F: UnaryFunction<f32, f32>>(x: BlockSource<'_, f32>, out: &mut [f32]) {
        apply_unary::<f32, f32, F>(x, out);
    }

    fn cast(to: DType, x: BlockSource<'_, f32>, bytes: &mut [u8], len: usize) {
        with_element!(to, R => apply_unary::<f32, R, CastFunction>(x, &mut elements_mut::<R>(bytes)[..len]));
    }
}

macro_rules! integer_operand {
    ($($t:ident)*) => {$(
        impl ElementOps for $t {
            fn float<F: UnaryFunction<f32, f32>>(_: BlockSource<'_, $t>, _: &mut [$t]) {
                unreachable!("inference refuses integers")
            }

            fn cast(to: DType, x: BlockSource<'_, $t>, bytes: &mut [u8], len: usize) {
                with_element!(to, R => apply_unary::<$t, R, CastFunction>(x, &mut elements_mut::<R>(bytes)[..len]));
            }
        }
    )*};
}

integer_operand!(i64 u64 i32 u32 i8 u8);

macro_rules! define_unary {
    (
        same { $($same:ident = |$x:ident| $result:expr;)* }
        boolean { $($boolean:ident = |$y:ident| $truth:expr;)* }
        float { $($float:ident = |$z:ident| $number:expr;)* }
    ) => {
        /// Computes a unary operator into the first `len` elements of a slot.
        pub(super) fn unary<T: ElementOps>(op: UnaryOp, x: BlockSource<'_, T>, bytes: &mut [u8], len: usize) {
            match op {
                $(UnaryOp::$same => apply_unary::<T, T, element::$same>(x, &mut elements_mut(bytes)[..len]),)*
                $(UnaryOp::$boolean => apply_unary::<T, u8, element::$boolean>(x, &mut bytes[..len]),)*
                $(UnaryOp::$float => T::float::<element::$float>(x, &mut elements_mut(bytes)[..len]),)*
                UnaryOp::StopGradient => super::elementwise_loops::copy(x, &mut elements_mut(bytes)[..len]),
                UnaryOp::Cast(to) => T::cast(to, x, bytes, len),
            }
        }
    };
}
element::unary_functions!(define_unary);

macro_rules! define_binary {
    (
        same { $($same:ident = |$a:ident, $b:ident| $result:expr;)* }
        boolean { $($boolean:ident = |$c:ident, $d:ident| $truth:expr;)* }
    ) => {
        /// Computes a binary operator into the first `len` elements of a slot.
        pub(super) fn binary<T: Element>(
            op: BinaryOp,
            a: BlockSource<'_, T>,
            b: BlockSource<'_, T>,
            bytes: &mut [u8],
            len: usize,
        ) {
            match op {
                $(BinaryOp::$same => apply_binary::<T, T, element::$same>(a, b, &mut elements_mut(bytes)[..len]),)*
                $(BinaryOp::$boolean => apply_binary::<T, u8, element::$boolean>(a, b, &mut bytes[..len]),)*
            }
        }
    };
}
element::binary_functions!(define_binary);
