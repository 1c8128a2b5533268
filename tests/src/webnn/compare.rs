//! Compares a result with the expected one, within a tolerance.

use saggar_tensor::DType;
use saggar_tensor::interp::{InterpElements, InterpTensor};

use super::case::Tolerance;

/// The tolerance in ULPs of a case that states none.
const DEFAULT_ULP: u64 = 16;

/// Returns an error with the first element outside the tolerance, if any.
pub(super) fn compare(
    expected: &InterpTensor,
    found: &InterpTensor,
    tolerance: Option<Tolerance>,
) -> Result<(), String> {
    if expected.descriptor() != found.descriptor() {
        return Err(format!("{} was expected, not {}", expected.descriptor(), found.descriptor()));
    }
    let tolerance = tolerance.unwrap_or(Tolerance::Ulp(DEFAULT_ULP));
    let dtype = expected.descriptor().dtype;
    let pairs: Vec<(f64, f64, bool)> = match (expected.elements(), found.elements()) {
        (InterpElements::Float(a), InterpElements::Float(b)) => {
            a.iter().zip(b).map(|(&a, &b)| (a, b, is_float_near(dtype, a, b, tolerance))).collect()
        }
        (InterpElements::Int(a), InterpElements::Int(b)) => {
            a.iter().zip(b).map(|(&a, &b)| (a as f64, b as f64, is_integer_near(a, b, tolerance))).collect()
        }
        (InterpElements::Float(_), InterpElements::Int(_)) | (InterpElements::Int(_), InterpElements::Float(_)) => {
            Vec::new()
        }
    };
    match pairs.iter().position(|(_, _, near)| !near) {
        None => Ok(()),
        Some(at) => Err(format!("element {at} is {}, not {} ({tolerance:?} allowed)", pairs[at].1, pairs[at].0)),
    }
}

fn is_integer_near(a: i128, b: i128, tolerance: Tolerance) -> bool {
    match tolerance {
        Tolerance::Ulp(units) => a.abs_diff(b) <= u128::from(units),
        Tolerance::Absolute(distance) => a.abs_diff(b) as f64 <= distance,
    }
}

fn is_float_near(dtype: DType, a: f64, b: f64, tolerance: Tolerance) -> bool {
    if a == b || a.is_nan() && b.is_nan() {
        return true;
    }
    match tolerance {
        Tolerance::Absolute(distance) => (a - b).abs() <= distance,
        Tolerance::Ulp(units) => {
            !a.is_nan() && !b.is_nan() && ordered_bits(dtype, a).abs_diff(ordered_bits(dtype, b)) <= units
        }
    }
}

/// Maps adjacent floats to adjacent integers; both zeros map to 0.
fn ordered_bits(dtype: DType, value: f64) -> i64 {
    let magnitude = if dtype == DType::F16 {
        let bytes = saggar_tensor::interp::InterpTensor::from_numbers(
            DType::F16,
            saggar_tensor::Shape::scalar(),
            &[value.abs()],
        )
        .map(|value| value.to_bytes())
        .unwrap_or_default();
        bytes.first().zip(bytes.get(1)).map_or(0, |(&low, &high)| i64::from(u16::from_le_bytes([low, high])))
    } else {
        i64::from((value.abs() as f32).to_bits())
    };
    if value < 0.0 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_floats_differ_by_one_ulp() {
        let next = f64::from(f32::from_bits(1.0f32.to_bits() + 1));
        assert_eq!(ordered_bits(DType::F32, next) - ordered_bits(DType::F32, 1.0), 1);
        assert_eq!(ordered_bits(DType::F16, 1.0 + 1.0 / 1024.0) - ordered_bits(DType::F16, 1.0), 1);
        let least = f64::from(f32::from_bits(1));
        assert_eq!(ordered_bits(DType::F32, least) - ordered_bits(DType::F32, -least), 2);
        assert!(is_float_near(DType::F32, 0.0, -0.0, Tolerance::Ulp(0)));
        assert!(!is_float_near(DType::F32, 1.0, f64::NAN, Tolerance::Ulp(1000)));
        assert!(!is_float_near(DType::F32, f64::INFINITY, 1e38, Tolerance::Absolute(1e30)));
    }
}
