//! Images, tables and histograms that a training logs by step.

use crate::bindings::job as raw;
use crate::bindings::tensors::DataType;
use crate::call_site::AtCallSite;
use crate::error::Result;
use crate::job::Job;
use crate::tensor::Tensor;
use crate::variables::Variable;

/// The number of bins that the host accepts at most.
const BINS_MAX: u32 = 512;

/// A histogram: the number of values in each of a series of bins.
///
/// ```
/// use saggar_plugin::Histogram;
///
/// let histogram = Histogram::of(&[0.0, 0.1, 1.0, f32::NAN], 2);
/// assert_eq!(histogram.edges(), [0.0, 0.5, 1.0]);
/// assert_eq!(histogram.counts(), [2, 1]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    edges: Vec<f64>,
    counts: Vec<u64>,
}

impl Histogram {
    /// Returns a histogram with these counts. `edges` are the edges of the bins, rising: one more than there are counts.
    /// The host checks this.
    pub fn new(edges: Vec<f64>, counts: Vec<u64>) -> Self {
        Self { edges, counts }
    }

    /// Counts values in `bins` bins of equal width, from the lowest to the highest value. Values that are not finite are
    /// left out. If all values are equal, they are in the middle of the histogram, and without values it is empty.
    pub fn of(values: &[f32], bins: u32) -> Self {
        Self::of_numbers(values.iter().map(|value| f64::from(*value)), bins)
    }

    /// Counts the elements of a tensor, as [`Histogram::of`] does. Waits for the work that produces them.
    ///
    /// # Errors
    /// Returns `Host` if the work failed.
    #[track_caller]
    pub fn of_tensor(tensor: &Tensor, bins: u32) -> Result<Self> {
        Ok(of_bytes(tensor.descriptor().data_type, &tensor.read()?, bins))
    }

    /// Counts the elements of a variable, such as the weights of a layer, as [`Histogram::of_tensor`] does.
    ///
    /// # Errors
    /// As [`Histogram::of_tensor`].
    #[track_caller]
    pub fn of_variable(variable: &Variable, bins: u32) -> Result<Self> {
        Ok(of_bytes(variable.descriptor().data_type, &variable.read()?, bins))
    }

    fn of_numbers(values: impl Iterator<Item = f64>, bins: u32) -> Self {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let (low, high) = value_range(&values);
        let bins = bins.clamp(1, BINS_MAX) as usize;
        let edges: Vec<f64> = (0..=bins).map(|edge| low + (high - low) * (edge as f64 / bins as f64)).collect();
        let mut counts = vec![0; bins];
        for value in values {
            let bin = ((value - low) / (high - low) * bins as f64) as usize;
            counts[bin.min(bins - 1)] += 1;
        }
        Self { edges, counts }
    }

    /// Returns the edges of the bins: one more than there are bins.
    pub fn edges(&self) -> &[f64] {
        &self.edges
    }

    /// Returns the number of values in each bin.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }
}

/// Returns the range of a histogram of these values, which is never empty.
fn value_range(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if low < high {
        return (low, high);
    }
    let middle = if low.is_finite() { low } else { 0.5 };
    // Wide enough that the edges of 512 bins differ.
    let half = (middle.abs() * 1e-6).max(0.5);
    (middle - half, middle + half)
}

/// Returns the histogram of little-endian elements of this type.
fn of_bytes(data_type: DataType, bytes: &[u8], bins: u32) -> Histogram {
    let halves = || bytes.as_chunks::<2>().0.iter().copied();
    let words = || bytes.as_chunks::<4>().0.iter().copied();
    let long_words = || bytes.as_chunks::<8>().0.iter().copied();
    match data_type {
        DataType::Float32 => Histogram::of_numbers(words().map(|word| f64::from(f32::from_le_bytes(word))), bins),
        DataType::Float16 => Histogram::of_numbers(halves().map(|half| half_to_f64(u16::from_le_bytes(half))), bins),
        DataType::Int64 => Histogram::of_numbers(long_words().map(|word| i64::from_le_bytes(word) as f64), bins),
        DataType::Uint64 => Histogram::of_numbers(long_words().map(|word| u64::from_le_bytes(word) as f64), bins),
        DataType::Int32 => Histogram::of_numbers(words().map(|word| f64::from(i32::from_le_bytes(word))), bins),
        DataType::Uint32 => Histogram::of_numbers(words().map(|word| f64::from(u32::from_le_bytes(word))), bins),
        DataType::Int8 => Histogram::of_numbers(bytes.iter().map(|byte| f64::from(byte.cast_signed())), bins),
        DataType::Uint8 => Histogram::of_numbers(bytes.iter().map(|byte| f64::from(*byte)), bins),
    }
}

/// Returns the value of a `float16`. Source: IEEE 754-2019, 3.4.
fn half_to_f64(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff) / 1024.0);
    match exponent {
        0 => sign * fraction * 2f64.powi(-14),
        31 if fraction == 0.0 => sign * f64::INFINITY,
        31 => f64::NAN,
        exponent => sign * (1.0 + fraction) * 2f64.powi(exponent - 15),
    }
}

impl Job {
    /// Records an image at `step`. An image of the same name and step is replaced.
    ///
    /// Shape: as `layout` states, with 1 channel, grey, or 3, RGB. DType: `uint8`, or `float32` from 0 to 1, where other
    /// numbers are clamped. At most 8 MiB of elements.
    ///
    /// # Errors
    /// Returns `Host` if the tensor is not such an image, an element is NaN, or the name has characters other than
    /// letters, digits, `.`, `_`, `-` and `/`.
    #[track_caller]
    pub fn log_image(&self, step: u64, name: &str, image: &Tensor, layout: raw::ImageLayout) -> Result<()> {
        raw::log_image(step, name, &image.0, layout).at_caller()
    }

    /// Records a table at `step`: named columns with one value for each row. A table of the same name and step is
    /// replaced.
    ///
    /// ```no_run
    /// # use saggar_plugin::*;
    /// # fn f(job: &Job, step: u64) -> Result<()> {
    /// let class = ColumnValues::Texts(vec!["cat".to_owned(), "dog".to_owned()]);
    /// job.log_table(step, "recall", [("class", class), ("recall", ColumnValues::Numbers(vec![0.9, 0.7]))])
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `Host` if columns have different numbers of values or the same name, or the table is too large.
    #[track_caller]
    pub fn log_table<'a>(
        &self,
        step: u64,
        name: &str,
        columns: impl IntoIterator<Item = (&'a str, raw::ColumnValues)>,
    ) -> Result<()> {
        let column = |(name, values): (&str, _)| raw::TableColumn { name: name.to_owned(), values };
        let columns: Vec<raw::TableColumn> = columns.into_iter().map(column).collect();
        raw::log_table(step, name, &columns).at_caller()
    }

    /// Records a histogram at `step`. A histogram of the same name and step is replaced.
    ///
    /// ```no_run
    /// # use saggar_plugin::*;
    /// # fn f(job: &Job, step: u64, weight: &Variable) -> Result<()> {
    /// job.log_histogram(step, "weights/conv1", &Histogram::of_variable(weight, 64)?)
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `Host` if there is no bin, there are more than 512, or the edges do not rise.
    #[track_caller]
    pub fn log_histogram(&self, step: u64, name: &str, histogram: &Histogram) -> Result<()> {
        raw::log_histogram(step, name, &histogram.edges, &histogram.counts).at_caller()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finite_value_is_counted_once() {
        let values: Vec<f32> =
            (0..1000).map(|at| (at as f32 * 0.37).sin() * 3.0).chain([f32::NAN, f32::INFINITY]).collect();
        for bins in [1, 7, 512, 100_000] {
            let histogram = Histogram::of(&values, bins);
            assert_eq!(histogram.counts().iter().sum::<u64>(), 1000);
            assert_eq!(histogram.counts().len(), bins.min(512) as usize);
            assert_eq!(histogram.edges().len(), histogram.counts().len() + 1);
            let edge = |at: usize| histogram.edges()[at];
            for (at, count) in histogram.counts().iter().enumerate() {
                let last = at + 1 == histogram.counts().len();
                let inside = |value: &&f32| {
                    let value = f64::from(**value);
                    // At an edge, rounding decides.
                    value >= edge(at) - 1e-12 && (value < edge(at + 1) + 1e-12 || last && value <= edge(at + 1))
                };
                assert!(values.iter().filter(inside).count() as u64 >= *count, "bin {at} of {bins}");
            }
        }
    }

    #[test]
    fn edges_rise_for_equal_values_and_without_values() {
        for values in [&[][..], &[f32::NAN], &[0.0; 3], &[f32::MAX; 2], &[-1e30], &[1.0, 1.000_000_1]] {
            let histogram = Histogram::of(values, 512);
            assert!(histogram.edges().windows(2).all(|edges| edges[0] < edges[1]), "{values:?}");
            let finite = values.iter().filter(|value| value.is_finite()).count() as u64;
            assert_eq!(histogram.counts().iter().sum::<u64>(), finite, "{values:?}");
        }
    }

    #[test]
    fn bins_of_zero_become_one() {
        assert_eq!(Histogram::of(&[1.0, 2.0], 0), Histogram::new(vec![1.0, 2.0], vec![2]));
    }

    #[test]
    fn elements_of_each_type_are_counted() {
        let counted = |data_type, bytes: &[u8]| of_bytes(data_type, bytes, 2);
        let expected = Histogram::new(vec![-1.0, 0.0, 1.0], vec![1, 1]);
        assert_eq!(counted(DataType::Int8, &[0xff, 1]), expected);
        assert_eq!(counted(DataType::Int32, &[-1_i32, 1].map(i32::to_le_bytes).concat()), expected);
        assert_eq!(counted(DataType::Int64, &[-1_i64, 1].map(i64::to_le_bytes).concat()), expected);
        assert_eq!(counted(DataType::Float32, &[-1_f32, 1.0].map(f32::to_le_bytes).concat()), expected);
        assert_eq!(counted(DataType::Float16, &[0xbc00_u16, 0x3c00].map(u16::to_le_bytes).concat()), expected);
        assert_eq!(counted(DataType::Uint8, &[0, 200]).edges(), [0.0, 100.0, 200.0]);
    }

    #[test]
    fn halves_have_the_values_of_the_standard() {
        for (bits, value) in [(0x3555, 0.333_251_953_125), (0x0001, 2f64.powi(-24)), (0x7bff, 65504.0), (0x8000, -0.0)]
        {
            assert_eq!(half_to_f64(bits), value, "{bits:x}");
        }
        assert_eq!(half_to_f64(0xfc00), f64::NEG_INFINITY);
        assert!(half_to_f64(0x7e00).is_nan());
    }
}
