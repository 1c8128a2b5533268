//! Reads the numbers of a dataset's fields.

use saggar_plugin::{BatchOptions, DataType, Dataset, Error, Field, Result, Tensor, named};

/// Items that are read at once.
const ITEMS_PER_READ: u32 = 1024;
/// The largest number of classes without names.
const LABELS_MAX: u32 = 65_536;

/// Calls `each` with the tensors of a field, batch by batch in stored order: the items of a split, or all items if the
/// dataset has no such split.
pub(crate) fn for_each_batch(
    data: &Dataset,
    field: &str,
    split: Option<&str>,
    mut each: impl FnMut(&Tensor) -> Result<()>,
) -> Result<()> {
    let split = data.splits().into_iter().find(|known| Some(known.as_str()) == split);
    let options = BatchOptions { size: ITEMS_PER_READ, shuffle_seed: None, drop_last: false, split };
    let batches = data.batches(&[field.to_owned()], &options)?;
    while let Some(batch) = batches.next_batch()? {
        each(named(&batch, field)?)?;
    }
    Ok(())
}

/// Returns the elements of a tensor of any data type.
pub(crate) fn read_numbers(tensor: &Tensor, data_type: DataType) -> Result<Vec<f64>> {
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
    let mut largest = 0;
    for_each_batch(data, &field.name, None, |tensor| {
        for label in read_numbers(tensor, field.item.data_type)? {
            if !(0.0..f64::from(LABELS_MAX)).contains(&label) {
                let (name, given) = ("target".to_owned(), format!("{label} in the field `{}`", field.name));
                let expected = format!("class numbers from 0 to {}", LABELS_MAX - 1);
                return Err(Error::Parameter { name, expected, given });
            }
            largest = largest.max(label as u32);
        }
        Ok(())
    })?;
    Ok(largest)
}
