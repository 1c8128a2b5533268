//! Checks that the elements of an array are valid class labels.

use std::io::Read;

use saggar_tensor::DType;

use super::super::arrays::StagedArray;
use crate::error::DatasetError;

/// Refuses labels that are not less than the number of classes. If `classes` is empty, every array is valid.
pub(in super::super) fn check_class_indices(array: &StagedArray, classes: &[String]) -> Result<(), DatasetError> {
    if classes.is_empty() {
        return Ok(());
    }
    let dtype = array.item.dtype;
    if dtype.is_float() {
        let what = "a class number; `classes` needs an integer type";
        return Err(DatasetError::BadType { field: array.name.clone(), dtype, what });
    }
    let mut reader = array.data.reader()?;
    let mut bytes = [0; 8];
    let bytes = &mut bytes[..dtype.bytes()];
    for at in 0..array.data.bytes() / bytes.len() as u64 {
        reader.read_exact(bytes).map_err(array.data.read_error())?;
        let label = decode_integer(dtype, bytes);
        if usize::try_from(label).is_ok_and(|label| label < classes.len()) {
            continue;
        }
        return Err(DatasetError::Malformed {
            file: array.file.clone(),
            reason: format!("element {at}: label {label}, and there are {} classes", classes.len()),
        });
    }
    Ok(())
}

/// Decodes a little-endian integer.
fn decode_integer(dtype: DType, bytes: &[u8]) -> i128 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let unsigned = u64::from_le_bytes(wide);
    if !dtype.is_signed_integer() {
        return i128::from(unsigned);
    }
    let unused = 64 - 8 * bytes.len() as u32;
    i128::from((unsigned << unused) as i64 >> unused)
}
