//! Infers the fields of a CSV file without `fields` in `dataset.json`: one column is the target, and the others are the
//! inputs.
//!
//! The target is the column that the description names, otherwise the one with a name that means label, otherwise the
//! last one. Integers and names in it are classes; other numbers are a regression target. Columns of numbers are the
//! field `x` together. Each column of a few different texts is a field of classes, and columns of many texts are left
//! out.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use saggar_tensor::{DType, Descriptor, Shape};

use super::super::description::CsvDescription;
use super::super::manifest::file_name;
use super::header::is_header;
use super::lines::CsvLineReader;
use super::plan::{ColumnPlaces, TableField, TablePlan, column_name};
use super::profile::{ColumnProfile, DistinctValues, ProfiledFile, distinct_values, profile_columns};
use crate::error::DatasetError;
use crate::limits::{TABLE_CLASSES_MAX, TABLE_COLUMNS_MAX};

/// Column names that mean the target.
const LABELS: [&str; 5] = ["label", "class", "target", "y", "species"];
/// The field of all columns of numbers.
const FEATURES: &str = "x";
/// The names that the target has as a field: classes, or a quantity.
const TARGETS: [&str; 2] = ["label", "target"];
/// Different texts up to which a column is classes even in a short file.
const FEW_CLASSES: usize = 20;
/// Bytes of the name of a field.
const FIELD_NAME_BYTES_MAX: usize = 63;
/// Columns that a note lists.
const COLUMNS_NOTED: usize = 20;

/// Infers how the file is read.
///
/// # Errors
/// Returns `Table`, with the `dataset.json` to write, if the meaning cannot be inferred; `Column` for a name that no
/// column has; `BadValue` for a text among numbers; `TooLarge`; the errors of reading the file.
pub(super) fn infer_plan(
    path: &Path,
    file: &str,
    delimiter: u8,
    text: &CsvDescription,
) -> Result<TablePlan, DatasetError> {
    let shares = text.split_shares()?;
    let (first, header) = read_first_lines(path, file, delimiter, text)?;
    let width = first.len();
    let names = if header { first } else { Vec::new() };
    let places = ColumnPlaces::new(&names);
    let target = match &text.target {
        Some(name) => places.find(file, name)?,
        None => names.iter().position(|name| is_label_name(name)).unwrap_or(width - 1),
    };
    let ignored = text.ignore.iter().map(|name| places.find(file, name)).collect::<Result<BTreeSet<_>, _>>()?;
    if ignored.contains(&target) {
        let reason = format!("column {} is the target, and `ignore` names it", column_name(&names, target));
        return Err(DatasetError::Description { reason });
    }
    let source = ProfiledFile { path, file, delimiter, header };
    let profiles = profile_columns(&source, width)?;
    let used_files = [FEATURES].into_iter().chain(TARGETS).map(file_name).collect();
    let mut inference = Inference { file, names: &names, target, fields: Vec::new(), used_files, notes: Vec::new() };
    let rows = profiles.iter().map(ColumnProfile::values).max().unwrap_or(0);
    if rows == 0 {
        return Err(DatasetError::Empty { file: file.to_owned() });
    }
    let mut columns = inference.sort_columns(&profiles, &ignored);
    columns.texts.push(target);
    let mut distinct = distinct_values(&source, &columns.texts)?;
    columns.texts.pop();
    let answer = distinct.pop().expect("one for each column");
    inference.add_features(columns.numbers);
    for (column, values) in columns.texts.iter().zip(distinct) {
        inference.add_classes(*column, &profiles[*column], values, rows)?;
    }
    if inference.fields.is_empty() {
        return Err(inference.unclear_file_error("no column is left as an input".to_owned()));
    }
    inference.add_target(&profiles[target], answer)?;
    let (fields, notes) = (inference.fields, inference.notes);
    let (file, missing) = (file.to_owned(), text.missing);
    Ok(TablePlan { file, delimiter, header, names, fields, missing, target: Some(target), shares, notes })
}

/// Returns the first line, and whether it is a header.
fn read_first_lines(
    path: &Path,
    file: &str,
    delimiter: u8,
    text: &CsvDescription,
) -> Result<(Vec<String>, bool), DatasetError> {
    let mut lines = CsvLineReader::open(path, file, delimiter, false, 0)?;
    if !lines.next_line()? {
        return Err(DatasetError::Empty { file: file.to_owned() });
    }
    let first = lines.cells();
    let width = first.len();
    let unclear = |reason: &str| Err(unclear_file_error(file, reason.to_owned(), false, width));
    if width < 2 {
        return unclear("it has one column, and a dataset has features and a label");
    }
    if width > TABLE_COLUMNS_MAX {
        return Err(DatasetError::TooLarge { what: file.to_owned(), max: TABLE_COLUMNS_MAX as u64, unit: "columns" });
    }
    if !lines.next_line()? {
        return unclear("one line does not show which column is the label");
    }
    let second = lines.cells();
    // A single letter can also be a value.
    let is_named = |name: &String| text.target.as_ref() == Some(name) || name.len() > 1 && is_label_name(name);
    let header = text.header.unwrap_or_else(|| is_header(&first, &second) || first.iter().any(is_named));
    Ok((first, header))
}

fn is_label_name(name: &str) -> bool {
    LABELS.contains(&name.to_lowercase().as_str())
}

/// The columns besides the target, by what they contain.
struct SortedColumns {
    numbers: Vec<usize>,
    texts: Vec<usize>,
}

/// The fields that were found so far.
struct Inference<'a> {
    file: &'a str,
    names: &'a [String],
    target: usize,
    fields: Vec<TableField>,
    /// The files of the fields so far, and of the fields `x`, `label` and `target`.
    used_files: HashSet<String>,
    notes: Vec<String>,
}

impl Inference<'_> {
    fn name(&self, column: usize) -> String {
        column_name(self.names, column)
    }

    /// Sorts the columns by their content. Columns without values, and the row numbers that pandas writes, are left out.
    fn sort_columns(&mut self, profiles: &[ColumnProfile], ignored: &BTreeSet<usize>) -> SortedColumns {
        let mut sorted = SortedColumns { numbers: Vec::new(), texts: Vec::new() };
        for (column, profile) in profiles.iter().enumerate() {
            if column == self.target || ignored.contains(&column) {
                continue;
            }
            let is_unnamed = self.names.get(column).is_some_and(|name| name.is_empty() || name == "Unnamed: 0");
            if profile.values() == 0 {
                self.notes.push(format!("column {} is left out: it has no values", self.name(column)));
            } else if is_unnamed && profile.is_row_number() {
                let number = column + 1;
                self.notes.push(format!("column {number} is left out: it has no name and numbers the rows"));
            } else if profile.texts == 0 {
                sorted.numbers.push(column);
            } else {
                sorted.texts.push(column);
            }
        }
        sorted
    }

    /// Adds the field of all columns of numbers.
    fn add_features(&mut self, columns: Vec<usize>) {
        if columns.is_empty() {
            return;
        }
        let listed = columns.iter().take(COLUMNS_NOTED).map(|column| self.name(*column)).collect::<Vec<_>>().join(", ");
        let more = columns.len().saturating_sub(COLUMNS_NOTED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        self.notes.push(format!("field x has the columns {listed}{more}"));
        let item = Descriptor::new(DType::F32, Shape::new([columns.len()]).expect("at most as many as columns"));
        self.fields.push(TableField::new(FEATURES, columns, item, Vec::new()));
    }

    /// Adds a column of texts as a field of classes, or leaves it out if its texts are too many.
    fn add_classes(
        &mut self,
        column: usize,
        profile: &ColumnProfile,
        values: DistinctValues,
        rows: u64,
    ) -> Result<(), DatasetError> {
        let count = values.texts.len();
        if count <= FEW_CLASSES || !values.is_too_many() && count as u64 <= rows / 2 {
            let name = self.unused_field_name(column);
            self.used_files.insert(file_name(&name));
            self.fields.push(class_field(&name, column, values.texts.into_iter().collect()));
            return Ok(());
        }
        let (name, (line, cell)) = (self.name(column), profile.first_text.clone().unwrap_or_default());
        if profile.numbers > 9 * profile.texts {
            let (file, numbers) = (self.file.to_owned(), profile.numbers);
            let expected = format!(
                "a number, as {numbers} values of column {name} are; correct it, or leave the column out with \
                 `--ignore`"
            );
            return Err(DatasetError::BadValue { file, line, column: column + 1, value: cell, expected });
        }
        let most = if values.is_too_many() {
            format!("more than {TABLE_CLASSES_MAX} different values")
        } else {
            format!("{count} different values in {rows} rows")
        };
        self.notes.push(format!(
            "column {name} is left out: {most} are too many for classes, such as `{cell}` in line {line}"
        ));
        Ok(())
    }

    /// Adds the target: classes, or a quantity.
    fn add_target(&mut self, profile: &ColumnProfile, values: DistinctValues) -> Result<(), DatasetError> {
        let name = self.name(self.target);
        if profile.values() == 0 {
            return Err(self.unclear_file_error(format!("its target, column {name}, has no values")));
        }
        if values.has_text && values.is_too_many() {
            let many = format!("column {} has more than {TABLE_CLASSES_MAX} different texts", self.target + 1);
            return Err(self.unclear_file_error(many));
        }
        let field = if values.has_text {
            class_field(TARGETS[0], self.target, values.texts.into_iter().collect())
        } else if values.has_fraction || values.is_quantity() {
            let item = Descriptor::new(DType::F32, Shape::scalar());
            TableField::new(TARGETS[1], vec![self.target], item, Vec::new())
        } else {
            // Numbers that do not start at 0, or have gaps, are treated as class names.
            let is_plain = values.integers.iter().zip(0..).all(|(number, expected)| *number == expected);
            let texts = values.integers.iter().map(i64::to_string);
            let mut field = class_field(TARGETS[0], self.target, texts.collect());
            if is_plain {
                field = TableField::new(TARGETS[0], vec![self.target], field.item, Vec::new());
            }
            field
        };
        if !self.names.is_empty() {
            self.notes.push(format!("field {} is the column {name}", field.name));
        }
        self.fields.push(field);
        Ok(())
    }

    /// Returns a name for the field of a column: the column's name, with a number if it is taken.
    fn unused_field_name(&self, column: usize) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let name: String = self.names.get(column).map(|name| name.chars().map(plain).collect()).unwrap_or_default();
        let name = if name.chars().all(|c| c == '_') { format!("column_{}", column + 1) } else { name };
        let is_taken = |name: &str| self.used_files.contains(&file_name(name));
        let short = |bytes: usize| name.chars().take(bytes).collect::<String>();
        let whole = short(FIELD_NAME_BYTES_MAX);
        if !is_taken(&whole) {
            return whole;
        }
        // The number of a column is unique, and a number has at most 20 digits.
        let numbered = format!("{}_{}", short(FIELD_NAME_BYTES_MAX - 21), column + 1);
        if is_taken(&numbered) { format!("column_{}", column + 1) } else { numbered }
    }

    fn unclear_file_error(&self, reason: String) -> DatasetError {
        unclear_file_error(self.file, reason, !self.names.is_empty(), self.target + 1)
    }
}

/// Returns a field of a column with these classes.
fn class_field(name: &str, column: usize, classes: Vec<String>) -> TableField {
    let dtype = if classes.len() <= 256 { DType::U8 } else { DType::U32 };
    TableField::new(name, vec![column], Descriptor::new(dtype, Shape::scalar()), classes)
}

/// Returns the error that a file's meaning is unclear, with a description that resolves it: the last column is the
/// label.
fn unclear_file_error(file: &str, reason: String, header: bool, width: usize) -> DatasetError {
    let last = width.saturating_sub(1).max(1);
    let example = serde_json::json!({
        "format": "csv", "file": file, "header": header,
        "fields": [
            { "name": "x", "columns": [0, last], "dtype": "float32" },
            { "name": "label", "columns": [last, last + 1], "dtype": "uint8", "classes": ["first", "second"] },
        ],
        "splits": { "train": 0.8, "test": 0.2 },
    });
    DatasetError::Table { file: file.to_owned(), reason, example: example.to_string() }
}

/// Returns the error that there are several files, with a description that selects one of them.
pub(super) fn several_files_error(files: &[String]) -> DatasetError {
    let listed = files.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
    let reason = format!("{} CSV files are there ({listed}), and one is a dataset", files.len());
    unclear_file_error(&files[0], reason, true, 5)
}
