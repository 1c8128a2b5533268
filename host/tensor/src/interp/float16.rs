//! IEEE 754 binary16 by arithmetic in f64: every step except the one rounding is exact.

/// Smallest positive normal binary16 number, 2^-14.
const NORMAL_MIN: f64 = 1.0 / 16384.0;
/// Distance between neighbouring subnormal numbers, 2^-24.
const SUBNORMAL_STEP: f64 = 1.0 / 16_777_216.0;
/// Largest finite number.
const MAX: f64 = 65504.0;

/// Returns `value` rounded to the nearest binary16 number, ties to even; infinity above the largest number. NaN stays
/// NaN.
///
/// There is only one rounding. Rounding to binary32 first could give a different result.
pub fn round(value: f64) -> f64 {
    if !value.is_finite() || value == 0.0 {
        return value;
    }
    let step = if value.abs() < NORMAL_MIN { SUBNORMAL_STEP } else { power_of_two(exponent(value) - 10) };
    let rounded = (value / step).round_ties_even() * step;
    if rounded.abs() > MAX { f64::INFINITY.copysign(value) } else { rounded }
}

/// Returns the binary16 encoding of `value`, after rounding.
pub fn to_bits(value: f64) -> u16 {
    let value = round(value);
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let magnitude = value.abs();
    if value.is_nan() {
        return sign | 0x7e00;
    }
    if magnitude.is_infinite() {
        return sign | 0x7c00;
    }
    if magnitude < NORMAL_MIN {
        return sign | (magnitude / SUBNORMAL_STEP) as u16;
    }
    let exponent = exponent(magnitude);
    let fraction = (magnitude / power_of_two(exponent) - 1.0) * 1024.0;
    sign | (((exponent + 15) as u16) << 10) | fraction as u16
}

/// Returns the number that `bits` encodes.
pub fn from_bits(bits: u16) -> f64 {
    let fraction = f64::from(bits & 0x3ff);
    let magnitude = match (bits >> 10) & 0x1f {
        0 => fraction * SUBNORMAL_STEP,
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        exponent => (1.0 + fraction / 1024.0) * power_of_two(i32::from(exponent) - 15),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

/// Returns the binary exponent of a normal f64.
fn exponent(value: f64) -> i32 {
    ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

/// Returns `2^exponent`, for exponents of normal f64 numbers.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::{from_bits, round, to_bits};

    #[test]
    fn every_encoding_survives() {
        for bits in 0..=u16::MAX {
            let value = from_bits(bits);
            if value.is_nan() {
                assert!(from_bits(to_bits(value)).is_nan());
            } else {
                assert_eq!(to_bits(value), bits, "{value}");
            }
        }
    }

    #[test]
    fn halves_round_to_even() {
        // Between each pair of positive finite neighbours: the midpoint rounds to the even encoding, and values on
        // either side of it round to the nearer one.
        for bits in 0..0x7bffu16 {
            let (low, high) = (from_bits(bits), from_bits(bits + 1));
            let middle = (low + high) / 2.0;
            let even = if bits % 2 == 0 { low } else { high };
            assert_eq!(round(middle), even);
            assert_eq!(round(middle - (high - low) * 1e-9), low);
            assert_eq!(round(-middle - (high - low) * 1e-9), -high);
        }
        assert_eq!(round(65519.99), 65504.0);
        assert_eq!(round(65520.0), f64::INFINITY);
        assert_eq!(round(-1e300), f64::NEG_INFINITY);
        assert_eq!(round(1e-300), 0.0);
    }
}
