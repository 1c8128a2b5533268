//! Explicit vectors for the innermost loops of products: one set of operations a kind of processor, chosen at run time.
//!
//! What is computed with them is a chain of multiply-adds for each element, in an order that no vector's width changes.
//! So all sets that round a multiply-add once give the same bits; [`PlainVectors`], which rounds twice and needs nothing, is the
//! safe twin that tests compare with, and what runs where there is nothing better.

use std::cell::Cell;

/// A kind of vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum VectorSet {
    /// Whatever the compiler makes of arrays: every processor has it.
    Plain,
    /// Four numbers: ARM's NEON.
    Neon,
    /// Eight numbers: x86-64 with AVX2 and FMA.
    Avx2,
    /// Sixteen numbers: x86-64 with AVX-512F.
    Avx512,
}

impl VectorSet {
    /// Every kind that this processor has, the narrowest first. Devices take the last one unless they are told otherwise.
    pub fn available() -> Vec<VectorSet> {
        let mut sets = vec![VectorSet::Plain];
        sets.extend(present());
        sets
    }

    /// `avx2`.
    pub const fn name(self) -> &'static str {
        match self {
            VectorSet::Plain => "plain",
            VectorSet::Neon => "neon",
            VectorSet::Avx2 => "avx2",
            VectorSet::Avx512 => "avx512",
        }
    }
}

thread_local! {
    /// What the device was opened with that this thread computes for now; none takes the widest.
    static THREAD_VECTORS: Cell<Option<VectorSet>> = const { Cell::new(None) };
}

/// From now on this thread computes with vectors of this kind. For threads that belong to one device.
pub(super) fn set_thread_vectors(set: Option<VectorSet>) {
    THREAD_VECTORS.set(set);
}

/// Runs `work` on this thread with vectors of this kind.
pub(super) fn with_vectors<R>(set: Option<VectorSet>, work: impl FnOnce() -> R) -> R {
    struct RestoreVectors(Option<VectorSet>);
    impl Drop for RestoreVectors {
        fn drop(&mut self) {
            set_thread_vectors(self.0);
        }
    }
    let _before = RestoreVectors(THREAD_VECTORS.replace(set));
    work()
}

/// Whether this thread may compute with this kind. That the processor has it is another question.
#[inline]
pub(super) fn is_allowed(set: VectorSet) -> bool {
    THREAD_VECTORS.get().is_none_or(|chosen| chosen >= set)
}

/// Vectors of `f32`. Every method is inlined into a function that is compiled for the processor.
pub(super) trait VectorIsa: Copy {
    /// Elements of a vector.
    const LANES: usize;
    /// Vectors beside each other in a tile, at most.
    const WIDE: usize;
    /// A vector.
    type V: Copy;

    /// Rows of a tile that is `wide` vectors wide: as many as the registers hold.
    fn height(wide: usize) -> usize;
    /// The same number in every element.
    fn splat(self, x: f32) -> Self::V;
    /// The first elements of a slice that has as many.
    fn load(self, from: &[f32]) -> Self::V;
    /// Writes the first elements of a slice that has as many.
    fn store(self, to: &mut [f32], v: Self::V);
    /// The elements of a slice that has fewer, and zeros.
    fn load_part(self, from: &[f32]) -> Self::V;
    /// Writes the first elements to a slice that has room for fewer.
    fn store_part(self, to: &mut [f32], v: Self::V);
    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a b + c`.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger of each two, NaN being largest; `b` of two equal ones.
    fn larger(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller of each two, NaN being smallest; `b` of two equal ones.
    fn smaller(self, a: Self::V, b: Self::V) -> Self::V;
    /// `x`, or `least` where `x` is at most that; NaN stays.
    fn at_least(self, x: Self::V, least: Self::V) -> Self::V;
    /// `x` where `a` and `b` are equal or both NaN, `y` elsewhere.
    fn where_same(self, a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V;
    /// The first elements of a slice, and zeros after its last.
    #[inline(always)]
    fn load_some(self, from: &[f32]) -> Self::V {
        if from.len() >= Self::LANES { self.load(from) } else { self.load_part(from) }
    }
    /// Writes as many elements as a slice has room for.
    #[inline(always)]
    fn store_some(self, to: &mut [f32], v: Self::V) {
        if to.len() >= Self::LANES { self.store(to, v) } else { self.store_part(to, v) }
    }
    /// Turns [`TRANSPOSE_SIDE`] rows of as many numbers round: `to[y * below + x] = from[x * row + y]`.
    #[inline(always)]
    fn transpose(self, from: &[f32], row: usize, to: &mut [f32], below: usize) {
        for x in 0..TRANSPOSE_SIDE {
            let from: &[f32; TRANSPOSE_SIDE] = from[x * row..].first_chunk().expect("a row of the square");
            for (y, &value) in from.iter().enumerate() {
                to[y * below + x] = value;
            }
        }
    }
}

/// Numbers along a side of what is turned round at a time.
pub(super) const TRANSPOSE_SIDE: usize = 8;

/// A computation that is compiled for every kind of processor. `run` must be `#[inline(always)]`, as must all it calls in
/// its loops.
pub(super) trait VectorWork {
    /// What it computes.
    type Output;

    /// Does it.
    fn run<S: VectorIsa>(self, s: S) -> Self::Output;
}

/// Eight numbers in an array, without anything a processor may lack.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlainVectors;

impl VectorIsa for PlainVectors {
    const LANES: usize = 8;
    const WIDE: usize = 2;
    type V = [f32; 8];

    #[inline(always)]
    fn height(_: usize) -> usize {
        4
    }

    #[inline(always)]
    fn splat(self, x: f32) -> [f32; 8] {
        [x; 8]
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> [f32; 8] {
        *from.first_chunk().expect("a vector's elements")
    }

    #[inline(always)]
    fn store(self, to: &mut [f32], v: [f32; 8]) {
        *to.first_chunk_mut().expect("a vector's elements") = v;
    }

    #[inline(always)]
    fn load_part(self, from: &[f32]) -> [f32; 8] {
        std::array::from_fn(|i| from.get(i).copied().unwrap_or(0.0))
    }

    #[inline(always)]
    fn store_part(self, to: &mut [f32], v: [f32; 8]) {
        to.iter_mut().zip(v).for_each(|(to, v)| *to = v);
    }

    #[inline(always)]
    fn add(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn larger(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| if a[i].is_nan() | (a[i] > b[i]) { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn smaller(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| if a[i].is_nan() | (a[i] < b[i]) { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn where_same(self, a: [f32; 8], b: [f32; 8], x: [f32; 8], y: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| if (a[i] == b[i]) | (a[i].is_nan() & b[i].is_nan()) { x[i] } else { y[i] })
    }

    #[inline(always)]
    fn mul_add(self, a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn at_least(self, x: [f32; 8], least: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| if x[i] <= least[i] { least[i] } else { x[i] })
    }
}

#[cfg(target_arch = "x86_64")]
use x86::present;
#[cfg(target_arch = "x86_64")]
pub(super) use x86::{lanes, prefetch, run};

#[cfg(target_arch = "aarch64")]
use arm::present;
#[cfg(target_arch = "aarch64")]
pub(super) use arm::{lanes, prefetch, run};

/// Kinds that this processor has besides [`PlainVectors`], the narrowest first.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn present() -> Vec<VectorSet> {
    Vec::new()
}

/// Runs `work` with the widest vectors of this processor.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn run<W: VectorWork>(work: W) -> W::Output {
    work.run(PlainVectors)
}

/// Elements of a vector, and vectors of a tile, that [`run`] computes with.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn lanes() -> (usize, usize) {
    (PlainVectors::LANES, PlainVectors::WIDE)
}

/// Asks for memory that will be read soon.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn prefetch(_memory: &[u8]) {}

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "aarch64")]
mod arm;
