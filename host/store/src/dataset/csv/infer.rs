//! Infers the meaning of a CSV file without a `dataset.json`: one column is the label, the others are the features.
//!
//! The label is the column with a name that means label, otherwise the last one. It must be the first or the last,
//! because a field is a range of adjacent columns. Integers and names are classes; other numbers are a regression
//! target.

use std::collections::BTreeSet;
use std::path::Path;

use super::super::description::{CsvDescription, CsvFieldDescription};
use super::{CsvLineReader, is_header};
use crate::error::DatasetError;

/// Column names that mean the label.
const LABELS: [&str; 5] = ["label", "class", "target", "y", "species"];
/// Maximum number of distinct integers in a label that are still classes and not a quantity.
const NUMBERED_CLASSES_MAX: usize = 100;
/// Maximum number of distinct names in a label that are still classes and not text.
const NAMED_CLASSES_MAX: usize = 1_000;

/// Infers a description of the folder's only CSV file.
///
/// # Errors
/// Returns `Table`, with the `dataset.json` to write, if the meaning cannot be inferred; the errors of reading the
/// file.
pub(super) fn infer_description(path: &Path, file: &str) -> Result<CsvDescription, DatasetError> {
    let mut lines = CsvLineReader::open(path, file, false, 0)?;
    if !lines.next_line()? {
        return Err(DatasetError::Empty { file: file.to_owned() });
    }
    let first = lines.cells();
    let width = first.len();
    if width < 2 {
        let reason = "it has one column, and a dataset has features and a label".to_owned();
        return Err(unclear_file_error(file, reason, false, width, "label"));
    }
    let Some(second) = lines.next_line()?.then(|| lines.cells()) else {
        let reason = "one line does not show which column is the label".to_owned();
        return Err(unclear_file_error(file, reason, false, width, "label"));
    };
    let header = is_header(&first, &second);
    let called = |name: &String| LABELS.contains(&name.to_lowercase().as_str());
    let label = first.iter().position(|name| header && called(name)).unwrap_or(width - 1);
    if label != 0 && label != width - 1 {
        let reason =
            format!("its label `{}` stands between other columns, and a field is neighbouring ones", first[label]);
        return Err(unclear_file_error(file, reason, header, width, "label"));
    }
    let mut kind = LabelProfile::default();
    if !header {
        kind.add_cell(&first[label]);
    }
    check_features(file, lines.line, &second, &first, label, header)?;
    kind.add_cell(&second[label]);
    while lines.next_line()? {
        kind.add_cell(&lines.cell(label));
        if kind.is_text() {
            let reason = format!("column {} has more than {NAMED_CLASSES_MAX} different texts", label + 1);
            return Err(unclear_file_error(file, reason, header, width, "label"));
        }
    }
    let features = if label == 0 { (1, width) } else { (0, width - 1) };
    let field = |name: &str, columns, dtype: &str, classes| CsvFieldDescription {
        name: name.to_owned(),
        columns,
        shape: Some(if columns == features { vec![width - 1] } else { Vec::new() }),
        dtype: dtype.to_owned(),
        maximum: None,
        classes,
    };
    let (name, dtype, classes) = kind.into_field_definition();
    Ok(CsvDescription {
        file: file.to_owned(),
        header: Some(header),
        fields: vec![field("x", features, "float32", Vec::new()), field(name, (label, label + 1), dtype, classes)],
        splits: serde_json::Map::new(),
        description: String::new(),
    })
}

/// Refuses features that are not numbers.
fn check_features(
    file: &str,
    line: u64,
    cells: &[String],
    first: &[String],
    label: usize,
    header: bool,
) -> Result<(), DatasetError> {
    let is_text = |(at, cell): &(usize, &String)| *at != label && cell.parse::<f32>().is_err();
    let Some((at, cell)) = cells.iter().enumerate().find(is_text) else { return Ok(()) };
    let called = if header { format!(" (`{}`)", first[at]) } else { String::new() };
    let cell: String = cell.chars().take(40).collect();
    let reason = format!("column {}{called} has `{cell}` in line {line}, which is not a number", at + 1);
    Err(unclear_file_error(file, reason, header, cells.len(), "label"))
}

/// The values of a label.
#[derive(Default)]
struct LabelProfile {
    texts: BTreeSet<String>,
    /// Distinct integers; emptied if there are too many.
    numbers: BTreeSet<i64>,
    has_fraction: bool,
    has_text: bool,
    is_quantity: bool,
}

impl LabelProfile {
    fn add_cell(&mut self, cell: &str) {
        match (cell.parse::<i64>(), cell.parse::<f64>()) {
            (Ok(number), _) if !self.is_quantity => {
                self.numbers.insert(number);
                self.is_quantity = self.numbers.len() > NUMBERED_CLASSES_MAX;
            }
            (Ok(_), _) => {}
            (Err(_), Ok(_)) => self.has_fraction = true,
            (Err(_), Err(_)) => self.has_text = true,
        }
        if self.texts.len() <= NAMED_CLASSES_MAX && !self.texts.contains(cell) {
            self.texts.insert(cell.to_owned());
        }
    }

    /// Returns whether its values are too many texts to be classes.
    fn is_text(&self) -> bool {
        self.has_text && self.texts.len() > NAMED_CLASSES_MAX
    }

    /// Returns the field's name, its data type and its classes.
    fn into_field_definition(self) -> (&'static str, &'static str, Vec<String>) {
        let dtype = |classes: usize| if classes <= 256 { "uint8" } else { "uint32" };
        if self.has_text {
            return ("label", dtype(self.texts.len()), self.texts.into_iter().collect());
        }
        if self.has_fraction || self.is_quantity {
            return ("target", "float32", Vec::new());
        }
        // Numbers that do not start at 0, or have gaps, are treated as class names.
        let is_plain = self.numbers.iter().zip(0..).all(|(number, expected)| *number == expected);
        let classes = if is_plain { Vec::new() } else { self.numbers.iter().map(i64::to_string).collect() };
        ("label", dtype(self.numbers.len()), classes)
    }
}

/// Returns the error that a file's meaning is unclear, with a description that resolves it: the last column is the
/// label.
fn unclear_file_error(file: &str, reason: String, header: bool, width: usize, label: &str) -> DatasetError {
    let last = width.saturating_sub(1).max(1);
    let example = serde_json::json!({
        "format": "csv", "file": file, "header": header,
        "fields": [
            { "name": "x", "columns": [0, last], "dtype": "float32" },
            { "name": label, "columns": [last, last + 1], "dtype": "uint8", "classes": ["first", "second"] },
        ],
        "splits": { "train": 0.8, "test": 0.2 },
    });
    DatasetError::Table { file: file.to_owned(), reason, example: example.to_string() }
}

/// Returns the error that there are several files, with a description that selects one of them.
pub(super) fn several_files_error(files: &[String]) -> DatasetError {
    let listed = files.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
    let reason = format!("{} CSV files are there ({listed}), and one is a dataset", files.len());
    unclear_file_error(&files[0], reason, true, 5, "label")
}
