//! Wider vectors where the processor has them: the same loop compiled twice, chosen at run time.
//!
//! The work is ordinary safe Rust. [`SimdWork`] is without fused multiply-add, so both versions give the same bits; the
//! narrow one is the twin that tests compare with. [`FusedWork`] is for sums of products, whose last bits belong to the
//! processor's class: it multiplies and adds in one step where the processor can, in two steps elsewhere.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::vector::{VectorSet, is_allowed};

/// A loop to run. `run` must be `#[inline(always)]`, as must all it calls per element, or the wide version is none.
pub(super) trait SimdWork {
    /// What it computes.
    type Output;

    /// Does it.
    fn run(self) -> Self::Output;
}

/// Runs `work` with the widest vectors that the processor has.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "a function compiled for more instructions than the baseline can only be called so")]
#[inline]
pub(super) fn dispatch<W: SimdWork>(work: W) -> W::Output {
    if is_allowed(VectorSet::Avx512) && has_masks() {
        // SAFETY: the line above proves that this processor has all that `run_with_avx512` adds.
        unsafe { run_with_avx512(work) }
    } else if is_allowed(VectorSet::Avx2) && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the line above proves that this processor has AVX2, the only feature that `run_with_avx2` adds.
        unsafe { run_with_avx2(work) }
    } else {
        work.run()
    }
}

/// Runs `work`; this architecture's baseline has its vectors.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn dispatch<W: SimdWork>(work: W) -> W::Output {
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_with_avx2<W: SimdWork>(work: W) -> W::Output {
    work.run()
}

/// Whether there are 512-bit vectors, with masks for comparisons of every type.
#[cfg(target_arch = "x86_64")]
fn has_masks() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512bw")
        && std::arch::is_x86_feature_detected!("avx512dq")
        && std::arch::is_x86_feature_detected!("avx512vl")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn run_with_avx512<W: SimdWork>(work: W) -> W::Output {
    work.run()
}

/// How a product is added to a sum.
pub(super) trait MulAdd {
    /// `a b + c`.
    fn mul_add(a: f32, b: f32, c: f32) -> f32;
}

/// Rounded once. Only where the processor has an instruction for it: elsewhere it is a call.
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code, reason = "for others"))]
pub(super) struct FusedMulAdd;

impl MulAdd for FusedMulAdd {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

/// Rounded twice.
pub(super) struct UnfusedMulAdd;

impl MulAdd for UnfusedMulAdd {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

/// A [`SimdWork`] of sums of products, each made with `M`.
pub(super) trait FusedWork {
    /// What it computes.
    type Output;

    /// Does it.
    fn run<M: MulAdd>(self) -> Self::Output;
}

/// Runs `work` with 256-bit vectors and fused multiply-add where the processor has both.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "a function compiled for more instructions than the baseline can only be called so")]
#[inline]
pub(super) fn dispatch_fused<W: FusedWork>(work: W) -> W::Output {
    let has = || std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    if is_allowed(VectorSet::Avx2) && has() {
        // SAFETY: the line above proves that this processor has AVX2 and FMA, all that `run_with_avx2_fma` adds.
        unsafe { run_with_avx2_fma(work) }
    } else {
        work.run::<UnfusedMulAdd>()
    }
}

/// Runs `work`, which this architecture's baseline has vectors and fused multiply-add for.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(super) fn dispatch_fused<W: FusedWork>(work: W) -> W::Output {
    if is_allowed(VectorSet::Neon) { work.run::<FusedMulAdd>() } else { work.run::<UnfusedMulAdd>() }
}

/// Runs `work`.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
pub(super) fn dispatch_fused<W: FusedWork>(work: W) -> W::Output {
    work.run::<UnfusedMulAdd>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_with_avx2_fma<W: FusedWork>(work: W) -> W::Output {
    work.run::<FusedMulAdd>()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct SumsWork<'a>(&'a [f32]);

    impl SimdWork for SumsWork<'_> {
        type Output = (f32, Vec<u32>);

        #[inline(always)]
        fn run(self) -> (f32, Vec<u32>) {
            let products: Vec<u32> = self.0.iter().map(|x| (x * 1.1 + 0.3).to_bits()).collect();
            (self.0.iter().sum(), products)
        }
    }

    #[test]
    fn wide_and_baseline_vectors_agree_bit_for_bit() {
        let values: Vec<f32> = (0..1003).map(|i| (i as f32 * 0.37).fract() - 0.5).collect();
        let (sum, products) = dispatch(SumsWork(&values));
        let (narrow_sum, narrow_products) = SumsWork(&values).run();
        assert_eq!(sum.to_bits(), narrow_sum.to_bits());
        assert_eq!(products, narrow_products);
    }
}
