//! Imports arrays whose first axis counts items as the columns of a dataset: the content of `.npy`, `.npz` and
//! `.safetensors` files.
//!
//! Without a description, names decide. Arrays named `x_train`, `y_train`, `x_test`, `y_test` become the fields `x` and
//! `y` of two splits, and so do arrays `x` and `y` in files `train` and `test`. Everything else becomes one split,
//! `train`.

use std::collections::BTreeMap;

use saggar_tensor::{DType, Descriptor, Shape};

use super::description::{DEFAULT_SPLIT, check_field_names};
use super::draft::{DatasetDraft, DraftColumn};
use super::staging::{StagedColumn, StagingArea};
use crate::error::DatasetError;
use crate::limits::DATASET_BYTES_MAX;

/// Suffixes of array names, after `_`, that name a split.
const SPLIT_SUFFIXES: [&str; 5] = ["train", "test", "val", "valid", "validation"];

/// An array of a file: consecutive items, little-endian and row-major.
#[derive(Debug)]
pub(super) struct StagedArray {
    /// Its origin for messages, such as `mnist.npz/x_train.npy`.
    pub(super) file: String,
    /// The field that it belongs to.
    pub(super) name: String,
    /// Length of the first axis.
    pub(super) items: u64,
    /// Descriptor of one item: the other axes.
    pub(super) item: Descriptor,
    pub(super) data: StagedColumn,
}

/// The arrays of each split.
pub(super) type ArraysBySplit = BTreeMap<String, Vec<StagedArray>>;

/// Returns the number of items of an array with these dimensions, and the descriptor of one item.
pub(super) fn item_layout(file: &str, dtype: DType, dims: &[u64]) -> Result<(u64, Descriptor), DatasetError> {
    let malformed = |reason: String| DatasetError::Malformed { file: file.to_owned(), reason };
    let Some((items, item)) = dims.split_first() else {
        return Err(malformed("a single number; the first axis of an array counts items".to_owned()));
    };
    if dims.contains(&0) {
        return Err(DatasetError::Empty { file: file.to_owned() });
    }
    let bytes = dims.iter().try_fold(dtype.bytes() as u64, |product, dim| product.checked_mul(*dim));
    if bytes.is_none_or(|bytes| bytes > DATASET_BYTES_MAX) {
        let (what, max) = (file.to_owned(), DATASET_BYTES_MAX);
        return Err(DatasetError::TooLarge { what, max, unit: "bytes" });
    }
    let item = item.iter().map(|dim| usize::try_from(*dim).unwrap_or(usize::MAX)).collect::<Vec<_>>();
    let shape = Shape::new(item).map_err(|error| malformed(error.to_string()))?;
    Ok((*items, Descriptor::new(dtype, shape)))
}

/// Returns the arrays of several files as one split per file name. The arrays of a single file are split by their own
/// names, or are one split.
pub(super) fn split_by_file(mut files: ArraysBySplit) -> ArraysBySplit {
    match files.pop_first() {
        Some((_, arrays)) if files.is_empty() => split_by_array_name(arrays),
        Some((name, arrays)) => {
            files.insert(name, arrays);
            files
        }
        None => files,
    }
}

/// Returns the arrays by the splits that their names end in, if all do; otherwise all as one split.
pub(super) fn split_by_array_name(arrays: Vec<StagedArray>) -> ArraysBySplit {
    let split = |array: &StagedArray| {
        let (field, part) = array.name.rsplit_once('_')?;
        (!field.is_empty() && SPLIT_SUFFIXES.contains(&part)).then(|| (field.to_owned(), part.to_owned()))
    };
    let Some(names) = arrays.iter().map(split).collect::<Option<Vec<_>>>() else {
        return ArraysBySplit::from([(DEFAULT_SPLIT.to_owned(), arrays)]);
    };
    let mut parts = ArraysBySplit::new();
    for (array, (name, part)) in arrays.into_iter().zip(names) {
        parts.entry(part).or_default().push(StagedArray { name, ..array });
    }
    parts
}

/// Returns the dataset of these splits, in their order. All have the same fields, and a field has the same item
/// descriptor in all.
pub(super) fn build_draft(
    staging: &StagingArea<'_>,
    parts: ArraysBySplit,
    description: String,
) -> Result<DatasetDraft, DatasetError> {
    let mut columns: Vec<(DraftColumn, String)> = Vec::new();
    let (mut splits, mut count) = (Vec::new(), 0u64);
    for (at, (part, mut arrays)) in parts.into_iter().enumerate() {
        arrays.sort_by(|a, b| a.name.cmp(&b.name));
        let items = item_count(&arrays, &part)?;
        if at == 0 {
            check_field_names(arrays.iter().map(|array| array.name.as_str()))?;
            columns = arrays.into_iter().map(start_column).collect();
        } else {
            check_same_fields(&columns, &arrays, &part)?;
            for ((column, first), array) in columns.iter_mut().zip(arrays) {
                append_array(staging, column, first, array)?;
            }
        }
        staging.check_size(&part, Some(columns.iter().map(|(column, _)| column.data.bytes()).sum()))?;
        splits.push((part, count, count + items));
        count += items;
    }
    let columns = columns.into_iter().map(|(column, _)| column).collect();
    Ok(DatasetDraft { columns, splits, items: count, description, notes: Vec::new() })
}

/// Returns a column that begins with this array, and the array's origin.
fn start_column(array: StagedArray) -> (DraftColumn, String) {
    let column = DraftColumn { name: array.name, item: array.item, classes: Vec::new(), data: array.data };
    (column, array.file)
}

fn append_array(
    staging: &StagingArea<'_>,
    column: &mut DraftColumn,
    first: &str,
    array: StagedArray,
) -> Result<(), DatasetError> {
    if array.item != column.item {
        return Err(DatasetError::ItemMismatch {
            file: array.file,
            found: Box::new(array.item),
            other: first.to_owned(),
            expected: Box::new(column.item.clone()),
        });
    }
    staging.append(&mut column.data, array.data)
}

/// Returns the number of items, which all arrays of a split must share.
fn item_count(arrays: &[StagedArray], part: &str) -> Result<u64, DatasetError> {
    let Some(first) = arrays.first() else { return Err(DatasetError::Empty { file: part.to_owned() }) };
    match arrays.iter().find(|array| array.items != first.items) {
        None => Ok(first.items),
        Some(array) => Err(DatasetError::CountMismatch {
            file: array.file.clone(),
            found: array.items,
            other: first.file.clone(),
            expected: first.items,
        }),
    }
}

/// Checks that a split has exactly the fields of the first one. Both are sorted by name.
fn check_same_fields(
    columns: &[(DraftColumn, String)],
    arrays: &[StagedArray],
    part: &str,
) -> Result<(), DatasetError> {
    let missing = columns.iter().find(|(column, _)| !arrays.iter().any(|array| array.name == column.name));
    if let Some((column, file)) = missing {
        return Err(DatasetError::Malformed {
            file: file.clone(),
            reason: format!("part {part} has no field {}; every part has the same fields", column.name),
        });
    }
    let more = arrays.iter().find(|array| !columns.iter().any(|(column, _)| column.name == array.name));
    let more = more.or_else(|| arrays.windows(2).find(|pair| pair[0].name == pair[1].name).map(|pair| &pair[1]));
    match more {
        None => Ok(()),
        Some(array) => Err(DatasetError::Malformed {
            file: array.file.clone(),
            reason: format!("field {} is not in every part once; every part has the same fields", array.name),
        }),
    }
}
