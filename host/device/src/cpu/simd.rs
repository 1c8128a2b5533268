//! Runtime dispatch to wider vectors: the same loop is compiled twice and selected by the processor's features.
//!
//! The work is ordinary safe Rust. [`SimdWork`] has no fused multiply-add, so both versions give the same bits; tests
//! compare with the narrow one. [`FusedWork`] is for sums of products, whose last bits depend on the processor's class:
//! it multiplies and adds in one step if the processor can, else in two.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::vector::{VectorSet, is_allowed};

/// A loop to run. `run` and all that it calls per element must be `#[inline(always)]`, or the wide version is not
/// vectorised.
pub(super) trait SimdWork {
    /// The result type.
    type Output;

    /// Runs the loop.
    fn run(self) -> Self::Output;
}

/// Runs `work` with the widest vectors of the processor.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "calling a function compiled for more instructions than the baseline is unsafe")]
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

/// Runs `work`. This architecture's baseline includes its vectors.
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

/// Returns whether the processor has 512-bit vectors with masks for comparisons of every type.
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

/// The way in which a product is added to a sum.
pub(super) trait MulAdd {
    /// Returns `a b + c`.
    fn mul_add(a: f32, b: f32, c: f32) -> f32;
}

/// Fused: rounds once. Only for processors with an instruction for it, because it is a function call elsewhere.
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code, reason = "used on other architectures")
)]
pub(super) struct FusedMulAdd;

impl MulAdd for FusedMulAdd {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

/// Unfused: rounds twice.
pub(super) struct UnfusedMulAdd;

impl MulAdd for UnfusedMulAdd {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

/// A loop of sums of products, each computed with `M`.
pub(super) trait FusedWork {
    /// The result type.
    type Output;

    /// Runs the loop.
    fn run<M: MulAdd>(self) -> Self::Output;
}

/// Runs `work` with 256-bit vectors and fused multiply-add if the processor has both.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "calling a function compiled for more instructions than the baseline is unsafe")]
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

/// Runs `work`. This architecture's baseline includes vectors and fused multiply-add.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(super) fn dispatch_fused<W: FusedWork>(work: W) -> W::Output {
    if is_allowed(VectorSet::Neon) { work.run::<FusedMulAdd>() } else { work.run::<UnfusedMulAdd>() }
}

/// Runs `work` without fused multiply-add.
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
