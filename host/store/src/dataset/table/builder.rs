//! The columns of a table over all its files: which become fields, and whether every file has the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::super::description::{
    ColumnField, ColumnFilesDescription, ImageSize, MissingPolicy, check_field_names, parse_shares,
};
use super::super::draft::{DatasetDraft, DraftColumn};
use super::super::manifest::SplitRange;
use super::super::split::{files_by_split, reorder_by_split};
use super::super::staging::StagingArea;
use super::ColumnResult;
use super::column::{ColumnOptions, TableColumn, ValueKind};
use super::features;
use super::finish::{ColumnOrigin, finish_column};
use super::nulls::NullableTable;
use crate::error::DatasetError;
use crate::limits::{DATASET_BYTES_MAX, DATASET_ITEMS_MAX};

/// Names of known columns in an error.
const NAMES_SHOWN_MAX: usize = 20;

/// A format of tables, for messages.
pub(in super::super) struct TableFormat {
    /// Its name.
    pub(in super::super) name: &'static str,
    /// The form of its files' names.
    pub(in super::super) pattern: &'static str,
    /// The supported column types.
    pub(in super::super) supported: &'static str,
}

/// A column of a file's schema.
#[derive(Clone, Debug)]
pub(in super::super) struct SchemaColumn {
    /// Its name, or its path within a structure.
    pub(in super::super) name: String,
    /// The type of its values, or the reason why it is not supported.
    pub(in super::super) kind: ColumnResult<ValueKind>,
    /// Whether it has a list of values in each row.
    pub(in super::super) is_list: bool,
    /// Whether it is the file name of an image, which is not read.
    pub(in super::super) is_image_path: bool,
}

impl SchemaColumn {
    /// Returns the type of its values, for messages.
    fn describe(&self) -> String {
        let item = match self.kind {
            Ok(ValueKind::Number(dtype)) => dtype.to_string(),
            Ok(ValueKind::Bytes(length)) => format!("{length} bytes"),
            Ok(ValueKind::Text) => "text".to_owned(),
            Ok(ValueKind::Image) => "an image".to_owned(),
            Ok(ValueKind::Class) => "a class of a dictionary".to_owned(),
            Err(_) => "what is not read".to_owned(),
        };
        if self.is_list { format!("it is a list of {item}") } else { format!("it is {item}") }
    }

    /// Returns the error of this column in a file.
    pub(in super::super) fn refused(&self, file: &str, reason: String) -> DatasetError {
        DatasetError::Column { file: file.to_owned(), column: self.name.clone(), reason }
    }
}

/// The columns to read, over all files.
pub(in super::super) struct TableBuilder<'s> {
    pub(in super::super) staging: &'s StagingArea<'s>,
    format: &'static TableFormat,
    /// The first file, which determines the columns.
    first: String,
    /// The columns that become fields; without a description, all columns by their names.
    fields: Vec<ColumnField>,
    /// Whether all columns are read.
    is_whole: bool,
    options: ColumnOptions,
    /// The columns, and each as the first file has it.
    columns: Vec<(TableColumn<'s>, SchemaColumn)>,
}

/// Reads files, given by their names without endings: the fields of the description, or all columns. `append` reads a
/// file after the items of earlier files, and returns the number of its rows.
pub(in super::super) fn read_table<'s>(
    staging: &'s StagingArea<'s>,
    files: BTreeMap<String, PathBuf>,
    description: &ColumnFilesDescription,
    format: &'static TableFormat,
    mut append: impl FnMut(&mut TableBuilder<'s>, &Path, u64) -> Result<u64, DatasetError>,
) -> Result<DatasetDraft, DatasetError> {
    let fields = description.fields.clone();
    let is_whole = fields.is_empty();
    let allows_nulls = description.missing != MissingPolicy::Refuse;
    let resize = description.resize.map(ImageSize::checked).transpose()?;
    let options = ColumnOptions { allows_nulls, resize };
    let mut table =
        TableBuilder { staging, format, first: String::new(), fields, is_whole, options, columns: Vec::new() };
    let (mut splits, mut items): (Vec<SplitRange>, u64) = (Vec::new(), 0);
    for (name, paths) in files_by_split(files, format.pattern)? {
        let begin = items;
        for path in paths {
            items += append(&mut table, &path, items)?;
        }
        splits.push((name, begin, items));
    }
    if items == 0 {
        return Err(DatasetError::Empty { file: table.first });
    }
    let shares = if description.splits.is_empty() { Vec::new() } else { parse_shares(&description.splits)? };
    let nulls = table.columns.iter_mut().map(|(column, _)| std::mem::take(&mut column.nulls)).collect();
    let mut columns = table.finish(items)?;
    let files = format!("the {} files", format.name);
    let mut nullable = NullableTable { staging, files, columns: &mut columns, nulls, splits, items };
    let notes = nullable.apply(description.missing, &shares)?;
    let (mut splits, items) = (nullable.splits, nullable.items);
    if !shares.is_empty() {
        splits = reorder_by_split(staging, &mut columns, &shares, items)?;
    }
    Ok(DatasetDraft { columns, splits, items, description: description.description.clone(), notes })
}

impl<'s> TableBuilder<'s> {
    /// Returns the index of each column in a file with this schema. The first file determines the columns, unless a
    /// description does. `features` is the text of the library `datasets` of Hugging Face.
    pub(in super::super) fn locate_columns(
        &mut self,
        file: &str,
        schema: &[&SchemaColumn],
        features: Option<&str>,
    ) -> Result<Vec<usize>, DatasetError> {
        if self.first.is_empty() {
            file.clone_into(&mut self.first);
            if self.is_whole {
                let columns = schema.iter().filter(|column| !column.is_image_path);
                let mut names: Vec<_> = columns.map(|column| column.name.clone()).collect();
                // Sorted, as for other formats, so that the order of columns in a file does not change the dataset.
                names.sort();
                self.fields = names.into_iter().map(ColumnField::from_column_name).collect();
            }
            if self.fields.is_empty() {
                return Err(DatasetError::Malformed { file: file.to_owned(), reason: "it has no columns".to_owned() });
            }
            check_field_names(self.fields.iter().map(|field| field.name.as_str()))?;
            self.name_classes(schema, features);
        }
        let known: BTreeSet<_> = self.fields.iter().map(ColumnField::column).collect();
        let is_new = |column: &&&SchemaColumn| !column.is_image_path && !known.contains(column.name.as_str());
        // Columns that are not selected can have any type, in any file.
        if let Some(column) = schema.iter().find(is_new).filter(|_| self.is_whole) {
            let reason = format!("{} has no such column; every file has the same columns", self.first);
            return Err(column.refused(file, reason));
        }
        self.select_columns(file, schema)
    }

    /// Adds the class names that the file has of columns of numbers, unless the description has some.
    fn name_classes(&mut self, schema: &[&SchemaColumn], features: Option<&str>) {
        let Some(text) = features else { return };
        let mut names = features::class_names(text);
        let is_integer = |name: &str| {
            let column = schema.iter().find(|column| column.name == name);
            column.is_some_and(|column| matches!(column.kind, Ok(ValueKind::Number(dtype)) if !dtype.is_float()))
        };
        for field in self.fields.iter_mut().filter(|field| field.classes.is_empty()) {
            if is_integer(field.column()) {
                field.classes = names.remove(field.column()).unwrap_or_default();
            }
        }
    }

    fn select_columns(&mut self, file: &str, schema: &[&SchemaColumn]) -> Result<Vec<usize>, DatasetError> {
        let by_name: BTreeMap<_, _> = schema.iter().zip(0..).map(|(column, at)| (column.name.as_str(), at)).collect();
        let mut places = Vec::with_capacity(self.fields.len());
        for (at, field) in self.fields.iter().enumerate() {
            let place = by_name.get(field.column()).copied();
            let place = place.ok_or_else(|| {
                let known = schema.iter().take(NAMES_SHOWN_MAX).map(|column| column.name.as_str());
                let known = known.collect::<Vec<_>>().join(", ");
                DatasetError::Column {
                    file: file.to_owned(),
                    column: field.column().to_owned(),
                    reason: format!("no column has this name; the columns are {known}"),
                }
            })?;
            let column = schema[place];
            let kind = column.kind.clone().map_err(|reason| column.refused(file, self.with_hint(reason)))?;
            match self.columns.get(at) {
                Some((_, other)) if Ok(kind) != other.kind || column.is_list != other.is_list => {
                    let (found, expected) = (column.describe(), other.describe());
                    let reason = format!("{found}, and {expected} in {}; every file has the same", self.first);
                    return Err(column.refused(file, reason));
                }
                Some(_) => {}
                None => {
                    let data = self.staging.writer(self.fields.len())?;
                    self.columns.push((TableColumn::new(kind, data, self.options, &field.classes), column.clone()));
                }
            }
            places.push(place);
        }
        Ok(places)
    }

    /// Appends to the reason for refusing a column the hint to select columns, if all are read.
    fn with_hint(&self, reason: String) -> String {
        let others = if self.is_whole { ", or name the columns to take in dataset.json" } else { "" };
        format!("{reason}{others}; {}", self.format.supported)
    }

    /// Returns the column of a field, in the order of [`locate_columns`](Self::locate_columns).
    pub(in super::super) fn column(&mut self, at: usize) -> &mut TableColumn<'s> {
        &mut self.columns[at].0
    }

    /// Returns for each column the limit on its bytes after a file is read whose texts and images have at most `bytes`
    /// bytes.
    pub(in super::super) fn bytes_limits(&self, bytes: u64) -> Vec<u64> {
        let bytes = bytes.min(DATASET_BYTES_MAX);
        self.columns.iter().map(|(column, _)| column.bytes().saturating_add(bytes)).collect()
    }

    /// Returns the bytes of all columns so far.
    pub(in super::super) fn stored_bytes(&self) -> u64 {
        self.columns.iter().map(|(column, _)| column.bytes()).sum()
    }

    fn finish(self, items: u64) -> Result<Vec<DraftColumn>, DatasetError> {
        let mut held = self.stored_bytes();
        let mut columns = Vec::with_capacity(self.columns.len());
        for (field, (column, schema)) in self.fields.into_iter().zip(self.columns) {
            let before = column.bytes();
            let origin = ColumnOrigin { file: &self.first, column: &schema.name, items, held: held - before };
            let column = finish_column(self.staging, &field, column, &origin)?;
            held = held - before + column.data.bytes();
            columns.push(column);
        }
        Ok(columns)
    }
}

/// Refuses a file with `rows` rows with which the dataset would exceed the maximum number of items.
pub(in super::super) fn check_items(file: &str, before: u64, rows: u64) -> Result<(), DatasetError> {
    match before.checked_add(rows).is_some_and(|items| items <= DATASET_ITEMS_MAX) {
        true => Ok(()),
        false => Err(DatasetError::TooLarge { what: file.to_owned(), max: DATASET_ITEMS_MAX, unit: "items" }),
    }
}
