//! 64-bit integers for shaders without a 64-bit type: a `vec2<u32>`, the low word first, which is also the memory
//! layout of an `i64`.
//!
//! Two's complement: sums, differences and products are the same for signed and unsigned operands, and all wrap.
//! Functions with `signed` in their names read the upper word's highest bit as the sign.

use saggar_tensor::DType;

use super::shader::ShaderTuning;

/// How shaders represent 64-bit integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WideIntegers {
    /// As `i64` and `u64`, naga's extension of WGSL.
    Native,
    /// As two words.
    Words,
}

/// The two-word type in WGSL.
pub(super) const WORDS: &str = "vec2<u32>";

impl WideIntegers {
    pub(super) fn from_tuning(tuning: &ShaderTuning) -> WideIntegers {
        if tuning.wide_integers { WideIntegers::Native } else { WideIntegers::Words }
    }

    /// Returns whether elements of `dtype` are two words.
    pub(super) fn is_emulated(self, dtype: DType) -> bool {
        self == WideIntegers::Words && is_wide(dtype)
    }
}

/// Returns whether `dtype` is a 64-bit integer.
pub(super) fn is_wide(dtype: DType) -> bool {
    dtype.bytes() == 8
}

/// Returns the name suffix of functions that depend on the sign of `dtype`, as in `wide_divide_signed`.
pub(super) fn sign_suffix(dtype: DType) -> &'static str {
    if dtype.is_signed_integer() { "signed" } else { "unsigned" }
}

/// Returns a constant: the low 64 bits of `value`.
pub(super) fn word_literal(value: i128) -> String {
    let bits = value as u64;
    format!("vec2<u32>({:#x}u, {:#x}u)", bits as u32, bits >> 32)
}

/// Returns `a`, of type `from`, as two words of type `to`.
pub(super) fn to_words(from: DType, to: DType, a: &str) -> String {
    if is_wide(from) {
        a.to_owned()
    } else if from.is_float() {
        format!("wide_from_float_{}({a})", sign_suffix(to))
    } else if from.is_signed_integer() {
        format!("wide_extend({a})")
    } else {
        format!("vec2<u32>({a}, 0u)")
    }
}

/// Returns `a`, two words of type `from`, as type `to`: the nearest `f32` if `to` is a float, otherwise its low word,
/// which the caller narrows for types below 32 bits.
pub(super) fn from_words(from: DType, to: DType, a: &str) -> String {
    if to.is_float() {
        format!("wide_to_float_{}({a})", sign_suffix(from))
    } else if to.is_signed_integer() {
        format!("bitcast<i32>(({a}).x)")
    } else {
        format!("({a}).x")
    }
}

/// Functions by name, each with its text. A function calls only functions earlier in the list, or in
/// [`super::library`].
pub(super) const FUNCTIONS: [(&str, &str); 17] = [
    (
        "wide_add",
        "fn wide_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {\n    let low = a.x + b.x;\n    \
         return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));\n}\n",
    ),
    (
        "wide_subtract",
        "fn wide_subtract(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {\n    \
         return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));\n}\n",
    ),
    (
        "wide_multiply",
        "fn wide_multiply(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {\n    \
         return vec2<u32>(a.x * b.x, multiply_high(a.x, b.x) + a.x * b.y + a.y * b.x);\n}\n",
    ),
    (
        "wide_negate",
        "fn wide_negate(a: vec2<u32>) -> vec2<u32> {\n    return wide_subtract(vec2<u32>(0u, 0u), a);\n}\n",
    ),
    ("wide_is_negative", "fn wide_is_negative(a: vec2<u32>) -> bool {\n    return (a.y >> 31u) == 1u;\n}\n"),
    (
        "wide_absolute",
        "fn wide_absolute(a: vec2<u32>) -> vec2<u32> {\n    \
         return select(a, wide_negate(a), wide_is_negative(a));\n}\n",
    ),
    (
        "wide_sign",
        "fn wide_sign(a: vec2<u32>) -> vec2<u32> {\n    let some = select(0u, 1u, (a.x | a.y) != 0u);\n    \
         return select(vec2<u32>(some, 0u), vec2<u32>(0xffffffffu, 0xffffffffu), wide_is_negative(a));\n}\n",
    ),
    (
        "wide_less_unsigned",
        "fn wide_less_unsigned(a: vec2<u32>, b: vec2<u32>) -> bool {\n    \
         return a.y < b.y || (a.y == b.y && a.x < b.x);\n}\n",
    ),
    (
        "wide_less_signed",
        "fn wide_less_signed(a: vec2<u32>, b: vec2<u32>) -> bool {\n    \
         let high = vec2<i32>(bitcast<i32>(a.y), bitcast<i32>(b.y));\n    \
         return high.x < high.y || (high.x == high.y && a.x < b.x);\n}\n",
    ),
    ("wide_divide_unsigned", DIVIDE_UNSIGNED),
    ("wide_divide_signed", DIVIDE_SIGNED),
    (
        "wide_extend",
        "fn wide_extend(a: i32) -> vec2<u32> {\n    return vec2<u32>(bitcast<u32>(a), bitcast<u32>(a >> 31u));\n}\n",
    ),
    ("wide_from_size", FROM_SIZE),
    ("wide_from_float_unsigned", FROM_FLOAT_UNSIGNED),
    ("wide_from_float_signed", FROM_FLOAT_SIGNED),
    ("wide_to_float_unsigned", TO_FLOAT_UNSIGNED),
    ("wide_to_float_signed", TO_FLOAT_SIGNED),
];

/// Loop iterations of a division.
pub(super) const DIVISION_ITERATIONS: usize = 32;

// Long division by one bit per iteration, except for the upper word of the quotient, which is a division of words or 0.
// The remainder is less than `b`, and twice the remainder can need one bit more than two words. Division by 0 gives 0.
const DIVIDE_UNSIGNED: &str = "fn wide_divide_unsigned(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    if ((b.x | b.y) == 0u) { return vec2<u32>(0u, 0u); }
    if ((a.y | b.y) == 0u) { return vec2<u32>(a.x / b.x, 0u); }
    var high = 0u;
    var rest = vec2<u32>(a.y, 0u);
    if (b.y == 0u) {
        high = a.y / b.x;
        rest.x = a.y % b.x;
    }
    var low = 0u;
    for (var bit = 32u; bit > 0u; bit -= 1u) {
        let carried = (rest.y >> 31u) == 1u;
        rest = vec2<u32>((rest.x << 1u) | ((a.x >> (bit - 1u)) & 1u), (rest.y << 1u) | (rest.x >> 31u));
        low = low << 1u;
        if (carried || !wide_less_unsigned(rest, b)) {
            rest = wide_subtract(rest, b);
            low = low | 1u;
        }
    }
    return vec2<u32>(low, high);
}
";

// Rounds toward 0. The smallest number divided by -1 wraps to itself.
const DIVIDE_SIGNED: &str = "fn wide_divide_signed(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let quotient = wide_divide_unsigned(wide_absolute(a), wide_absolute(b));
    return select(quotient, wide_negate(quotient), wide_is_negative(a) != wide_is_negative(b));
}
";

// For a float from 0 to less than 2^64. Both products are by powers of two, and a float has no more digits than a word,
// so that only digits after the point are lost.
const FROM_SIZE: &str = "fn wide_from_size(x: f32) -> vec2<u32> {
    let high = floor(x * 2.3283064365386963e-10);
    return vec2<u32>(u32(x - high * 4294967296.0), u32(high));
}
";

// Saturates out-of-range values; NaN becomes 0.
const FROM_FLOAT_UNSIGNED: &str = "fn wide_from_float_unsigned(x: f32) -> vec2<u32> {
    if (is_nan(x) || x <= 0.0) { return vec2<u32>(0u, 0u); }
    if (x >= 18446744073709551616.0) { return vec2<u32>(0xffffffffu, 0xffffffffu); }
    return wide_from_size(x);
}
";

const FROM_FLOAT_SIGNED: &str = "fn wide_from_float_signed(x: f32) -> vec2<u32> {
    if (is_nan(x)) { return vec2<u32>(0u, 0u); }
    if (x >= 9223372036854775808.0) { return vec2<u32>(0xffffffffu, 0x7fffffffu); }
    if (x <= -9223372036854775808.0) { return vec2<u32>(0u, 0x80000000u); }
    let size = wide_from_size(abs(x));
    return select(size, wide_negate(size), x < 0.0);
}
";

// Rounds to the nearest float, ties to even. The 64 bits are shifted up until the highest bit is set; the upper 24 bits
// are the digits, and a carry out of them raises the exponent. Converting each word to a float and adding would round
// twice.
const TO_FLOAT_UNSIGNED: &str = "fn wide_to_float_unsigned(a: vec2<u32>) -> f32 {
    if ((a.x | a.y) == 0u) { return 0.0; }
    let zeros = select(countLeadingZeros(a.y), 32u + countLeadingZeros(a.x), a.y == 0u);
    var top = select(a, vec2<u32>(0u, a.x), zeros >= 32u);
    let shift = zeros & 31u;
    if (shift > 0u) { top = vec2<u32>(top.x << shift, (top.y << shift) | (top.x >> (32u - shift))); }
    let digits = top.y >> 8u;
    let rest = top.y & 0xffu;
    let up = rest > 0x80u || (rest == 0x80u && (top.x != 0u || (digits & 1u) == 1u));
    return bitcast<f32>(((190u - zeros) << 23u) + (digits - 0x800000u) + select(0u, 1u, up));
}
";

const TO_FLOAT_SIGNED: &str = "fn wide_to_float_signed(a: vec2<u32>) -> f32 {
    let size = wide_to_float_unsigned(wide_absolute(a));
    return select(size, -size, wide_is_negative(a));
}
";
