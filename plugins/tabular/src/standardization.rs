//! Means and deviations of a table's numbers.

use saggar_plugin::{
    BatchOptions, DataType, Dataset, Error, Field, Initializer, Operand, Result, Tensor, Variable, Variables, named,
};

use crate::columns::NumberColumn;

/// Items that are read at once.
const ITEMS_PER_READ: u32 = 1024;
/// The largest number of classes without names.
const LABELS_MAX: u32 = 65_536;
/// Deviations below this share of the mean are rounding errors of a constant column.
const RELATIVE_DEVIATION_MIN: f64 = 1e-6;

/// The mean and the deviation of each number of a field: statistics of the model, `float32` of the number of elements.
#[derive(Debug, Clone)]
pub struct Standardization {
    mean: Variable,
    deviation: Variable,
}

impl Standardization {
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
        for_each_batch(data, &column.name, |tensor| {
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

    /// Returns the numbers that [`Standardization::standardize`] made these of. Shape: as there.
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

/// Calls `each` with the tensors of a field, batch by batch in stored order, over the split `train` or all items.
fn for_each_batch(data: &Dataset, field: &str, mut each: impl FnMut(&Tensor) -> Result<()>) -> Result<()> {
    let split = data.splits().into_iter().find(|split| split == "train");
    let options = BatchOptions { size: ITEMS_PER_READ, shuffle_seed: None, drop_last: false, split };
    let batches = data.batches(&[field.to_owned()], &options)?;
    while let Some(batch) = batches.next_batch()? {
        each(named(&batch, field)?)?;
    }
    Ok(())
}

/// Returns the elements of a tensor of any data type.
fn read_numbers(tensor: &Tensor, data_type: DataType) -> Result<Vec<f64>> {
    fn numbers<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|bytes| number(*bytes)).collect()
    }
    let bytes = tensor.read()?;
    Ok(match data_type {
        DataType::Float32 => numbers(&bytes, |bytes| f64::from(f32::from_le_bytes(bytes))),
        DataType::Int64 => numbers(&bytes, |bytes| i64::from_le_bytes(bytes) as f64),
        DataType::Uint64 => numbers(&bytes, |bytes| u64::from_le_bytes(bytes) as f64),
        DataType::Int32 => numbers(&bytes, |bytes| f64::from(i32::from_le_bytes(bytes))),
        DataType::Uint32 => numbers(&bytes, |bytes| f64::from(u32::from_le_bytes(bytes))),
        DataType::Int8 => numbers(&bytes, |bytes| f64::from(i8::from_le_bytes(bytes))),
        DataType::Uint8 => numbers(&bytes, |bytes: [u8; 1]| f64::from(bytes[0])),
        DataType::Float16 => {
            let what = "the data type of an input".to_owned();
            return Err(Error::Shape { what, expected: "float32 or an integer type", given: Vec::new() });
        }
    })
}

/// Returns the largest class number of a field, over all items.
///
/// # Errors
/// Returns `Parameter` if it is negative or over the limit.
pub(crate) fn largest_label(data: &Dataset, field: &Field) -> Result<u32> {
    let options = BatchOptions { size: ITEMS_PER_READ, shuffle_seed: None, drop_last: false, split: None };
    let batches = data.batches(std::slice::from_ref(&field.name), &options)?;
    let mut largest = 0;
    while let Some(batch) = batches.next_batch()? {
        for label in read_numbers(named(&batch, &field.name)?, field.item.data_type)? {
            if !(0.0..f64::from(LABELS_MAX)).contains(&label) {
                let (name, given) = ("target".to_owned(), format!("{label} in the field `{}`", field.name));
                return Err(Error::Parameter { name, expected: format!("class numbers from 0 to {}", LABELS_MAX - 1), given });
            }
            largest = largest.max(label as u32);
        }
    }
    Ok(largest)
}
