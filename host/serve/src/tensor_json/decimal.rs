//! Scans the text of a JSON number and converts it to the nearest number of a type.

use super::number::JsonNumber;

/// Powers of ten that a double represents exactly.
const POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// The most decimal digits that always fit 64 bits.
const DIGITS_HELD_MAX: usize = 19;

/// A number as it was written: `digits * 10^power`, with a sign.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScannedDecimal<'b> {
    text: &'b [u8],
    is_negative: bool,
    /// All digits without the point, modulo 2^64.
    digits: u64,
    /// Whether `digits` are all of them.
    is_held: bool,
    power: i32,
    /// Whether the number has neither a fraction nor an exponent.
    is_whole: bool,
}

impl<'b> ScannedDecimal<'b> {
    /// Scans the number at `start`. Returns it and the offset of its end.
    ///
    /// # Errors
    /// Returns the offset of the error.
    #[inline]
    pub(super) fn scan(bytes: &'b [u8], start: usize) -> Result<(ScannedDecimal<'b>, usize), usize> {
        let is_negative = bytes.get(start) == Some(&b'-');
        let begin = start + usize::from(is_negative);
        let mut digits = 0;
        let mut at = scan_digits(bytes, begin, &mut digits)?;
        let mut digit_count = at - begin;
        // JSON has no leading zeros.
        if digit_count > 1 && bytes[begin] == b'0' {
            return Err(begin);
        }
        let (mut power, mut is_whole) = (0, true);
        if bytes.get(at) == Some(&b'.') {
            let end = scan_digits(bytes, at + 1, &mut digits)?;
            let decimals = end - at - 1;
            digit_count += decimals;
            (at, is_whole) = (end, false);
            // More decimals than that are not held.
            power = -(decimals.min(i32::MAX as usize) as i32);
        }
        if let Some(b'e' | b'E') = bytes.get(at) {
            let sign = bytes.get(at + 1).filter(|byte| matches!(byte, b'+' | b'-'));
            let from = at + 1 + usize::from(sign.is_some());
            let mut exponent = 0;
            at = scan_digits(bytes, from, &mut exponent)?;
            is_whole = false;
            // A long exponent may have overflowed.
            let exponent = if at - from > 4 { i32::MAX } else { exponent as i32 };
            power = if sign == Some(&b'-') { power.saturating_sub(exponent) } else { power.saturating_add(exponent) };
        }
        let is_held = digit_count <= DIGITS_HELD_MAX;
        Ok((ScannedDecimal { text: &bytes[start..at], is_negative, digits, is_held, power, is_whole }, at))
    }

    /// Returns the nearest double. It is infinite if the number is beyond its range.
    #[inline]
    pub(super) fn to_f64(self) -> f64 {
        let power = self.power.unsigned_abs() as usize;
        if !self.is_held || self.digits >= 1 << 53 || power >= POWERS_OF_TEN.len() {
            return self.parse_text();
        }
        // Both operands are exact, so the operation rounds once (Clinger, 1990).
        let digits = self.digits as f64;
        let magnitude = if self.power < 0 { digits / POWERS_OF_TEN[power] } else { digits * POWERS_OF_TEN[power] };
        if self.is_negative { -magnitude } else { magnitude }
    }

    /// Returns the float nearest to [`to_f64`](ScannedDecimal::to_f64).
    #[inline]
    pub(super) fn to_f32(self) -> f32 {
        let power = self.power.unsigned_abs() as usize;
        if self.is_held && self.digits >= 1 << 53 && power < POWERS_OF_TEN.len() {
            // Two roundings err by less than 2^-51 of the number. If both bounds have the same float, it is that one.
            const MARGIN: f64 = 1.0 / (1_u64 << 50) as f64;
            let digits = self.digits as f64;
            let near = if self.power < 0 { digits / POWERS_OF_TEN[power] } else { digits * POWERS_OF_TEN[power] };
            let (low, high) = ((near * (1.0 - MARGIN)) as f32, (near * (1.0 + MARGIN)) as f32);
            if low == high {
                return if self.is_negative { -low } else { low };
            }
        }
        self.to_f64() as f32
    }

    #[cold]
    fn parse_text(self) -> f64 {
        let text = std::str::from_utf8(self.text).unwrap_or_default();
        text.parse().expect("a JSON number is a float of the standard library")
    }

    /// Returns the number if it was written as an integer of at most 19 digits, other than `-0`.
    #[inline]
    pub(super) fn to_i64(self) -> Option<i64> {
        if !self.is_whole || !self.is_held || (self.is_negative && self.digits == 0) {
            return None;
        }
        let magnitude = i64::try_from(self.digits).ok()?;
        Some(if self.is_negative { -magnitude } else { magnitude })
    }

    /// Returns the number if it was written as an integer of at most 19 digits without a sign.
    #[inline]
    pub(super) fn to_u64(self) -> Option<u64> {
        (self.is_whole && self.is_held && !self.is_negative).then_some(self.digits)
    }

    /// Returns the number. Negative zero, and integers beyond 128 bits, are floats.
    pub(super) fn to_number(self) -> JsonNumber {
        let is_negative_zero = self.is_negative && self.is_held && self.digits == 0;
        if !self.is_whole || is_negative_zero {
            return JsonNumber::Float(self.to_f64());
        }
        let text = std::str::from_utf8(self.text).unwrap_or_default();
        text.parse().map_or_else(|_| JsonNumber::Float(self.to_f64()), JsonNumber::Integer)
    }
}

/// Scans at least one digit and appends them to `digits`. Returns the offset of their end, or as the error the offset
/// of what is no digit.
#[inline]
fn scan_digits(bytes: &[u8], from: usize, digits: &mut u64) -> Result<usize, usize> {
    let mut at = from;
    while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10) {
        *digits = digits.wrapping_mul(10).wrapping_add(digit.into());
        at += 1;
    }
    if at == from { Err(at) } else { Ok(at) }
}
