//! Explicit vectors for the innermost loops of products: one instruction set per kind of processor, selected at run
//! time.
//!
//! Each element is computed as a chain of multiply-adds in an order that does not depend on the vector width. All sets
//! that round a multiply-add once therefore give the same bits. [`PlainVectors`] rounds twice and runs on every
//! processor. It is the safe reference for tests, and the fallback.

use std::cell::Cell;

/// A vector instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum VectorSet {
    /// Arrays that the compiler vectorises. Every processor has this.
    Plain,
    /// ARM's NEON, four elements.
    Neon,
    /// x86-64 with AVX2 and FMA, eight elements.
    Avx2,
    /// x86-64 with AVX-512F, sixteen elements.
    Avx512,
}

impl VectorSet {
    /// Returns the sets of this processor, narrowest first. Devices use the last one by default.
    pub fn available() -> Vec<VectorSet> {
        let mut sets = vec![VectorSet::Plain];
        sets.extend(present());
        sets
    }

    /// Returns the name, such as `avx2`.
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
    /// The set of the device for which this thread computes now, or `None` for the widest.
    static THREAD_VECTORS: Cell<Option<VectorSet>> = const { Cell::new(None) };
}

/// Sets the vectors of this thread. For threads that belong to one device.
pub(super) fn set_thread_vectors(set: Option<VectorSet>) {
    THREAD_VECTORS.set(set);
}

/// Runs `work` on this thread with this set.
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

/// Returns whether this thread is allowed to use the set. Does not check whether the processor has it.
#[inline]
pub(super) fn is_allowed(set: VectorSet) -> bool {
    THREAD_VECTORS.get().is_none_or(|chosen| chosen >= set)
}

/// Vectors of `f32`. Every method is inlined into a function that is compiled for the processor.
pub(super) trait VectorIsa: Copy {
    /// Elements of a vector.
    const LANES: usize;
    /// Maximum number of adjacent vectors of a tile.
    const WIDE: usize;
    /// The vector type.
    type V: Copy;

    /// Returns the rows of a tile of `wide` vectors: as many as fit the registers.
    fn height(wide: usize) -> usize;
    /// Returns a vector with `x` in every element.
    fn splat(self, x: f32) -> Self::V;
    /// Loads the first `LANES` elements of a slice, which must have that many.
    fn load(self, from: &[f32]) -> Self::V;
    /// Stores a vector to the first `LANES` elements of a slice, which must have that many.
    fn store(self, to: &mut [f32], v: Self::V);
    /// Loads a slice of fewer than `LANES` elements and fills up with zeros.
    fn load_part(self, from: &[f32]) -> Self::V;
    /// Stores the first elements to a slice of fewer than `LANES` elements.
    fn store_part(self, to: &mut [f32], v: Self::V);
    /// Returns `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns `a b + c`.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Returns the larger of each pair. NaN counts as largest. Returns `b` if both are equal.
    fn larger(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns the smaller of each pair. NaN counts as smallest. Returns `b` if both are equal.
    fn smaller(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns `least` if `x` is at most `least`, else `x`. NaN stays NaN.
    fn at_least(self, x: Self::V, least: Self::V) -> Self::V;
    /// Returns `x` if `a` and `b` are equal or both NaN, else `y`.
    fn where_same(self, a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V;
    /// Loads up to `LANES` elements of a slice and fills up with zeros.
    #[inline(always)]
    fn load_some(self, from: &[f32]) -> Self::V {
        if from.len() >= Self::LANES { self.load(from) } else { self.load_part(from) }
    }
    /// Stores as many elements as the slice has room for.
    #[inline(always)]
    fn store_some(self, to: &mut [f32], v: Self::V) {
        if to.len() >= Self::LANES { self.store(to, v) } else { self.store_part(to, v) }
    }
    /// Transposes a square of [`TRANSPOSE_SIDE`] elements per side: `to[y * below + x] = from[x * row + y]`.
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

/// Elements per side of a square that is transposed at a time.
pub(super) const TRANSPOSE_SIDE: usize = 8;

/// A computation that is compiled for every instruction set. `run` and all that it calls in its loops must be
/// `#[inline(always)]`.
pub(super) trait VectorWork {
    /// The result type.
    type Output;

    /// Runs the computation.
    fn run<S: VectorIsa>(self, s: S) -> Self::Output;
}

/// Eight elements in an array, for any processor.
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

/// Returns the sets of this processor besides [`PlainVectors`], narrowest first.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn present() -> Vec<VectorSet> {
    Vec::new()
}

/// Runs `work` with the widest vectors of this processor.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn run<W: VectorWork>(work: W) -> W::Output {
    work.run(PlainVectors)
}

/// Returns the elements of a vector and the vectors of a tile that [`run`] uses.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn lanes() -> (usize, usize) {
    (PlainVectors::LANES, PlainVectors::WIDE)
}

/// Prefetches memory that will be read soon.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn prefetch(_memory: &[u8]) {}

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "aarch64")]
mod arm;
