//! Loops over blocks of registers: apply an operator, fold, accumulate.

use bytemuck::Pod;
use saggar_tensor::op::ReduceKind;

use super::element::{Add, Element, Function, Max, Min, Mul, Operator};
use super::simd::{self, Work};

/// An operand: a register's block, or one value for all of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a, T> {
    /// One element for each of the block's.
    Slice(&'a [T]),
    /// The same for all.
    Scalar(T),
}

struct Zip<'a, T, R, O> {
    a: Source<'a, T>,
    b: Source<'a, T>,
    out: &'a mut [R],
    operator: std::marker::PhantomData<O>,
}

impl<T: Copy, R, O: Operator<T, R>> Work for Zip<'_, T, R, O> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        match (self.a, self.b) {
            (Source::Slice(a), Source::Slice(b)) => {
                for ((out, &a), &b) in self.out.iter_mut().zip(a).zip(b) {
                    *out = O::apply(a, b);
                }
            }
            (Source::Slice(a), Source::Scalar(b)) => {
                for (out, &a) in self.out.iter_mut().zip(a) {
                    *out = O::apply(a, b);
                }
            }
            (Source::Scalar(a), Source::Slice(b)) => {
                for (out, &b) in self.out.iter_mut().zip(b) {
                    *out = O::apply(a, b);
                }
            }
            (Source::Scalar(a), Source::Scalar(b)) => {
                for out in self.out.iter_mut() {
                    *out = O::apply(a, b);
                }
            }
        }
    }
}

/// `out[i] = O(a[i], b[i])`.
pub(super) fn zip<T: Copy, R, O: Operator<T, R>>(a: Source<'_, T>, b: Source<'_, T>, out: &mut [R]) {
    simd::dispatch(Zip { a, b, out, operator: std::marker::PhantomData::<O> });
}

struct Each<'a, T, R, F> {
    x: Source<'a, T>,
    out: &'a mut [R],
    function: std::marker::PhantomData<F>,
}

impl<T: Copy, R: Copy, F: Function<T, R>> Work for Each<'_, T, R, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        match self.x {
            Source::Slice(x) => {
                for (out, &x) in self.out.iter_mut().zip(x) {
                    *out = F::apply(x);
                }
            }
            Source::Scalar(x) => self.out.fill(F::apply(x)),
        }
    }
}

/// `out[i] = F(x[i])`.
pub(super) fn each<T: Copy, R: Copy, F: Function<T, R>>(x: Source<'_, T>, out: &mut [R]) {
    simd::dispatch(Each { x, out, function: std::marker::PhantomData::<F> });
}

struct Choose<'a, T> {
    condition: Source<'a, u8>,
    a: Source<'a, T>,
    b: Source<'a, T>,
    out: &'a mut [T],
}

impl<T: Copy> Work for Choose<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        match (self.condition, self.a, self.b) {
            (Source::Slice(c), Source::Slice(a), Source::Slice(b)) => {
                for (((out, &c), &a), &b) in self.out.iter_mut().zip(c).zip(a).zip(b) {
                    *out = if c != 0 { a } else { b };
                }
            }
            (Source::Slice(c), Source::Slice(a), Source::Scalar(b)) => {
                for ((out, &c), &a) in self.out.iter_mut().zip(c).zip(a) {
                    *out = if c != 0 { a } else { b };
                }
            }
            (Source::Slice(c), Source::Scalar(a), Source::Slice(b)) => {
                for ((out, &c), &b) in self.out.iter_mut().zip(c).zip(b) {
                    *out = if c != 0 { a } else { b };
                }
            }
            (Source::Slice(c), Source::Scalar(a), Source::Scalar(b)) => {
                for (out, &c) in self.out.iter_mut().zip(c) {
                    *out = if c != 0 { a } else { b };
                }
            }
            (Source::Scalar(c), a, b) => copy(if c != 0 { a } else { b }, self.out),
        }
    }
}

/// `out[i] = condition[i] != 0 ? a[i] : b[i]`.
pub(super) fn choose<T: Copy>(condition: Source<'_, u8>, a: Source<'_, T>, b: Source<'_, T>, out: &mut [T]) {
    simd::dispatch(Choose { condition, a, b, out });
}

/// `out[i] = x[i]`.
#[inline(always)]
pub(super) fn copy<T: Copy>(x: Source<'_, T>, out: &mut [T]) {
    match x {
        Source::Slice(x) => out.copy_from_slice(&x[..out.len()]),
        Source::Scalar(x) => out.fill(x),
    }
}

/// Accumulators of one fold: enough for two 256-bit vectors, and fixed, so that every machine adds in one order.
const LANES: usize = 16;

struct FoldAll<'a, T, O> {
    identity: T,
    values: &'a [T],
    operator: std::marker::PhantomData<O>,
}

impl<T: Element, O: Operator<T, T>> Work for FoldAll<'_, T, O> {
    type Output = T;

    #[inline(always)]
    fn run(self) -> T {
        let mut lanes = [self.identity; LANES];
        let (blocks, rest) = self.values.as_chunks::<LANES>();
        for block in blocks {
            for (lane, &value) in lanes.iter_mut().zip(block) {
                *lane = O::apply(*lane, value);
            }
        }
        for (lane, &value) in lanes.iter_mut().zip(rest) {
            *lane = O::apply(*lane, value);
        }
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                lanes[lane] = O::apply(lanes[lane], lanes[lane + width]);
            }
            width /= 2;
        }
        lanes[0]
    }
}

/// `values` folded in one fixed order that depends on their number alone.
pub(super) fn fold<T: Element>(kind: ReduceKind, values: &[T]) -> T {
    fn run<T: Element, O: Operator<T, T>>(identity: T, values: &[T]) -> T {
        simd::dispatch(FoldAll { identity, values, operator: std::marker::PhantomData::<O> })
    }
    let identity = T::identity(kind);
    match kind {
        ReduceKind::Sum => run::<T, Add>(identity, values),
        ReduceKind::Product => run::<T, Mul>(identity, values),
        ReduceKind::Max => run::<T, Max>(identity, values),
        ReduceKind::Min => run::<T, Min>(identity, values),
    }
}

struct Accumulate<'a, T, O> {
    sums: &'a mut [T],
    values: &'a [T],
    operator: std::marker::PhantomData<O>,
}

impl<T: Element, O: Operator<T, T>> Work for Accumulate<'_, T, O> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (sum, &value) in self.sums.iter_mut().zip(self.values) {
            *sum = O::apply(*sum, value);
        }
    }
}

/// `sums[i] = kind(sums[i], values[i])`.
pub(super) fn accumulate<T: Element>(kind: ReduceKind, sums: &mut [T], values: &[T]) {
    fn run<T: Element, O: Operator<T, T>>(sums: &mut [T], values: &[T]) {
        simd::dispatch(Accumulate { sums, values, operator: std::marker::PhantomData::<O> });
    }
    match kind {
        ReduceKind::Sum => run::<T, Add>(sums, values),
        ReduceKind::Product => run::<T, Mul>(sums, values),
        ReduceKind::Max => run::<T, Max>(sums, values),
        ReduceKind::Min => run::<T, Min>(sums, values),
    }
}

/// Bytes as elements. Memory is aligned for every type: blocks start at 8 bytes, values in slabs at 64.
pub(super) fn elements<T: Pod>(bytes: &[u8]) -> &[T] {
    bytemuck::cast_slice(bytes)
}

/// Bytes as elements to write.
pub(super) fn elements_mut<T: Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::cast_slice_mut(bytes)
}
