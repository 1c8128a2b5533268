//! Imports Parquet files: one field per column, whose values are numbers, texts, bytes or lists of numbers of one
//! length.
//!
//! A file is a split by its name, and a single file is `train`. Numbered files (`train-00000-of-00002`) are
//! concatenated into one split. Footers and page headers are parsed here, because memory is allocated by their sizes
//! and they can be hostile. The crate `parquet` decodes only the values of a page, because its readers of whole files
//! trust them. A row group is read column by column, one page at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use saggar_tensor::{DType, Descriptor, Shape};

use super::arrays::StagedArray;
use super::description::{ColumnField, ImageSize, MissingPolicy, ParquetDescription, check_field_names, parse_shares};
use super::draft::{DatasetDraft, DraftColumn};
use super::manifest::SplitRange;
use super::npy::labels;
use super::source::list_files;
use super::split::{files_by_split, reorder_by_split};
use super::staging::{StagedColumn, StagingArea};
use crate::error::{DatasetError, StoreError};
use crate::limits::{DATASET_BYTES_MAX, DATASET_ITEMS_MAX, PARQUET_EXPANSION_MAX};
use crate::regular_file;

mod column;
mod features;
mod footer;
mod header;
mod nulls;
mod pages;
mod schema;
mod thrift;

use column::{ColumnChunkSource, ColumnOptions, LENGTH_BYTES, ParquetColumn};
use footer::ParquetFooter;
use nulls::NullableTable;
use schema::{LeafColumn, ValueKind};

/// The supported column types, for messages.
const SUPPORTED: &str =
    "integers, floats, truth values, dates, strings, bytes of fixed length, images and lists of numbers are read";

/// Returns whether the folder contains such files.
pub(super) fn detect(folder: &Path) -> Result<bool, DatasetError> {
    Ok(!list_files(folder, "parquet")?.is_empty())
}

/// Reads the folder's files: the fields of the description, or all.
pub(super) fn read(
    staging: &StagingArea<'_>,
    folder: &Path,
    description: &ParquetDescription,
) -> Result<DatasetDraft, DatasetError> {
    let fields = description.fields.clone();
    let is_whole = fields.is_empty();
    let allows_nulls = description.missing != MissingPolicy::Refuse;
    let options = ColumnOptions { allows_nulls, resize: checked_size(description.resize)? };
    let mut table = ParquetTable { staging, first: String::new(), fields, is_whole, options, columns: Vec::new() };
    let (mut splits, mut items): (Vec<SplitRange>, u64) = (Vec::new(), 0);
    for (name, paths) in files_by_split(list_files(folder, "parquet")?, "NAME.parquet")? {
        let begin = items;
        for path in paths {
            items += table.append_file(&path, items)?;
        }
        splits.push((name, begin, items));
    }
    if items == 0 {
        return Err(DatasetError::Empty { file: table.first });
    }
    let shares = if description.splits.is_empty() { Vec::new() } else { parse_shares(&description.splits)? };
    let nulls = table.columns.iter_mut().map(|(column, _)| std::mem::take(&mut column.nulls)).collect();
    let mut columns = table.finish(items)?;
    let mut nullable = NullableTable { staging, columns: &mut columns, nulls, splits, items };
    let notes = nullable.apply(description.missing, &shares)?;
    let (mut splits, items) = (nullable.splits, nullable.items);
    if !shares.is_empty() {
        splits = reorder_by_split(staging, &mut columns, &shares, items)?;
    }
    Ok(DatasetDraft { columns, splits, items, description: description.description.clone(), notes })
}

/// Refuses a size that an image cannot have.
fn checked_size(size: Option<ImageSize>) -> Result<Option<ImageSize>, DatasetError> {
    size.map(ImageSize::checked).transpose()
}

/// The columns to read, over all files.
struct ParquetTable<'s> {
    staging: &'s StagingArea<'s>,
    /// The first file, which determines the columns.
    first: String,
    /// The columns that become fields; without a description, all columns by their names.
    fields: Vec<ColumnField>,
    /// Whether all columns are read.
    is_whole: bool,
    options: ColumnOptions,
    columns: Vec<(ParquetColumn<'s>, LeafColumn)>,
}

impl ParquetTable<'_> {
    /// Appends a file's rows after the `items` of earlier files, and returns the number of rows.
    fn append_file(&mut self, path: &Path, items: u64) -> Result<u64, DatasetError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let malformed = |reason: String| DatasetError::Malformed { file: name.clone(), reason };
        if name.ends_with(".gz") {
            return Err(malformed("Parquet files are compressed inside; unpack it".to_owned()));
        }
        let file = regular_file::open(path).map_err(StoreError::io(path))?;
        let length = file.metadata().map_err(StoreError::io(path))?.len();
        let footer = footer::read_footer(&file).map_err(malformed)?;
        check_items(&name, items, &footer)?;
        let places = self.locate_columns(&name, &footer)?;
        let text_bytes = length.saturating_mul(PARQUET_EXPANSION_MAX).min(DATASET_BYTES_MAX);
        let maxima: Vec<_> = self.columns.iter().map(|(column, _)| column.bytes().saturating_add(text_bytes)).collect();
        let mut held = self.stored_bytes();
        let mut rows = 0;
        for group in &footer.groups {
            for (at, place) in places.iter().enumerate() {
                let (chunk, leaf) = (&group.chunks[*place], &footer.leaves[*place]);
                let column = &mut self.columns[at].0;
                let more = chunk.values.checked_mul(value_bytes(column.kind) as u64);
                self.staging.check_size(&name, more.and_then(|more| more.checked_add(held)))?;
                let gathered = Arc::default();
                let source = ColumnChunkSource {
                    file: &file,
                    leaf,
                    chunk,
                    rows: group.rows,
                    before: rows,
                    earlier: items,
                    bytes_max: maxima[at],
                    gathered,
                };
                let begin = column.bytes();
                column::append_column_chunk(&source, column, |reason| refused_column_error(&name, leaf, reason))?;
                held = self.staging.check_size(&name, Some(held + (column.bytes() - begin)))?;
            }
            rows += group.rows;
        }
        Ok(rows)
    }

    /// Returns the index of each column in this file. The first file determines the columns, unless a description does.
    fn locate_columns(&mut self, file: &str, footer: &ParquetFooter) -> Result<Vec<usize>, DatasetError> {
        if self.first.is_empty() {
            file.clone_into(&mut self.first);
            if self.is_whole {
                let leaves = footer.leaves.iter().filter(|leaf| !leaf.is_image_path);
                let mut names: Vec<_> = leaves.map(|leaf| leaf.name.clone()).collect();
                // Sorted, as for other formats, so that the order of columns in a file does not change the dataset.
                names.sort();
                self.fields = names.into_iter().map(ColumnField::from_column_name).collect();
            }
            if self.fields.is_empty() {
                return Err(DatasetError::Malformed { file: file.to_owned(), reason: "it has no columns".to_owned() });
            }
            check_field_names(self.fields.iter().map(|field| field.name.as_str()))?;
            self.name_classes(footer);
        }
        let known: BTreeSet<_> = self.fields.iter().map(ColumnField::column).collect();
        // Columns that are not selected can have any type, in any file.
        if let Some(leaf) = footer
            .leaves
            .iter()
            .find(|leaf| self.is_whole && !leaf.is_image_path && !known.contains(leaf.name.as_str()))
        {
            let reason = format!("{} has no such column; every file has the same columns", self.first);
            return Err(refused_column_error(file, leaf, reason));
        }
        self.select_columns(file, footer)
    }

    /// Adds the class names that the file has of columns of numbers, unless the description has some.
    fn name_classes(&mut self, footer: &ParquetFooter) {
        let Some(text) = &footer.features else { return };
        let mut names = features::class_names(text);
        let is_integer = |column: &str| {
            let leaf = footer.leaves.iter().find(|leaf| leaf.name == column);
            leaf.is_some_and(|leaf| matches!(leaf.kind, Ok(ValueKind::Number(dtype)) if !dtype.is_float()))
        };
        for field in self.fields.iter_mut().filter(|field| field.classes.is_empty()) {
            if is_integer(field.column()) {
                field.classes = names.remove(field.column()).unwrap_or_default();
            }
        }
    }

    fn select_columns(&mut self, file: &str, footer: &ParquetFooter) -> Result<Vec<usize>, DatasetError> {
        let by_name: BTreeMap<_, _> =
            footer.leaves.iter().zip(0..).map(|(leaf, at)| (leaf.name.as_str(), at)).collect();
        let mut places = Vec::with_capacity(self.fields.len());
        for (at, field) in self.fields.iter().enumerate() {
            let place = by_name.get(field.column()).copied();
            let place = place.ok_or_else(|| {
                let known = footer.leaves.iter().take(20).map(|leaf| leaf.name.as_str()).collect::<Vec<_>>().join(", ");
                DatasetError::Column {
                    file: file.to_owned(),
                    column: field.column().to_owned(),
                    reason: format!("no column has this name; the columns are {known}"),
                }
            })?;
            let leaf = &footer.leaves[place];
            let kind = leaf.kind.clone().map_err(|reason| refused_column_error(file, leaf, self.with_hint(reason)))?;
            match self.columns.get(at) {
                Some((_, other)) if !leaf.has_same_values(other) => {
                    let (found, expected) = (leaf.describe(), other.describe());
                    let reason = format!("{found}, and {expected} in {}; every file has the same", self.first);
                    return Err(refused_column_error(file, leaf, reason));
                }
                Some(_) => {}
                None => {
                    let data = self.staging.writer(self.fields.len())?;
                    self.columns.push((ParquetColumn::new(kind, data, self.options), leaf.clone()));
                }
            }
            places.push(place);
        }
        Ok(places)
    }

    /// Appends to the reason for refusing a column the hint to select columns, if all are read.
    fn with_hint(&self, reason: String) -> String {
        let others = if self.is_whole { ", or name the columns to take in dataset.json" } else { "" };
        format!("{reason}{others}; {SUPPORTED}")
    }

    /// Returns the bytes of all columns so far.
    fn stored_bytes(&self) -> u64 {
        self.columns.iter().map(|(column, _)| column.bytes()).sum()
    }

    fn finish(self, items: u64) -> Result<Vec<DraftColumn>, DatasetError> {
        let mut held = self.stored_bytes();
        let mut columns = Vec::with_capacity(self.columns.len());
        for (field, (column, leaf)) in self.fields.into_iter().zip(self.columns) {
            let before = column.bytes();
            let column = finish_column(
                self.staging,
                &self.first,
                &field,
                column,
                &leaf,
                OtherColumns { items, held: held - before },
            )?;
            held = held - before + column.data.bytes();
            columns.push(column);
        }
        Ok(columns)
    }
}

/// The number of items, and the bytes of the other columns, which count towards the same limits.
struct OtherColumns {
    items: u64,
    held: u64,
}

/// Refuses a file with which the dataset would exceed the maximum number of items.
fn check_items(file: &str, before: u64, footer: &ParquetFooter) -> Result<(), DatasetError> {
    // The footer's parser has checked that the sum does not overflow.
    let rows: u64 = footer.groups.iter().map(|group| group.rows).sum();
    match before.checked_add(rows).is_some_and(|items| items <= DATASET_ITEMS_MAX) {
        true => Ok(()),
        false => Err(DatasetError::TooLarge { what: file.to_owned(), max: DATASET_ITEMS_MAX, unit: "items" }),
    }
}

fn refused_column_error(file: &str, leaf: &LeafColumn, reason: String) -> DatasetError {
    DatasetError::Column { file: file.to_owned(), column: leaf.name.clone(), reason }
}

/// Returns the bytes of a value in a column. For texts, the bytes of the stored length only; their content is counted
/// while it is read.
fn value_bytes(kind: ValueKind) -> usize {
    match kind {
        ValueKind::Number(dtype) => dtype.bytes(),
        ValueKind::Bytes(length) => length,
        ValueKind::Text => LENGTH_BYTES,
        // The pixels are counted while they are decoded.
        ValueKind::Image => 1,
    }
}

/// Returns the column in its stored form.
fn finish_column(
    staging: &StagingArea<'_>,
    file: &str,
    field: &ColumnField,
    column: ParquetColumn<'_>,
    leaf: &LeafColumn,
    others: OtherColumns,
) -> Result<DraftColumn, DatasetError> {
    let wrong = |reason: String| DatasetError::Description { reason: format!("field {}: {reason}", field.name) };
    let items = others.items;
    let image = column.image;
    let (dtype, width, data) = match column.kind {
        ValueKind::Image => {
            if field.shape.is_some() || !field.classes.is_empty() {
                return Err(wrong("an image has no `shape` and no `classes`".to_owned()));
            }
            (DType::U8, image.map(|sides| sides.iter().product()), column.data.finish()?)
        }
        ValueKind::Number(dtype) => (dtype, column.length, column.data.finish()?),
        ValueKind::Bytes(length) => (DType::U8, Some(length), column.data.finish()?),
        ValueKind::Text => {
            if field.shape.is_some() || !field.classes.is_empty() {
                return Err(wrong("a text has no `shape` and no `classes`".to_owned()));
            }
            let (width, data) = pad_texts(staging, file, column, leaf, &others)?;
            (DType::U8, Some(width), data)
        }
    };
    let plain = || image.map_or_else(|| width.into_iter().collect(), |sides| sides.to_vec());
    let dims = field.shape.clone().unwrap_or_else(plain);
    let shape = Shape::new(dims).map_err(|error| wrong(error.to_string()))?;
    let elements = width.unwrap_or(1);
    if shape.elements() != elements {
        let found = shape.elements();
        return Err(wrong(format!("shape {shape} has {found} elements, and column {} has {elements}", leaf.name)));
    }
    let file = format!("column {} of {file}", leaf.name);
    let item = Descriptor::new(dtype, shape);
    let array = StagedArray { file, name: field.name.clone(), items, item, data };
    labels::check_class_indices(&array, &field.classes)?;
    Ok(DraftColumn { name: array.name, item: array.item, classes: field.classes.clone(), data: array.data })
}

/// Pads every text with zeros to the length of the longest.
fn pad_texts(
    staging: &StagingArea<'_>,
    file: &str,
    column: ParquetColumn<'_>,
    leaf: &LeafColumn,
    others: &OtherColumns,
) -> Result<(usize, StagedColumn), DatasetError> {
    let width = column.longest.max(1);
    let what = format!("{file}: column {}, its texts stretched to the longest of {width} bytes,", leaf.name);
    let bytes = others.items.checked_mul(width as u64);
    staging.check_size(&what, bytes.and_then(|bytes| bytes.checked_add(others.held)))?;
    let texts = column.data.finish()?;
    let mut reader = texts.reader()?;
    let mut data = staging.writer(1)?;
    for _ in 0..others.items {
        let mut length = [0; LENGTH_BYTES];
        reader.read_exact(&mut length).map_err(texts.read_error())?;
        let length = u64::from(u32::from_le_bytes(length));
        data.copy(&mut reader, length, &texts)?;
        data.push_zeros(width as u64 - length)?;
    }
    staging.remove(texts)?;
    Ok((width, data.finish()?))
}

#[cfg(test)]
mod tests {
    use ::parquet::basic::Type as Physical;

    use super::*;

    #[test]
    fn padded_texts_count_towards_the_dataset_limit() {
        let directory = tempfile::tempdir().unwrap();
        let staging = StagingArea::new(directory.path(), directory.path(), &|_| Ok(())).unwrap();
        let kind = Ok(ValueKind::Text);
        let leaf = LeafColumn {
            name: "x".to_owned(),
            physical: Physical::BYTE_ARRAY,
            length: 0,
            kind,
            defined: 0,
            list: None,
            is_image_path: false,
        };
        let column = || {
            let mut column = ParquetColumn::new(ValueKind::Text, staging.writer(1).unwrap(), ColumnOptions::default());
            column.data.push(b"\0\0\0\0\x03\0\0\0abc").unwrap();
            column.longest = 3;
            column
        };
        let (width, data) =
            pad_texts(&staging, "d.parquet", column(), &leaf, &OtherColumns { items: 2, held: 0 }).unwrap();
        let mut read = Vec::new();
        data.open().unwrap().read_to_end(&mut read).unwrap();
        assert_eq!((width, read.as_slice()), (3, &b"\0\0\0abc"[..]));
        let others = OtherColumns { items: 2, held: staging.bytes_max() - 5 };
        let error = pad_texts(&staging, "d.parquet", column(), &leaf, &others).unwrap_err();
        assert!(matches!(error, DatasetError::Expands { .. }), "{error}");
    }
}
