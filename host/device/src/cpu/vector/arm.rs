//! Vectors of AArch64: NEON with 32 registers of four elements, which every such processor has.

#![expect(unsafe_code, reason = "loads and stores of vectors take pointers")]

use std::arch::aarch64::*;

use super::{PlainVectors, VectorIsa, VectorSet, VectorWork, is_allowed};

/// NEON vectors.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Neon;

impl VectorIsa for Neon {
    const LANES: usize = 4;
    const WIDE: usize = 4;
    type V = float32x4_t;

    #[inline(always)]
    fn height(wide: usize) -> usize {
        match wide {
            1 | 2 => 12,
            3 => 8,
            _ => 6,
        }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> float32x4_t {
        // SAFETY: the target has NEON.
        unsafe { vdupq_n_f32(x) }
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> float32x4_t {
        let from: &[f32; 4] = from.first_chunk().expect("a vector's elements");
        // SAFETY: the target has NEON, and `from` has the elements.
        unsafe { vld1q_f32(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32], v: float32x4_t) {
        let to: &mut [f32; 4] = to.first_chunk_mut().expect("a vector's elements");
        // SAFETY: the target has NEON, and `to` has the elements.
        unsafe { vst1q_f32(to.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn load_part(self, from: &[f32]) -> float32x4_t {
        let values: [f32; 4] = std::array::from_fn(|i| from.get(i).copied().unwrap_or(0.0));
        self.load(&values)
    }

    #[inline(always)]
    fn store_part(self, to: &mut [f32], v: float32x4_t) {
        let mut values = [0.0; 4];
        self.store(&mut values, v);
        to.iter_mut().zip(values).for_each(|(to, v)| *to = v);
    }

    #[inline(always)]
    fn add(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: the target has NEON.
        unsafe { vaddq_f32(a, b) }
    }

    #[inline(always)]
    fn larger(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: the target has NEON.
        unsafe {
            let is_number = vceqq_f32(a, a);
            vbslq_f32(vorrq_u32(vcgtq_f32(a, b), vmvnq_u32(is_number)), a, b)
        }
    }

    #[inline(always)]
    fn smaller(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: the target has NEON.
        unsafe {
            let is_number = vceqq_f32(a, a);
            vbslq_f32(vorrq_u32(vcltq_f32(a, b), vmvnq_u32(is_number)), a, b)
        }
    }

    #[inline(always)]
    fn where_same(self, a: float32x4_t, b: float32x4_t, x: float32x4_t, y: float32x4_t) -> float32x4_t {
        // SAFETY: the target has NEON.
        unsafe {
            let number = vorrq_u32(vceqq_f32(a, a), vceqq_f32(b, b));
            vbslq_f32(vorrq_u32(vceqq_f32(a, b), vmvnq_u32(number)), x, y)
        }
    }

    #[inline(always)]
    fn mul_add(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        // SAFETY: the target has NEON.
        unsafe { vfmaq_f32(c, a, b) }
    }

    #[inline(always)]
    fn at_least(self, x: float32x4_t, least: float32x4_t) -> float32x4_t {
        // SAFETY: the target has NEON.
        unsafe { vbslq_f32(vcleq_f32(x, least), least, x) }
    }
}

/// Runs `work` with this processor's vectors.
pub(in super::super) fn run<W: VectorWork>(work: W) -> W::Output {
    if is_allowed(VectorSet::Neon) { work.run(Neon) } else { work.run(PlainVectors) }
}

/// Returns the sets that every such processor has besides [`PlainVectors`].
pub(super) fn present() -> Vec<VectorSet> {
    vec![VectorSet::Neon]
}

/// Returns the elements of a vector and the vectors of a tile that [`run`] uses.
pub(in super::super) fn lanes() -> (usize, usize) {
    if is_allowed(VectorSet::Neon) { (Neon::LANES, Neon::WIDE) } else { (PlainVectors::LANES, PlainVectors::WIDE) }
}

/// Does nothing: there is no stable prefetch intrinsic for this architecture.
pub(in super::super) fn prefetch(_memory: &[u8]) {}
