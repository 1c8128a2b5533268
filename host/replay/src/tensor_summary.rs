//! Tensors as numbers: a summary, and the first element that is not finite.

use std::fmt;

use saggar_tensor::Descriptor;
use serde::{Deserialize, Serialize};

/// Number of elements that a summary contains.
const FIRST_ELEMENTS: usize = 8;

/// A tensor in a few numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorSummary {
    /// Data type and shape: `f32[32, 10]`.
    pub descriptor: String,
    /// The smallest finite element; `None` if no element is finite.
    pub min: Option<f64>,
    /// The largest finite element; `None` if no element is finite.
    pub max: Option<f64>,
    /// The mean of the finite elements; `None` if no element is finite.
    pub mean: Option<f64>,
    /// Elements that are not a number.
    pub nan: u64,
    /// Elements that are infinite.
    pub infinite: u64,
    /// The first elements, as text: `NaN` and `inf` have no form in JSON.
    pub first: Vec<String>,
}

/// Returns the summary of a tensor, given as dense little-endian bytes.
pub(crate) fn summarize(descriptor: &Descriptor, bytes: &[u8]) -> TensorSummary {
    let values = saggar_plugin::decode_numbers(descriptor.dtype, bytes);
    let mut summary = TensorSummary {
        descriptor: descriptor.to_string(),
        min: None,
        max: None,
        mean: None,
        nan: values.iter().filter(|value| value.is_nan()).count() as u64,
        infinite: values.iter().filter(|value| value.is_infinite()).count() as u64,
        first: values.iter().take(FIRST_ELEMENTS).map(f64::to_string).collect(),
    };
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let count = finite().count();
    if count > 0 {
        summary.min = finite().reduce(f64::min);
        summary.max = finite().reduce(f64::max);
        summary.mean = Some(finite().sum::<f64>() / count as f64);
    }
    summary
}

/// Returns the index of the first element that is not a number, or else of the first infinite one, by axis.
pub(crate) fn first_non_finite(descriptor: &Descriptor, bytes: &[u8]) -> Option<(Vec<usize>, f64)> {
    let values = saggar_plugin::decode_numbers(descriptor.dtype, bytes);
    let at = values.iter().position(|value| value.is_nan());
    let at = at.or_else(|| values.iter().position(|value| value.is_infinite()))?;
    let (mut rest, mut index) = (at, Vec::new());
    for size in descriptor.shape.dims().iter().rev() {
        index.push(rest % size);
        rest /= size;
    }
    index.reverse();
    Some((index, values[at]))
}

/// Formats a number with six significant digits, those before and after the range of 0.0001 to 1000000 with an exponent.
fn format_number(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    if !(1e-4..1e6).contains(&magnitude) {
        return format!("{value:.5e}");
    }
    let decimals = (5 - magnitude.log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

impl fmt::Display for TensorSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.descriptor)?;
        if let (Some(min), Some(max), Some(mean)) = (self.min, self.max, self.mean) {
            let [min, max, mean] = [min, max, mean].map(format_number);
            write!(f, ", {min} to {max}, mean {mean}")?;
        }
        if self.nan > 0 {
            write!(f, ", {} not a number", self.nan)?;
        }
        if self.infinite > 0 {
            write!(f, ", {} infinite", self.infinite)?;
        }
        let first = self.first.iter().map(|text| text.parse().map_or_else(|_| text.clone(), format_number));
        write!(f, ": {}", first.collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use saggar_tensor::{DType, Shape};

    use super::*;

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn a_summary_counts_what_is_not_finite() {
        let descriptor = Descriptor::new(DType::F32, Shape::new([2, 3]).unwrap());
        let bytes = floats(&[1.0, f32::INFINITY, -3.0, 2.0, f32::NAN, 4.0]);
        let summary = summarize(&descriptor, &bytes);
        assert_eq!((summary.min, summary.max, summary.mean), (Some(-3.0), Some(4.0), Some(1.0)));
        assert_eq!((summary.nan, summary.infinite), (1, 1));
        assert_eq!(summary.first, ["1", "inf", "-3", "2", "NaN", "4"]);
        let (index, value) = first_non_finite(&descriptor, &bytes).unwrap();
        assert_eq!(index, [1, 1]);
        assert!(value.is_nan());
        assert_eq!(first_non_finite(&descriptor, &floats(&[0.0; 6])), None);
        let infinite = floats(&[0.0, 0.0, f32::NEG_INFINITY, 0.0, 0.0, 0.0]);
        assert_eq!(first_non_finite(&descriptor, &infinite), Some((vec![0, 2], f64::NEG_INFINITY)));
    }

    #[test]
    fn numbers_have_six_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (0.1_f32.into(), "0.1"),
            (0.936_432_480_812_072_8, "0.936432"),
            (123_456.789, "123457"),
            (999_999.9, "1000000"),
            (-16_006_091_776.0, "-1.60061e10"),
            (0.000_012_5, "1.25000e-5"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(format_number(value), text);
        }
    }
}
