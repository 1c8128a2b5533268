//! IEEE 754 binary16 in software. Processors compute half-precision numbers as `f32`, tensors store them as 16 bits,
//! and GPU memory holds the `f32` of the same value.

/// Returns the number that `bits` encode.
#[inline(always)]
pub(crate) fn to_f32(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let sign = u32::from(bits & 0x8000) << 16;
    // Multiplying by 2^112 rebases the exponent and also normalises subnormal numbers.
    let scaled = f32::from_bits(magnitude) * f32::from_bits(0x7780_0000);
    let special = (bits & 0x7c00) == 0x7c00;
    let finite = scaled.to_bits();
    f32::from_bits(sign | if special { magnitude | 0x7f80_0000 } else { finite })
}

/// Returns the nearest half-precision number, ties to even. Values that are too large become infinite, and NaN stays
/// NaN.
#[inline(always)]
pub(crate) fn from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    let normal = {
        let odd = (magnitude >> 13) & 1;
        (magnitude.wrapping_sub(0x3800_0000).wrapping_add(0x0fff + odd) >> 13) as u16
    };
    // Adding 0.5 makes the hardware round a subnormal result and leaves its digits at the bottom of the sum.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000) as u16;
    let finite = if magnitude < 0x3880_0000 { subnormal } else { normal };
    let large = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    sign | if magnitude >= 0x4780_0000 { large } else { finite }
}

/// Returns `value` rounded to half precision.
#[inline(always)]
pub(crate) fn round(value: f32) -> f32 {
    to_f32(from_f32(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_value_survives_a_round_trip_through_f32() {
        for bits in 0..=u16::MAX {
            let value = to_f32(bits);
            if value.is_nan() {
                assert!(to_f32(from_f32(value)).is_nan());
            } else {
                assert_eq!(from_f32(value), bits, "{value}");
            }
        }
    }

    #[test]
    fn rounds_to_the_nearest_and_ties_to_even() {
        for bits in 0..0x7bffu16 {
            let (low, high) = (f64::from(to_f32(bits)), f64::from(to_f32(bits + 1)));
            let middle = ((low + high) / 2.0) as f32;
            assert_eq!(from_f32(middle), bits + (bits & 1), "between {low} and {high}");
            assert_eq!(from_f32(middle.next_down()), bits);
            assert_eq!(from_f32(middle.next_up()), bits + 1);
        }
        assert_eq!(from_f32(65519.9), 0x7bff);
        assert_eq!(from_f32(65520.0), 0x7c00);
        assert_eq!(from_f32(-1e9), 0xfc00);
        assert_eq!(to_f32(0x3c00), 1.0);
        assert_eq!(to_f32(0x0001), 2f32.powi(-24));
    }
}
