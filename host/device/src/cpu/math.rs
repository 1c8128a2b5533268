//! Elementary functions in `f32`. They have no branches, so that loops over them are vectorised, and do not use the
//! platform's library, so that every machine gives the same bits.
//!
//! Errors are a few units in the last place (asserted below). Polynomials: Moshier, "Cephes Mathematical Library"
//! (`expf`, `logf`, `tanhf`, `sinf`); `erf` after N. Juffa's single-precision implementation.

/// 1.5 * 2^23: adding it to a number below 2^22 in magnitude leaves the nearest integer in the low bits.
const ROUND: f32 = 12_582_912.0;
/// The same for `f64`, up to 2^51.
const ROUND_F64: f64 = 6_755_399_441_055_744.0;

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) << 23) as u32)
}

/// Returns `e^x`.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // Comparisons and not `clamp`, so that NaN passes through.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let whole = shifted - ROUND;
    let r = x - whole * 0.693_359_4;
    let r = r - whole * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_2e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 5e-1;
    let y = p * (r * r) + r + 1.0;
    // Two factors, because 2^n alone exceeds the range of normal numbers at both ends. For NaN, any n is correct.
    let half = n >> 1;
    y * power_of_two(half) * power_of_two(n - half)
}

/// Returns the natural logarithm.
#[inline(always)]
pub(super) fn log(x: f32) -> f32 {
    let small = x < f32::MIN_POSITIVE;
    let scaled = if small { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits() as i32;
    let e = ((bits >> 23) & 0xff) - 126 - if small { 23 } else { 0 };
    let m = f32::from_bits(((bits & 0x007f_ffff) | 0x3f00_0000) as u32);
    let low = m < std::f32::consts::FRAC_1_SQRT_2;
    let e = (e - i32::from(low)) as f32;
    let m = if low { m + m - 1.0 } else { m - 1.0 };
    let z = m * m;
    let mut p = 7.037_683_6e-2;
    p = p * m - 1.151_461e-1;
    p = p * m + 1.167_699_9e-1;
    p = p * m - 1.242_014_1e-1;
    p = p * m + 1.424_932_3e-1;
    p = p * m - 1.666_805_7e-1;
    p = p * m + 2.000_071_5e-1;
    p = p * m - 2.499_999_4e-1;
    p = p * m + 3.333_333e-1;
    let y = p * m * z - 2.121_944_4e-4 * e - 0.5 * z;
    let y = (m + y) + 0.693_359_4 * e;
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x >= 0.0 { y } else { f32::NAN }
}

/// Returns the hyperbolic tangent.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let t = x.abs();
    let z = x * x;
    let mut p = -5.704_988_7e-3;
    p = p * z + 2.063_909e-2;
    p = p * z - 5.373_971_6e-2;
    p = p * z + 1.333_144_2e-1;
    p = p * z - 3.333_328e-1;
    let near = p * z * x + x;
    let far = (1.0 - 2.0 / (exp(t + t) + 1.0)).copysign(x);
    if t < 0.625 { near } else { far }
}

/// Returns the Gauss error function.
#[inline(always)]
pub(super) fn erf(x: f32) -> f32 {
    let t = x.abs();
    let s = x * x;
    let mut far = (-1.728_534_7e-5 * t + 3.831_971_3e-4) * s + (-3.883_964_4e-3 * t + 2.425_462_2e-2);
    far = far * t - 1.067_778_8e-1;
    far = far * t - 6.348_467e-1;
    far = far * t - 1.287_175_1e-1;
    far = far * t - t;
    // Above 4 the result is 1 in f32, and the polynomial is not valid.
    let far = if t > 4.0 { -104.0 } else { far };
    let far = (1.0 - exp(far)).copysign(x);
    let mut near = -5.967_617e-4;
    near = near * s + 4.991_194_2e-3;
    near = near * s - 2.676_813_5e-2;
    near = near * s + 1.128_199_2e-1;
    near = near * s - 3.761_253_4e-1;
    near = near * s + 1.283_791_7e-1;
    let near = near * x + x;
    if t > 0.927_734_4 {
        far
    } else if t.is_nan() {
        x
    } else {
        near
    }
}

/// Returns the sine of `x + quarter * pi/2`, `x` in radians. Precise up to 10^8 in magnitude.
#[inline(always)]
fn sin_of_quarter_turns(x: f32, quarter: i64) -> f32 {
    let wide = f64::from(x);
    let shifted = wide * std::f64::consts::FRAC_2_PI + ROUND_F64;
    let quadrant = (shifted.to_bits() as i64).wrapping_add(quarter);
    let whole = shifted - ROUND_F64;
    // pi/2 in two parts, the first with 33 significant bits, so that its product with `whole` is exact.
    let r = (wide - whole * 1.570_796_326_734_125_6) - whole * 6.077_100_506_506_192e-11;
    let r = r as f32;
    let z = r * r;
    let sin = ((-1.951_529_6e-4 * z + 8.332_161e-3) * z - 1.666_665_5e-1) * z * r + r;
    let cos = ((2.443_315_7e-5 * z - 1.388_731_6e-3) * z + 4.166_664_6e-2) * (z * z) - 0.5 * z + 1.0;
    let y = if quadrant & 1 == 0 { sin } else { cos };
    if quadrant & 2 == 0 { y } else { -y }
}

/// Returns the sine of `x` radians.
#[inline(always)]
pub(super) fn sin(x: f32) -> f32 {
    sin_of_quarter_turns(x, 0)
}

/// Returns the cosine of `x` radians.
#[inline(always)]
pub(super) fn cos(x: f32) -> f32 {
    sin_of_quarter_turns(x, 1)
}

/// Returns `a` to the power `b`, with C99's special cases.
#[inline(always)]
pub(super) fn pow(a: f32, b: f32) -> f32 {
    let magnitude = f64::from(a.abs());
    let y = exp_f64(f64::from(b) * log_f64(magnitude)) as f32;
    let whole = b == b.trunc();
    // Above 2^24 every f32 is even.
    let odd = whole && b.abs() < 16_777_216.0 && (b as i32) & 1 != 0;
    let y = if a.is_sign_negative() && odd { -y } else { y };
    let y = if a < 0.0 && !whole && a != f32::NEG_INFINITY { f32::NAN } else { y };
    if b == 0.0 || a == 1.0 || (a == -1.0 && b.is_infinite()) { 1.0 } else { y }
}

/// Returns the natural logarithm of a non-negative `f32`, to about 10^-12.
#[inline(always)]
fn log_f64(x: f64) -> f64 {
    let bits = x.to_bits() as i64;
    let e = ((bits >> 52) & 0x7ff) - 1022;
    let m = f64::from_bits(((bits & 0x000f_ffff_ffff_ffff) | 0x3fe0_0000_0000_0000) as u64);
    let low = m < std::f64::consts::FRAC_1_SQRT_2;
    let m = if low { m + m } else { m };
    let e = (e - i64::from(low)) as f64;
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut p = 1.0 / 17.0;
    p = p * z + 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    let y = 2.0 * (s + s * z * p) + e * std::f64::consts::LN_2;
    let y = if x == 0.0 { f64::NEG_INFINITY } else { y };
    if x < f64::INFINITY { y } else { x }
}

/// Returns `e^x` to about 10^-12.
#[inline(always)]
fn exp_f64(x: f64) -> f64 {
    let x = if x > 200.0 { 200.0 } else { x };
    let x = if x < -200.0 { -200.0 } else { x };
    let shifted = x * std::f64::consts::LOG2_E + ROUND_F64;
    let n = (shifted.to_bits() as i64).wrapping_sub(ROUND_F64.to_bits() as i64).clamp(-400, 400);
    let r = x - (shifted - ROUND_F64) * std::f64::consts::LN_2;
    let mut p = 1.0 / 39_916_800.0;
    p = p * r + 1.0 / 3_628_800.0;
    p = p * r + 1.0 / 362_880.0;
    p = p * r + 1.0 / 40_320.0;
    p = p * r + 1.0 / 5_040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    (p * r * r + r + 1.0) * f64::from_bits(((n + 1023) << 52) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error in units in the last place of the exact result.
    fn ulps(actual: f32, exact: f64) -> f64 {
        let nearest = exact as f32;
        if actual == nearest || (actual.is_nan() && nearest.is_nan()) {
            return 0.0;
        }
        let unit = f64::from(nearest.abs().max(f32::MIN_POSITIVE).next_up() - nearest.abs().max(f32::MIN_POSITIVE));
        (f64::from(actual) - exact).abs() / unit
    }

    fn check_ulps(name: &str, f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64, low: f32, high: f32, most: f64) {
        let mut worst = (0.0, 0.0f32);
        for i in 0..=200_000 {
            let x = low + (high - low) * (i as f32 / 200_000.0);
            let error = ulps(f(x), exact(f64::from(x)));
            if error > worst.0 {
                worst = (error, x);
            }
        }
        assert!(worst.0 <= most, "{name}: {} ulp at {}", worst.0, worst.1);
    }

    /// Computes `erf` by its Maclaurin series, which is exact enough in f64 while terms stay small, and beyond that by
    /// a continued fraction.
    fn erf_exact(x: f64) -> f64 {
        if x.abs() > 3.0 {
            let t = x.abs();
            let fraction = (1..=60).rev().fold(t, |acc, n| t + f64::from(n) / 2.0 / acc);
            return (1.0 - (-t * t).exp() / (fraction * std::f64::consts::PI.sqrt())).copysign(x);
        }
        let (mut term, mut sum) = (x, x);
        for n in 1..120 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    }

    #[test]
    fn elementary_functions_are_within_a_few_ulps() {
        check_ulps("exp", exp, f64::exp, -103.0, 88.7, 2.0);
        check_ulps("exp near 0", exp, f64::exp, -1.0, 1.0, 2.0);
        check_ulps("log", log, f64::ln, 1e-30, 10.0, 2.0);
        check_ulps("log large", log, f64::ln, 1.0, 1e30, 2.0);
        check_ulps("tanh", tanh, f64::tanh, -10.0, 10.0, 3.0);
        check_ulps("erf", erf, erf_exact, -5.0, 5.0, 3.0);
        check_ulps("sin", sin, f64::sin, -3.0, 3.0, 2.0);
        check_ulps("cos", cos, f64::cos, -1.5, 1.5, 2.0);
        check_ulps("pow 2.5", |x| pow(x, 2.5), |x| x.powf(2.5), 0.0, 50.0, 1.0);
        check_ulps("pow -7", |x| pow(x, -7.0), |x| x.powf(-7.0), -5.0, 5.0, 1.0);
        check_ulps("pow of 1.7", |x| pow(1.7, x), |x| f64::from(1.7f32).powf(x), -160.0, 160.0, 1.0);
    }

    #[test]
    fn sin_and_cos_reduce_large_angles() {
        for i in 0..100_000 {
            let x = (i as f32 - 50_000.0) * 977.1;
            assert!((f64::from(sin(x)) - f64::from(x).sin()).abs() < 2e-7, "{x}");
            assert!((f64::from(cos(x)) - f64::from(x).cos()).abs() < 2e-7, "{x}");
        }
        assert!(sin(f32::INFINITY).is_nan() && cos(f32::NAN).is_nan());
    }

    #[test]
    fn elementary_functions_follow_c99_for_special_values() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        assert_eq!((exp(inf), exp(-inf), exp(0.0), exp(89.5), exp(-110.0)), (inf, 0.0, 1.0, inf, 0.0));
        assert_eq!((log(0.0), log(inf), log(1.0)), (-inf, inf, 0.0));
        assert!(
            exp(nan).is_nan() && log(nan).is_nan() && log(-1.0).is_nan() && tanh(nan).is_nan() && erf(nan).is_nan()
        );
        assert_eq!(log(1e-42), (f64::from(1e-42f32).ln()) as f32);
        assert_eq!((tanh(inf), tanh(-inf), erf(inf), erf(-inf)), (1.0, -1.0, 1.0, -1.0));
        assert_eq!((tanh(1e-20), erf(0.0)), (1e-20, 0.0));
        let bases = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, inf, -inf, nan, 1e-40];
        let exponents = [0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, inf, -inf, nan, 2.5, 1e30];
        for a in bases {
            for b in exponents {
                let exact = f64::from(a).powf(f64::from(b)) as f32;
                let actual = pow(a, b);
                let equal = actual.to_bits() == exact.to_bits() || (actual.is_nan() && exact.is_nan());
                assert!(equal || ulps(actual, f64::from(exact)) <= 1.0, "{a}^{b}: {actual}, not {exact}");
            }
        }
    }
}
