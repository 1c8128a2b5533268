//! The elements of tensors as numbers, and their summary.

use saggar_tensor::Descriptor;

use crate::report::TensorSummary;

/// Number of elements that a summary contains.
const FIRST_ELEMENTS: usize = 8;

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
}
