//! What is read from a CSV file: its columns as fields, by a description or inferred.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use saggar_tensor::Descriptor;

use super::super::description::{ColumnSelection, CsvDescription, CsvFieldDescription, MissingPolicy};
use super::cell::quoted_cell;
use super::header::has_header;
use super::lines::CsvLineReader;
use crate::error::DatasetError;
use crate::limits::CSV_LINE_BYTES_MAX;

/// Column names that an error lists.
const COLUMNS_NAMED: usize = 20;

/// A field of a table and its columns.
pub(super) struct TableField {
    pub(super) name: String,
    /// The columns by number, from 0.
    pub(super) columns: Vec<usize>,
    pub(super) item: Descriptor,
    /// Values are scaled from 0 to this maximum to 0 to 255.
    pub(super) maximum: Option<u32>,
    pub(super) classes: Vec<String>,
    /// The index of each class by name.
    pub(super) class_indices: HashMap<String, usize>,
}

impl TableField {
    /// Returns a field. The first of equal class names counts.
    pub(super) fn new(name: &str, columns: Vec<usize>, item: Descriptor, classes: Vec<String>) -> TableField {
        let mut class_indices = HashMap::with_capacity(classes.len());
        for (index, class) in classes.iter().enumerate() {
            class_indices.entry(class.clone()).or_insert(index);
        }
        TableField { name: name.to_owned(), columns, item, maximum: None, classes, class_indices }
    }
}

/// How a CSV file is read.
pub(super) struct TablePlan {
    /// The file, relative to the folder.
    pub(super) file: String,
    pub(super) delimiter: u8,
    /// Whether the first line has the names of the columns.
    pub(super) header: bool,
    /// The names of the columns; empty if they have none.
    pub(super) names: Vec<String>,
    pub(super) fields: Vec<TableField>,
    pub(super) missing: MissingPolicy,
    /// The column that is predicted, if it is known. A row without a value in it is never filled.
    pub(super) target: Option<usize>,
    pub(super) shares: Vec<(String, u64)>,
    /// Messages for the user about what was inferred.
    pub(super) notes: Vec<String>,
}

impl TablePlan {
    /// Returns the plan of a description with fields.
    ///
    /// # Errors
    /// Returns `Description` and `BadType` if the description is inconsistent; `Column` for names that no column has;
    /// the errors of reading the first lines.
    pub(super) fn from_fields(
        path: &Path,
        file: &str,
        delimiter: u8,
        text: &CsvDescription,
    ) -> Result<TablePlan, DatasetError> {
        let items = text.fields.iter().map(CsvFieldDescription::item_descriptor).collect::<Result<Vec<_>, _>>()?;
        let shares = text.split_shares()?;
        let named = text.fields.iter().any(|field| matches!(field.columns, ColumnSelection::Names(_)));
        if named && text.header == Some(false) {
            let reason = "fields name their columns, and `header` is false; number the columns: [first, last + 1]";
            return Err(DatasetError::Description { reason: reason.to_owned() });
        }
        let header = match text.header {
            Some(header) => header,
            None => named || has_header(path, file, delimiter, text)?,
        };
        let mut lines = CsvLineReader::open(path, file, delimiter, false, 0)?;
        let names = if header && lines.next_line()? { lines.cells() } else { Vec::new() };
        let places = ColumnPlaces::new(&names);
        let mut left = CSV_LINE_BYTES_MAX;
        let fields = text.fields.iter().zip(items).map(|(field, item)| {
            let columns = resolve_columns(file, &places, field, &mut left)?;
            let mut field_plan = TableField::new(&field.name, columns, item, field.classes.clone());
            field_plan.maximum = field.maximum;
            Ok(field_plan)
        });
        let fields = fields.collect::<Result<Vec<_>, DatasetError>>()?;
        let (file, missing) = (file.to_owned(), text.missing);
        Ok(TablePlan { file, delimiter, header, names, fields, missing, target: None, shares, notes: Vec::new() })
    }

    /// Opens the file at its first row.
    pub(super) fn open(&self, path: &Path) -> Result<CsvLineReader, DatasetError> {
        let needed = self.fields.iter().flat_map(|field| &field.columns).max().map_or(0, |last| last + 1);
        CsvLineReader::open(path, &self.file, self.delimiter, self.header, needed)
    }

    /// Returns a column's name, or its number from 1.
    pub(super) fn column_name(&self, column: usize) -> String {
        column_name(&self.names, column)
    }
}

/// Returns a column's name, or its number from 1.
pub(super) fn column_name(names: &[String], column: usize) -> String {
    match names.get(column).filter(|name| !name.is_empty()) {
        Some(name) => format!("`{}`", quoted_cell(name)),
        None => (column + 1).to_string(),
    }
}

/// Returns the numbers of a field's columns. `left` is the number of columns that fields can still have: a line has no
/// more cells than bytes.
fn resolve_columns(
    file: &str,
    places: &ColumnPlaces<'_>,
    field: &CsvFieldDescription,
    left: &mut usize,
) -> Result<Vec<usize>, DatasetError> {
    let width = match &field.columns {
        ColumnSelection::Range(start, end) if *end <= CSV_LINE_BYTES_MAX => end.saturating_sub(*start),
        ColumnSelection::Range(..) => usize::MAX,
        ColumnSelection::Names(names) => names.len(),
    };
    *left = left.checked_sub(width).ok_or_else(|| {
        let what = format!("dataset.json: field {}", field.name);
        DatasetError::TooLarge { what, max: CSV_LINE_BYTES_MAX as u64, unit: "columns" }
    })?;
    match &field.columns {
        ColumnSelection::Range(start, end) => Ok((*start..*end).collect()),
        ColumnSelection::Names(names) => names.iter().map(|name| places.find(file, name)).collect(),
    }
}

/// The columns of a header by name.
pub(super) struct ColumnPlaces<'n> {
    names: &'n [String],
    places: BTreeMap<&'n str, Vec<usize>>,
}

impl<'n> ColumnPlaces<'n> {
    pub(super) fn new(names: &'n [String]) -> ColumnPlaces<'n> {
        let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (column, name) in names.iter().enumerate() {
            places.entry(name).or_default().push(column);
        }
        ColumnPlaces { names, places }
    }

    /// Returns the number of the column with this name.
    ///
    /// # Errors
    /// Returns `Column` if no column or several columns have it.
    pub(super) fn find(&self, file: &str, name: &str) -> Result<usize, DatasetError> {
        let reason = match self.places.get(name).map(Vec::as_slice) {
            Some([column]) => return Ok(*column),
            Some(several) => {
                let numbers = several.iter().take(COLUMNS_NAMED).map(|column| (column + 1).to_string());
                let numbers = numbers.collect::<Vec<_>>().join(", ");
                format!("the columns {numbers} all have this name; rename them in the first line")
            }
            None if self.names.is_empty() => {
                "the file has no first line with names; write one, or number the columns".to_owned()
            }
            None => {
                let known = self.names.iter().take(COLUMNS_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
                let more = if self.names.len() > COLUMNS_NAMED { ", ..." } else { "" };
                format!("no column has this name; the columns are {known}{more}")
            }
        };
        Err(DatasetError::Column { file: file.to_owned(), column: quoted_cell(name), reason })
    }
}
