//! Means and deviations of a table's numbers.

use saggar_plugin::{Dataset, Initializer, Operand, Result, Variable, Variables};

use crate::column_reader::{for_each_batch, read_numbers};
use crate::columns::NumberColumn;

/// The split whose statistics are measured.
const TRAINING_SPLIT: Option<&str> = Some("train");
/// Deviations below this share of the mean are rounding errors of a constant column.
const RELATIVE_DEVIATION_MIN: f64 = 1e-6;

/// The mean and the deviation of each number of a field: statistics of the model, `float32` of the number of elements.
#[derive(Debug, Clone)]
pub struct ColumnStandardization {
    mean: Variable,
    deviation: Variable,
}

impl ColumnStandardization {
    /// Returns the statistics of a field with this number of elements: mean 0 and deviation 1 until they are measured.
    ///
    /// # Errors
    /// Returns `Host` if the variables exist with other shapes.
    pub fn new(v: &Variables, elements: u32) -> Result<Self> {
        let mean = v.statistic("mean", &[elements], &Initializer::Zeros)?;
        let deviation = v.statistic("deviation", &[elements], &Initializer::Constant(1.0))?;
        Ok(Self { mean, deviation })
    }

    /// Computes the statistics over the split `train` of a dataset, or over all items if there is no such split. The
    /// result depends only on the dataset, so a resumed training computes the same again.
    ///
    /// # Errors
    /// Returns `Host` if the data cannot be read.
    pub fn measure(&self, data: &Dataset, column: &NumberColumn) -> Result<()> {
        let width = column.shape.iter().product::<u32>() as usize;
        // Welford's method, which is exact for large means. Source: Technometrics 4, 1962, 419-420.
        let (mut count, mut mean, mut squares) = (0.0_f64, vec![0.0_f64; width], vec![0.0_f64; width]);
        for_each_batch(data, &column.name, TRAINING_SPLIT, |tensor| {
            for item in read_numbers(tensor, column.data_type)?.chunks(width.max(1)) {
                count += 1.0;
                for ((mean, squares), value) in mean.iter_mut().zip(&mut squares).zip(item) {
                    let before = value - *mean;
                    *mean += before / count;
                    *squares += before * (value - *mean);
                }
            }
            Ok(())
        })?;
        let deviations = squares.iter().zip(&mean).map(|(squares, mean)| {
            let deviation = (squares / count.max(1.0)).sqrt();
            if deviation > mean.abs() * RELATIVE_DEVIATION_MIN { deviation } else { 1.0 }
        });
        self.deviation.write(&bytes_of(deviations))?;
        self.mean.write(&bytes_of(mean.iter().copied()))
    }

    /// Returns numbers with mean 0 and deviation 1. Shape: `[batch, elements]` `float32`, unchanged.
    ///
    /// # Errors
    /// Returns `Host` if the number of elements is another.
    pub fn standardize(&self, x: &Operand) -> Result<Operand> {
        let graph = x.graph();
        x.sub(&graph.variable(&self.mean)?)?.div(&graph.variable(&self.deviation)?)
    }

    /// Returns the numbers that [`ColumnStandardization::standardize`] made these of. Shape: as there.
    ///
    /// # Errors
    /// Returns `Host` if the number of elements is another.
    pub fn restore(&self, x: &Operand) -> Result<Operand> {
        let graph = x.graph();
        x.mul(&graph.variable(&self.deviation)?)?.add(&graph.variable(&self.mean)?)
    }
}

fn bytes_of(values: impl Iterator<Item = f64>) -> Vec<u8> {
    values.flat_map(|value| (value as f32).to_le_bytes()).collect()
}
