//! WGSL library functions for behaviour that the language does not define: NaN, accuracy, saturation, rounding to half
//! precision, random bits.
//!
//! Vulkan allows `log`, `sin` and `pow` absolute errors that affect training (2^-21 near 1 for the logarithm, 2^-11 for
//! the sine), so these are written out. NaN is detected by its bits, because a driver can fold `x != x`.

use super::wide_integer;

/// Functions by name, each with its text. A function calls only functions earlier in the list.
const FUNCTIONS: [(&str, &str); 21] = [
    // A parameter, so that no compiler stage sees a constant NaN or infinity, which WGSL forbids.
    ("float_bits", "fn float_bits(bits: u32) -> f32 {\n    return bitcast<f32>(bits);\n}\n"),
    ("is_nan", "fn is_nan(x: f32) -> bool {\n    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;\n}\n"),
    (
        "max_nan",
        "fn max_nan(a: f32, b: f32) -> f32 {\n    return select(select(max(a, b), b, is_nan(b)), a, is_nan(a));\n}\n",
    ),
    (
        "min_nan",
        "fn min_nan(a: f32, b: f32) -> f32 {\n    return select(select(min(a, b), b, is_nan(b)), a, is_nan(a));\n}\n",
    ),
    // Selects bits by a mask, because a driver can replace `select(x, 0.0, x <= 0.0)` by a maximum, which loses NaN.
    (
        "choose",
        "fn choose(condition: u32, yes: f32, no: f32) -> f32 {
    let other = bitcast<u32>(no);
    let mask = select(0u, 0xffffffffu, condition != 0u);
    return bitcast<f32>(other ^ ((bitcast<u32>(yes) ^ other) & mask));
}
",
    ),
    ("sign_nan", "fn sign_nan(x: f32) -> f32 {\n    return select(sign(x), x, is_nan(x));\n}\n"),
    ("exp_full", EXP),
    ("log_full", LOG),
    ("pow_full", POW),
    ("trigonometric", TRIGONOMETRIC),
    ("tanh_full", TANH),
    ("erf_full", ERF),
    (
        "to_i32",
        "fn to_i32(x: f32, low: f32, high: f32) -> i32 {\n    if (is_nan(x)) { return 0; }\n    \
         if (x >= 2147483648.0) { return select(i32(high), 2147483647, high >= 2147483648.0); }\n    \
         return i32(clamp(x, low, min(high, 2147483520.0)));\n}\n",
    ),
    (
        "to_u32",
        "fn to_u32(x: f32, high: f32) -> u32 {\n    if (is_nan(x)) { return 0u; }\n    \
         if (x >= 4294967296.0) { return select(u32(min(high, 4294967040.0)), 4294967295u, high >= 4294967296.0); }\n    \
         return u32(clamp(x, 0.0, min(high, 4294967040.0)));\n}\n",
    ),
    ("less_i64", LESS_I64),
    ("less_u64", LESS_U64),
    ("to_i64", TO_I64),
    ("to_u64", TO_U64),
    ("to_half", TO_HALF),
    ("multiply_high", MULTIPLY_HIGH),
    ("philox", PHILOX),
];

/// Returns the functions that `texts` call, directly or indirectly, callees first.
pub(super) fn called_functions(texts: &[&str]) -> String {
    let mut chosen: Vec<&str> = Vec::new();
    for (name, text) in FUNCTIONS.iter().chain(&wide_integer::FUNCTIONS).rev() {
        let call = format!("{name}(");
        if texts.iter().chain(&chosen).any(|caller| caller.contains(&call)) {
            chosen.push(text);
        }
    }
    chosen.iter().rev().map(|text| format!("{text}\n")).collect()
}

// Cody and Waite's reduction by the logarithm of 2, then the exponential series to degree 7.
const EXP: &str = "fn exp_full(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    if (x > 88.8) { return float_bits(0x7f800000u); }
    if (x < -104.0) { return 0.0; }
    let n = round(x * 1.44269504);
    let r = (x - n * 0.693359375) + n * 2.12194440e-4;
    var p = 1.98412698e-4;
    p = p * r + 1.38888889e-3;
    p = p * r + 8.33333333e-3;
    p = p * r + 4.16666667e-2;
    p = p * r + 1.66666667e-1;
    p = p * r + 0.5;
    p = (p * r) * r + r + 1.0;
    let half = i32(n) / 2;
    let rest = i32(n) - half;
    return p * bitcast<f32>(bitcast<u32>(half + 127) << 23u) * bitcast<f32>(bitcast<u32>(rest + 127) << 23u);
}
";

// The series of the inverse hyperbolic tangent at (m - 1) / (m + 1), with m between sqrt(1/2) and sqrt(2): its relative
// error stays small where the logarithm is near 0.
const LOG: &str = "fn log_full(x: f32) -> f32 {
    if (is_nan(x) || x < 0.0) { return float_bits(0x7fc00000u); }
    if (x == 0.0) { return float_bits(0xff800000u); }
    if (bitcast<u32>(x) == 0x7f800000u) { return x; }
    let tiny = x < 1.17549435e-38;
    let bits = bitcast<u32>(select(x, x * 8388608.0, tiny));
    let exponent = (bits - 0x3f3504f3u) & 0xff800000u;
    let m = bitcast<f32>(bits - exponent);
    let e = f32(bitcast<i32>(exponent) >> 23u) - select(0.0, 23.0, tiny);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    var p = 0.222222222;
    p = p * z + 0.285714286;
    p = p * z + 0.4;
    p = p * z + 0.666666667;
    return e * 0.693359375 + (2.0 * s + (s * z * p - e * 2.12194440e-4));
}
";

// IEEE 754's rules for zero, infinity and negative bases; small integer powers by squaring, which is exact where
// possible.
const POW: &str = "fn pow_full(a: f32, b: f32) -> f32 {
    if (b == 0.0 || a == 1.0) { return 1.0; }
    if (is_nan(a) || is_nan(b)) { return float_bits(0x7fc00000u); }
    let base = abs(a);
    let infinite = bitcast<u32>(base) == 0x7f800000u;
    let whole = floor(b) == b;
    var r = 1.0;
    if (whole && abs(b) <= 64.0) {
        var n = u32(abs(b));
        var factor = base;
        while (n > 0u) {
            if ((n & 1u) == 1u) { r = r * factor; }
            factor = factor * factor;
            n = n >> 1u;
        }
        if (b < 0.0) {
            r = select(1.0 / r, float_bits(0x7f800000u), r == 0.0);
        }
    } else if ((bitcast<u32>(b) & 0x7fffffffu) == 0x7f800000u) {
        if (base != 1.0) { r = select(0.0, float_bits(0x7f800000u), (base > 1.0) == (b > 0.0)); }
    } else if (base == 0.0 || infinite) {
        r = select(0.0, float_bits(0x7f800000u), infinite == (b > 0.0));
    } else {
        r = exp_full(b * log_full(base));
    }
    if ((bitcast<u32>(a) >> 31u) == 0u) { return r; }
    if (!whole) {
        if (base == 0.0 || infinite) { return r; }
        return float_bits(0x7fc00000u);
    }
    let odd = abs(b) < 16777216.0 && (u32(abs(b)) & 1u) == 1u;
    return select(r, -r, odd);
}
";

// Cody and Waite's reduction by pi / 2 in four parts; `shift` quarter turns are added.
const TRIGONOMETRIC: &str = "fn trigonometric(x: f32, shift: u32) -> f32 {
    let finite = (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
    if (!finite) { return float_bits(0x7fc00000u); }
    let n = round(x * 0.636619772);
    let r = ((x - n * 1.5703125) - n * 4.837512969970703e-4) - n * 7.549533620476723e-8 - n * 2.563344151594519e-12;
    let z = r * r;
    let quadrant = bitcast<u32>(i32(clamp(n, -2147483520.0, 2147483520.0))) + shift;
    let sine = r + r * z * (-1.66666667e-1 + z * (8.33333333e-3 + z * (-1.98412698e-4 + z * 2.75573192e-6)));
    let cosine = 1.0 - 0.5 * z
        + z * z * (4.16666667e-2 + z * (-1.38888889e-3 + z * (2.48015873e-5 - z * 2.75573192e-7)));
    let y = select(sine, cosine, (quadrant & 1u) == 1u);
    return clamp(select(y, -y, (quadrant & 2u) == 2u), -1.0, 1.0);
}
";

// Rational approximations over the range in which the function is not yet 1 in float32. Source of the coefficients:
// Eigen, `generic_fast_tanh_float` and `generic_fast_erf`.
const TANH: &str = "fn tanh_full(a: f32) -> f32 {
    if (is_nan(a)) { return a; }
    if (abs(a) < 0.0004) { return a; }
    let x = clamp(a, -7.90531111, 7.90531111);
    let z = x * x;
    var n = -2.76076847742355e-16;
    n = n * z + 2.00018790482477e-13;
    n = n * z - 8.60467152213735e-11;
    n = n * z + 5.12229709037114e-08;
    n = n * z + 1.48572235717979e-05;
    n = n * z + 6.37261928875436e-04;
    n = n * z + 4.89352455891786e-03;
    var d = 1.19825839466702e-06;
    d = d * z + 1.18534705686654e-04;
    d = d * z + 2.26843463243900e-03;
    d = d * z + 4.89352518554385e-03;
    return x * n / d;
}
";

const ERF: &str = "fn erf_full(a: f32) -> f32 {
    if (is_nan(a)) { return a; }
    let x = clamp(a, -3.83250686, 3.83250686);
    let z = x * x;
    var n = 2.2905065861350646e-4;
    n = n * z + 3.4082910107109506e-3;
    n = n * z + 5.0955695062380861e-2;
    n = n * z + 1.8520832239976145e-1;
    n = n * z + 1.128379143519084;
    var d = -1.1791602954361697e-7;
    d = d * z + 2.3547966471313185e-5;
    d = d * z + 1.0179625278914885e-3;
    d = d * z + 1.4070470171167667e-2;
    d = d * z + 1.1098505178285362e-1;
    d = d * z + 4.9746925110067538e-1;
    d = d * z + 1.0;
    return x * n / d;
}
";

// Mesa 22.3 miscompiles comparisons of a widened 32-bit integer with a constant: the result is always equal or larger.
// Comparing by halves is correct.
const LESS_I64: &str = "fn less_i64(a: i64, b: i64) -> bool {
    let high = vec2<i32>(i32(a >> 32u), i32(b >> 32u));
    let low = vec2<u32>(u32(bitcast<u64>(a) & 0xfffffffflu), u32(bitcast<u64>(b) & 0xfffffffflu));
    return high.x < high.y || (high.x == high.y && low.x < low.y);
}
";

const LESS_U64: &str = "fn less_u64(a: u64, b: u64) -> bool {
    let high = vec2<u32>(u32(a >> 32u), u32(b >> 32u));
    let low = vec2<u32>(u32(a & 0xfffffffflu), u32(b & 0xfffffffflu));
    return high.x < high.y || (high.x == high.y && low.x < low.y);
}
";

// The hardware conversion of a float out of range is undefined; 2^63 and 2^64 are the first values above the range.
const TO_I64: &str = "fn to_i64(x: f32) -> i64 {
    if (is_nan(x)) { return 0li; }
    if (x >= 9223372036854775808.0) { return 9223372036854775807li; }
    return i64(max(x, -9223372036854775808.0));
}
";

const TO_U64: &str = "fn to_u64(x: f32) -> u64 {
    if (is_nan(x)) { return 0lu; }
    if (x >= 18446744073709551616.0) { return 18446744073709551615lu; }
    return u64(max(x, 0.0));
}
";

// Rounds to the nearest half-precision number, ties to even, on the bits, because Vulkan does not define the rounding
// of its conversions and packings. Values from 65520 become infinity. Below 2^-14 the result is a multiple of 2^-24:
// `drop` digits are rounded away, and no digit is left for numbers below 2^-25.
const TO_HALF: &str = "fn to_half(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    let normal = (size + 0xfffu + ((size >> 13u) & 1u)) & 0xffffe000u;
    let drop = 126u - clamp(size >> 23u, 101u, 112u);
    let digits = (size & 0x7fffffu) | 0x800000u;
    let steps = (digits + (1u << (drop - 1u)) - 1u + ((digits >> drop) & 1u)) >> drop;
    let subnormal = bitcast<u32>(f32(steps) * 5.9604644775390625e-8);
    let finite = select(normal, subnormal, size < 0x38800000u);
    let large = select(0x7f800000u, size, size > 0x7f800000u);
    return bitcast<f32>((bits & 0x80000000u) | select(finite, large, size >= 0x477ff000u));
}
";

// The upper half of a 64-bit product, from four 16-bit products, because plain WGSL has no wider type.
const MULTIPLY_HIGH: &str = "fn multiply_high(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u);
}
";

// Philox4x32-10. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
const PHILOX: &str =
    "fn philox(element: u32, step_low: u32, step_high: u32, stream: u32, seed_low: u32, seed_high: u32) -> u32 {
    var c = vec4<u32>(element / 4u, step_low, step_high, stream);
    var k = vec2<u32>(seed_low, seed_high);
    for (var i = 0u; i < 10u; i += 1u) {
        let high0 = multiply_high(0xd2511f53u, c.x);
        let high1 = multiply_high(0xcd9e8d57u, c.z);
        c = vec4<u32>(high1 ^ c.y ^ k.x, c.z * 0xcd9e8d57u, high0 ^ c.w ^ k.y, c.x * 0xd2511f53u);
        k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    let word = element % 4u;
    return select(select(c.x, c.y, word == 1u), select(c.z, c.w, word == 3u), word >= 2u);
}
";
