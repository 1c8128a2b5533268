//! Loops over blocks of registers: operators, reductions, accumulation.

use bytemuck::Pod;
use saggar_tensor::op::ReduceKind;

use super::element::{Add, BinaryOperator, Element, Max, Min, Mul, UnaryFunction};
use super::simd::{self, SimdWork};
use super::vector::{self, VectorIsa, VectorWork};

/// An operand: a block of elements, or one value for the whole block.
#[derive(Clone, Copy, Debug)]
pub(super) enum BlockSource<'a, T> {
    /// One value per element.
    Slice(&'a [T]),
    /// One value for all elements.
    Scalar(T),
}

struct BinaryLoop<'a, T, R, O> {
    a: BlockSource<'a, T>,
    b: BlockSource<'a, T>,
    out: &'a mut [R],
    operator: std::marker::PhantomData<O>,
}

impl<T: Copy, R, O: BinaryOperator<T, R>> SimdWork for BinaryLoop<'_, T, R, O> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        match (self.a, self.b) {
            (BlockSource::Slice(a), BlockSource::Slice(b)) => {
                for ((out, &a), &b) in self.out.iter_mut().zip(a).zip(b) {
                    *out = O::apply(a, b);
                }
            }
            (BlockSource::Slice(a), BlockSource::Scalar(b)) => {
                for (out, &a) in self.out.iter_mut().zip(a) {
                    *out = O::apply(a, b);
                }
            }
            (BlockSource::Scalar(a), BlockSource::Slice(b)) => {
                for (out, &b) in self.out.iter_mut().zip(b) {
                    *out = O::apply(a, b);
                }
            }
            (BlockSource::Scalar(a), BlockSource::Scalar(b)) => {
                for out in self.out.iter_mut() {
                    *out = O::apply(a, b);
                }
            }
        }
    }
}

/// Computes `out[i] = O(a[i], b[i])`.
pub(super) fn apply_binary<T: Copy, R, O: BinaryOperator<T, R>>(
    a: BlockSource<'_, T>,
    b: BlockSource<'_, T>,
    out: &mut [R],
) {
    simd::dispatch(BinaryLoop { a, b, out, operator: std::marker::PhantomData::<O> });
}

struct UnaryLoop<'a, T, R, F> {
    x: BlockSource<'a, T>,
    out: &'a mut [R],
    function: std::marker::PhantomData<F>,
}

impl<T: Copy, R: Copy, F: UnaryFunction<T, R>> SimdWork for UnaryLoop<'_, T, R, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        match self.x {
            BlockSource::Slice(x) => {
                for (out, &x) in self.out.iter_mut().zip(x) {
                    *out = F::apply(x);
                }
            }
            BlockSource::Scalar(x) => self.out.fill(F::apply(x)),
        }
    }
}

/// Computes `out[i] = F(x[i])`.
pub(super) fn apply_unary<T: Copy, R: Copy, F: UnaryFunction<T, R>>(x: BlockSource<'_, T>, out: &mut [R]) {
    simd::dispatch(UnaryLoop { x, out, function: std::marker::PhantomData::<F> });
}

struct SelectLoop<'a, T> {
    condition: BlockSource<'a, u8>,
    a: BlockSource<'a, T>,
    b: BlockSource<'a, T>,
    out: &'a mut [T],
}

impl<T: Copy> SimdWork for SelectLoop<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        match (self.condition, self.a, self.b) {
            (BlockSource::Slice(c), BlockSource::Slice(a), BlockSource::Slice(b)) => {
                for (((out, &c), &a), &b) in self.out.iter_mut().zip(c).zip(a).zip(b) {
                    *out = if c != 0 { a } else { b };
                }
            }
            (BlockSource::Slice(c), BlockSource::Slice(a), BlockSource::Scalar(b)) => {
                for ((out, &c), &a) in self.out.iter_mut().zip(c).zip(a) {
                    *out = if c != 0 { a } else { b };
                }
            }
            (BlockSource::Slice(c), BlockSource::Scalar(a), BlockSource::Slice(b)) => {
                for ((out, &c), &b) in self.out.iter_mut().zip(c).zip(b) {
                    *out = if c != 0 { a } else { b };
                }
            }
            (BlockSource::Slice(c), BlockSource::Scalar(a), BlockSource::Scalar(b)) => {
                for (out, &c) in self.out.iter_mut().zip(c) {
                    *out = if c != 0 { a } else { b };
                }
            }
            (BlockSource::Scalar(c), a, b) => copy(if c != 0 { a } else { b }, self.out),
        }
    }
}

/// Computes `out[i] = condition[i] != 0 ? a[i] : b[i]`.
pub(super) fn select<T: Copy>(
    condition: BlockSource<'_, u8>,
    a: BlockSource<'_, T>,
    b: BlockSource<'_, T>,
    out: &mut [T],
) {
    simd::dispatch(SelectLoop { condition, a, b, out });
}

/// Computes `out[i] = x[i]`.
#[inline(always)]
pub(super) fn copy<T: Copy>(x: BlockSource<'_, T>, out: &mut [T]) {
    match x {
        BlockSource::Slice(x) => out.copy_from_slice(&x[..out.len()]),
        BlockSource::Scalar(x) => out.fill(x),
    }
}

/// Accumulators of one reduction: one 512-bit vector, or two of 256 bits. The number is fixed, so that every machine
/// adds in the same order.
const LANES: usize = 16;
/// Elements of the narrowest vectors.
const LANES_MIN: usize = 4;

struct FoldRows<'a, T, O> {
    identity: T,
    values: &'a [T],
    width: usize,
    out: &'a mut [T],
    operator: std::marker::PhantomData<O>,
}

impl<T: Element, O: BinaryOperator<T, T>> SimdWork for FoldRows<'_, T, O> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (out, values) in self.out.iter_mut().zip(self.values.chunks(self.width)) {
            let mut lanes = [self.identity; LANES];
            for block in values.chunks(LANES) {
                for (lane, &value) in lanes.iter_mut().zip(block) {
                    *lane = O::apply(*lane, value);
                }
            }
            *out = fold_lanes::<T, O>(lanes);
        }
    }
}

/// Combines the lanes pairwise, halving the distance each time.
#[inline(always)]
fn fold_lanes<T: Element, O: BinaryOperator<T, T>>(mut lanes: [T; LANES]) -> T {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = O::apply(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// Reduces rows of `f32` with explicit vectors, because compilers do not keep an array of lanes in registers.
struct FoldRowsF32<'a> {
    kind: ReduceKind,
    values: &'a [f32],
    width: usize,
    out: &'a mut [f32],
}

impl VectorWork for FoldRowsF32<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: VectorIsa>(self, s: S) {
        match self.kind {
            ReduceKind::Sum => self.rows::<S, Add>(s),
            ReduceKind::Product => self.rows::<S, Mul>(s),
            ReduceKind::Max => self.rows::<S, Max>(s),
            ReduceKind::Min => self.rows::<S, Min>(s),
        }
    }
}

impl FoldRowsF32<'_> {
    #[inline(always)]
    fn rows<S: VectorIsa, O: BinaryOperator<f32, f32>>(self, s: S) {
        let identity = f32::identity(self.kind);
        for (out, values) in self.out.iter_mut().zip(self.values.chunks(self.width)) {
            let mut sums = [s.splat(identity); LANES / LANES_MIN];
            let (blocks, rest) = values.as_chunks::<LANES>();
            for block in blocks {
                for at in 0..LANES / S::LANES {
                    sums[at] = combine_vectors(s, self.kind, sums[at], s.load(&block[at * S::LANES..]));
                }
            }
            let mut lanes = [identity; LANES];
            for at in 0..LANES / S::LANES {
                s.store(&mut lanes[at * S::LANES..], sums[at]);
            }
            for (lane, &value) in lanes.iter_mut().zip(rest) {
                *lane = O::apply(*lane, value);
            }
            *out = fold_lanes::<f32, O>(lanes);
        }
    }
}

#[inline(always)]
fn combine_vectors<S: VectorIsa>(s: S, kind: ReduceKind, a: S::V, b: S::V) -> S::V {
    match kind {
        ReduceKind::Sum => s.add(a, b),
        // Adding negative zero changes no value.
        ReduceKind::Product => s.mul_add(a, b, s.splat(-0.0)),
        ReduceKind::Max => s.larger(a, b),
        ReduceKind::Min => s.smaller(a, b),
    }
}

/// Reduces rows of `width` values, each in a fixed order that depends on the width alone.
pub(super) fn fold_rows<T: Element>(kind: ReduceKind, values: &[T], width: usize, out: &mut [T]) {
    fn run<T: Element, O: BinaryOperator<T, T>>(identity: T, values: &[T], width: usize, out: &mut [T]) {
        simd::dispatch(FoldRows { identity, values, width, out, operator: std::marker::PhantomData::<O> });
    }
    if let Some(values) = T::floats(values) {
        let out = T::floats_mut(out).expect("values and results are of one type");
        return vector::run(FoldRowsF32 { kind, values, width, out });
    }
    let identity = T::identity(kind);
    match kind {
        ReduceKind::Sum => run::<T, Add>(identity, values, width, out),
        ReduceKind::Product => run::<T, Mul>(identity, values, width, out),
        ReduceKind::Max => run::<T, Max>(identity, values, width, out),
        ReduceKind::Min => run::<T, Min>(identity, values, width, out),
    }
}

/// Reduces `values` in a fixed order that depends on their number alone.
pub(super) fn fold<T: Element>(kind: ReduceKind, values: &[T]) -> T {
    let mut out = [T::identity(kind)];
    if !values.is_empty() {
        fold_rows(kind, values, values.len(), &mut out);
    }
    out[0]
}

struct AccumulateLoop<'a, T, O> {
    sums: &'a mut [T],
    values: &'a [T],
    operator: std::marker::PhantomData<O>,
}

impl<T: Element, O: BinaryOperator<T, T>> SimdWork for AccumulateLoop<'_, T, O> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for values in self.values.chunks(self.sums.len().max(1)) {
            for (sum, &value) in self.sums.iter_mut().zip(values) {
                *sum = O::apply(*sum, value);
            }
        }
    }
}

/// Computes `sums[i] = kind(sums[i], values[i])` for each row of values, which are as wide as the sums.
pub(super) fn accumulate<T: Element>(kind: ReduceKind, sums: &mut [T], values: &[T]) {
    fn run<T: Element, O: BinaryOperator<T, T>>(sums: &mut [T], values: &[T]) {
        simd::dispatch(AccumulateLoop { sums, values, operator: std::marker::PhantomData::<O> });
    }
    match kind {
        ReduceKind::Sum => run::<T, Add>(sums, values),
        ReduceKind::Product => run::<T, Mul>(sums, values),
        ReduceKind::Max => run::<T, Max>(sums, values),
        ReduceKind::Min => run::<T, Min>(sums, values),
    }
}

/// Casts bytes to elements. Memory is aligned for every type: blocks start at 8 bytes, values in slabs at 64.
pub(super) fn elements<T: Pod>(bytes: &[u8]) -> &[T] {
    bytemuck::cast_slice(bytes)
}

/// Casts bytes to mutable elements.
pub(super) fn elements_mut<T: Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::cast_slice_mut(bytes)
}
