//! Vectors of x86-64: AVX-512 with 32 registers of sixteen elements, AVX2 with 16 registers of eight.

#![expect(unsafe_code, reason = "instructions beyond the baseline need a runtime check")]

use std::arch::x86_64::*;

use super::{PlainVectors, TRANSPOSE_SIDE, VectorIsa, VectorSet, VectorWork, is_allowed};

/// Proof that this processor has AVX-512F. Only [`widest`] creates one, after detecting it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Avx512(());

/// Proof that this processor has AVX2 and FMA. Only [`widest`] creates one, after detecting both.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Avx2(());

impl VectorIsa for Avx512 {
    const LANES: usize = 16;
    const WIDE: usize = 4;
    type V = __m512;

    #[inline(always)]
    fn height(wide: usize) -> usize {
        match wide {
            1 | 2 => 12,
            3 => 8,
            _ => 6,
        }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: `self` is proof of AVX-512F.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> __m512 {
        let from: &[f32; 16] = from.first_chunk().expect("a vector's elements");
        // SAFETY: `self` is proof of AVX-512F, and `from` has the elements; the load needs no alignment.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32], v: __m512) {
        let to: &mut [f32; 16] = to.first_chunk_mut().expect("a vector's elements");
        // SAFETY: `self` is proof of AVX-512F, and `to` has the elements; the store needs no alignment.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn load_part(self, from: &[f32]) -> __m512 {
        let count = from.len().min(16);
        // SAFETY: `self` is proof of AVX-512F, and the mask selects only elements of `from`.
        unsafe { _mm512_maskz_loadu_ps(lane_mask(count), from.as_ptr()) }
    }

    #[inline(always)]
    fn store_part(self, to: &mut [f32], v: __m512) {
        let count = to.len().min(16);
        // SAFETY: `self` is proof of AVX-512F, and the mask selects only elements of `to`.
        unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), lane_mask(count), v) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` is proof of AVX-512F.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn larger(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` is proof of AVX-512F.
        unsafe {
            let of_a = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b) | _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a);
            _mm512_mask_blend_ps(of_a, b, a)
        }
    }

    #[inline(always)]
    fn smaller(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` is proof of AVX-512F.
        unsafe {
            let of_a = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) | _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a);
            _mm512_mask_blend_ps(of_a, b, a)
        }
    }

    #[inline(always)]
    fn where_same(self, a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
        // SAFETY: `self` is proof of AVX-512F.
        unsafe {
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a) & _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(b, b);
            _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b) | nan, y, x)
        }
    }

    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: `self` is proof of AVX-512F.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn at_least(self, x: __m512, least: __m512) -> __m512 {
        // SAFETY: `self` is proof of AVX-512F.
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LE_OQ>(x, least), x, least) }
    }

    #[inline(always)]
    fn transpose(self, from: &[f32], row: usize, to: &mut [f32], below: usize) {
        // SAFETY: `self` is proof of AVX-512F, and so of AVX.
        unsafe { transpose_8x8(from, row, to, below) }
    }
}

impl VectorIsa for Avx2 {
    const LANES: usize = 8;
    const WIDE: usize = 2;
    type V = __m256;

    #[inline(always)]
    fn height(wide: usize) -> usize {
        match wide {
            1 => 8,
            _ => 6,
        }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: `self` is proof of AVX2.
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> __m256 {
        let from: &[f32; 8] = from.first_chunk().expect("a vector's elements");
        // SAFETY: `self` is proof of AVX2, and `from` has the elements; the load needs no alignment.
        unsafe { _mm256_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32], v: __m256) {
        let to: &mut [f32; 8] = to.first_chunk_mut().expect("a vector's elements");
        // SAFETY: `self` is proof of AVX2, and `to` has the elements; the store needs no alignment.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn load_part(self, from: &[f32]) -> __m256 {
        let count = from.len().min(8);
        // SAFETY: `self` is proof of AVX2, and the mask selects only elements of `from`.
        unsafe { _mm256_maskload_ps(from.as_ptr(), self.lane_mask(count)) }
    }

    #[inline(always)]
    fn store_part(self, to: &mut [f32], v: __m256) {
        let count = to.len().min(8);
        // SAFETY: `self` is proof of AVX2, and the mask selects only elements of `to`.
        unsafe { _mm256_maskstore_ps(to.as_mut_ptr(), self.lane_mask(count), v) }
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` is proof of AVX2.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    fn larger(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` is proof of AVX2.
        unsafe {
            let of_a = _mm256_or_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(a, b), _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a));
            _mm256_blendv_ps(b, a, of_a)
        }
    }

    #[inline(always)]
    fn smaller(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` is proof of AVX2.
        unsafe {
            let of_a = _mm256_or_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(a, b), _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a));
            _mm256_blendv_ps(b, a, of_a)
        }
    }

    #[inline(always)]
    fn where_same(self, a: __m256, b: __m256, x: __m256, y: __m256) -> __m256 {
        // SAFETY: `self` is proof of AVX2.
        unsafe {
            let nan = _mm256_and_ps(_mm256_cmp_ps::<_CMP_UNORD_Q>(a, a), _mm256_cmp_ps::<_CMP_UNORD_Q>(b, b));
            _mm256_blendv_ps(y, x, _mm256_or_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(a, b), nan))
        }
    }

    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: `self` is proof of AVX2 and FMA.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn at_least(self, x: __m256, least: __m256) -> __m256 {
        // SAFETY: `self` is proof of AVX2.
        unsafe { _mm256_blendv_ps(x, least, _mm256_cmp_ps::<_CMP_LE_OQ>(x, least)) }
    }

    #[inline(always)]
    fn transpose(self, from: &[f32], row: usize, to: &mut [f32], below: usize) {
        // SAFETY: `self` is proof of AVX2, and so of AVX.
        unsafe { transpose_8x8(from, row, to, below) }
    }
}

/// Returns the mask of the first `count` of 16 elements.
#[inline(always)]
fn lane_mask(count: usize) -> u16 {
    ((1u32 << count) - 1) as u16
}

impl Avx2 {
    /// Returns the mask of the first `count` of eight elements.
    #[inline(always)]
    fn lane_mask(self, count: usize) -> __m256i {
        /// A window of eight elements from index `8 - count` on begins with `count` ones.
        const ONES: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
        let from: &[i32; 8] = ONES[8 - count..].first_chunk().expect("eight elements");
        // SAFETY: `self` is proof of AVX2, and `from` has eight elements; the load needs no alignment.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }
}

/// Transposes a square of eight by eight elements: by pairs of rows, pairs of pairs, and halves.
#[inline]
#[target_feature(enable = "avx")]
fn transpose_8x8(from: &[f32], row: usize, to: &mut [f32], below: usize) {
    let load = |x: usize| {
        let from: &[f32; TRANSPOSE_SIDE] = from[x * row..].first_chunk().expect("a row of the square");
        // SAFETY: `from` has the elements; the load needs no alignment.
        unsafe { _mm256_loadu_ps(from.as_ptr()) }
    };
    let rows: [__m256; TRANSPOSE_SIDE] = [load(0), load(1), load(2), load(3), load(4), load(5), load(6), load(7)];
    let mut pairs = rows;
    for at in 0..4 {
        pairs[2 * at] = _mm256_unpacklo_ps(rows[2 * at], rows[2 * at + 1]);
        pairs[2 * at + 1] = _mm256_unpackhi_ps(rows[2 * at], rows[2 * at + 1]);
    }
    let mut fours = rows;
    for half in [0, 4] {
        fours[half] = _mm256_shuffle_ps::<0x44>(pairs[half], pairs[half + 2]);
        fours[half + 1] = _mm256_shuffle_ps::<0xee>(pairs[half], pairs[half + 2]);
        fours[half + 2] = _mm256_shuffle_ps::<0x44>(pairs[half + 1], pairs[half + 3]);
        fours[half + 3] = _mm256_shuffle_ps::<0xee>(pairs[half + 1], pairs[half + 3]);
    }
    for y in 0..4 {
        let low = _mm256_permute2f128_ps::<0x20>(fours[y], fours[y + 4]);
        let high = _mm256_permute2f128_ps::<0x31>(fours[y], fours[y + 4]);
        for (y, v) in [(y, low), (y + 4, high)] {
            let to: &mut [f32; TRANSPOSE_SIDE] = to[y * below..].first_chunk_mut().expect("a row of the square");
            // SAFETY: `to` has the elements; the store needs no alignment.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), v) }
        }
    }
}

fn has_avx512() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
}

fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
}

/// Returns the sets of this processor besides [`PlainVectors`], narrowest first.
pub(super) fn present() -> impl Iterator<Item = VectorSet> {
    let avx2 = has_avx2().then_some(VectorSet::Avx2);
    avx2.into_iter().chain(has_avx512().then_some(VectorSet::Avx512))
}

/// Returns the widest set that this processor has and this thread is allowed to use.
fn widest() -> Option<Result<Avx512, Avx2>> {
    if is_allowed(VectorSet::Avx512) && has_avx512() {
        Some(Ok(Avx512(())))
    } else if is_allowed(VectorSet::Avx2) && has_avx2() {
        Some(Err(Avx2(())))
    } else {
        None
    }
}

/// Runs `work` with the widest vectors of this processor.
pub(in super::super) fn run<W: VectorWork>(work: W) -> W::Output {
    match widest() {
        // SAFETY: a value of `Avx512` exists only if the processor has AVX-512F, all that `run_with_avx512` adds.
        Some(Ok(s)) => unsafe { run_with_avx512(work, s) },
        // SAFETY: a value of `Avx2` exists only if the processor has AVX2 and FMA, all that `run_with_avx2` adds.
        Some(Err(s)) => unsafe { run_with_avx2(work, s) },
        None => work.run(PlainVectors),
    }
}

/// Returns the elements of a vector and the vectors of a tile that [`run`] uses.
pub(in super::super) fn lanes() -> (usize, usize) {
    match widest() {
        Some(Ok(_)) => (Avx512::LANES, Avx512::WIDE),
        Some(Err(_)) => (Avx2::LANES, Avx2::WIDE),
        None => (PlainVectors::LANES, PlainVectors::WIDE),
    }
}

#[target_feature(enable = "avx512f")]
fn run_with_avx512<W: VectorWork>(work: W, s: Avx512) -> W::Output {
    work.run(s)
}

#[target_feature(enable = "avx2,fma")]
fn run_with_avx2<W: VectorWork>(work: W, s: Avx2) -> W::Output {
    work.run(s)
}

/// Prefetches memory that will be read soon.
pub(in super::super) fn prefetch(memory: &[u8]) {
    for line in memory.chunks(LINE_BYTES) {
        // SAFETY: a hint without visible effect, for an address within `memory`.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) }
    }
}

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
