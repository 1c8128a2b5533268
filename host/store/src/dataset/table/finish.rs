//! Completes the columns of a table: pads texts, arranges lists, and checks class indices.

use std::io::Read;

use saggar_tensor::{DType, Descriptor, Shape};

use super::super::arrays::StagedArray;
use super::super::description::ColumnField;
use super::super::draft::DraftColumn;
use super::super::npy::labels;
use super::super::staging::{StagedColumn, StagingArea};
use super::column::{LENGTH_BYTES, TableColumn, ValueKind};
use crate::error::DatasetError;

/// Where a column comes from, the number of its items, and the bytes of the other columns, which count towards the same
/// limits.
pub(super) struct ColumnOrigin<'a> {
    pub(super) file: &'a str,
    pub(super) column: &'a str,
    pub(super) items: u64,
    pub(super) held: u64,
}

/// Returns the column in its stored form.
pub(super) fn finish_column(
    staging: &StagingArea<'_>,
    field: &ColumnField,
    column: TableColumn<'_>,
    origin: &ColumnOrigin<'_>,
) -> Result<DraftColumn, DatasetError> {
    let wrong = |reason: String| DatasetError::Description { reason: format!("field {}: {reason}", field.name) };
    let refuse_keys = |what: &str| match field.shape.is_some() || !field.classes.is_empty() {
        true => Err(wrong(format!("{what} has no `shape` and no `classes`"))),
        false => Ok(()),
    };
    let image = column.image;
    let mut classes = field.classes.clone();
    let (dtype, width, data) = match column.kind {
        ValueKind::Image => {
            refuse_keys("an image")?;
            (DType::U8, image.map(|sides| sides.iter().product()), column.data.finish()?)
        }
        ValueKind::Number(dtype) => (dtype, column.length, column.data.finish()?),
        ValueKind::Bytes(length) => (DType::U8, Some(length), column.data.finish()?),
        ValueKind::Text => {
            refuse_keys("a text")?;
            let (width, data) = pad_texts(staging, column, origin)?;
            (DType::U8, Some(width), data)
        }
        ValueKind::Class => {
            classes.clone_from(&column.classes.names);
            let (dtype, data) = narrow_classes(staging, column, origin.items)?;
            (dtype, None, data)
        }
    };
    let plain = || image.map_or_else(|| width.into_iter().collect(), |sides| sides.to_vec());
    let dims = field.shape.clone().unwrap_or_else(plain);
    let shape = Shape::new(dims).map_err(|error| wrong(error.to_string()))?;
    let elements = width.unwrap_or(1);
    if shape.elements() != elements {
        let (found, name) = (shape.elements(), origin.column);
        return Err(wrong(format!("shape {shape} has {found} elements, and column {name} has {elements}")));
    }
    let file = format!("column {} of {}", origin.column, origin.file);
    let item = Descriptor::new(dtype, shape);
    let array = StagedArray { file, name: field.name.clone(), items: origin.items, item, data };
    labels::check_class_indices(&array, &classes)?;
    Ok(DraftColumn { name: array.name, item: array.item, classes, data: array.data })
}

/// Pads every text with zeros to the length of the longest.
fn pad_texts(
    staging: &StagingArea<'_>,
    column: TableColumn<'_>,
    origin: &ColumnOrigin<'_>,
) -> Result<(usize, StagedColumn), DatasetError> {
    let width = column.longest.max(1);
    let (file, name) = (origin.file, origin.column);
    let what = format!("{file}: column {name}, its texts stretched to the longest of {width} bytes,");
    let bytes = origin.items.checked_mul(width as u64);
    staging.check_size(&what, bytes.and_then(|bytes| bytes.checked_add(origin.held)))?;
    let texts = column.data.finish()?;
    let mut reader = texts.reader()?;
    let mut data = staging.writer(1)?;
    for _ in 0..origin.items {
        let mut length = [0; LENGTH_BYTES];
        reader.read_exact(&mut length).map_err(texts.read_error())?;
        let length = u64::from(u32::from_le_bytes(length));
        data.copy(&mut reader, length, &texts)?;
        data.push_zeros(width as u64 - length)?;
    }
    staging.remove(texts)?;
    Ok((width, data.finish()?))
}

/// Stores class indices in one byte each, as in other formats, if all fit.
fn narrow_classes(
    staging: &StagingArea<'_>,
    column: TableColumn<'_>,
    items: u64,
) -> Result<(DType, StagedColumn), DatasetError> {
    let classes = column.classes.names.len();
    let wide = column.data.finish()?;
    if classes > 256 {
        return Ok((DType::U32, wide));
    }
    let mut reader = wide.reader()?;
    let mut data = staging.writer(1)?;
    for _ in 0..items {
        let mut class = [0; size_of::<u32>()];
        reader.read_exact(&mut class).map_err(wide.read_error())?;
        data.push(&class[..1])?;
    }
    staging.remove(wide)?;
    Ok((DType::U8, data.finish()?))
}

#[cfg(test)]
mod tests {
    use super::super::column::ColumnOptions;
    use super::*;

    #[test]
    fn padded_texts_count_towards_the_dataset_limit() {
        let directory = tempfile::tempdir().unwrap();
        let staging = StagingArea::new(directory.path(), directory.path(), &|_| Ok(())).unwrap();
        let column = || {
            let mut column =
                TableColumn::new(ValueKind::Text, staging.writer(1).unwrap(), ColumnOptions::default(), &[]);
            column.data.push(b"\0\0\0\0\x03\0\0\0abc").unwrap();
            column.longest = 3;
            column
        };
        let origin = |held| ColumnOrigin { file: "d.parquet", column: "x", items: 2, held };
        let (width, data) = pad_texts(&staging, column(), &origin(0)).unwrap();
        let mut read = Vec::new();
        data.open().unwrap().read_to_end(&mut read).unwrap();
        assert_eq!((width, read.as_slice()), (3, &b"\0\0\0abc"[..]));
        let error = pad_texts(&staging, column(), &origin(staging.bytes_max() - 5)).unwrap_err();
        assert!(matches!(error, DatasetError::Expands { .. }), "{error}");
    }
}
