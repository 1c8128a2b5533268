//! What the columns of a CSV file contain: numbers, texts, missing values.

use std::collections::BTreeSet;
use std::path::Path;

use super::cell::{is_missing_marker, quoted_cell};
use super::lines::CsvLineReader;
use crate::error::DatasetError;
use crate::limits::{TABLE_CLASSES_BYTES_MAX, TABLE_CLASSES_MAX};

/// The beginning of a file that is profiled.
pub(super) struct ProfiledFile<'a> {
    pub(super) path: &'a Path,
    pub(super) file: &'a str,
    pub(super) delimiter: u8,
    pub(super) header: bool,
}

impl ProfiledFile<'_> {
    pub(super) fn open(&self) -> Result<CsvLineReader, DatasetError> {
        CsvLineReader::open(self.path, self.file, self.delimiter, self.header, 0)
    }
}

/// The kinds of values in a column.
#[derive(Clone, Default)]
pub(super) struct ColumnProfile {
    /// Cells that are finite numbers.
    pub(super) numbers: u64,
    /// Cells that are other texts.
    pub(super) texts: u64,
    /// The first such cell: its line and its text.
    pub(super) first_text: Option<(u64, String)>,
    /// The next number if all cells so far count up from 0 or 1.
    next: Option<u64>,
    /// Whether a cell did not.
    is_broken: bool,
}

impl ColumnProfile {
    fn add(&mut self, cell: &str, line: u64) {
        if is_missing_marker(cell) {
            self.is_broken = true;
            return;
        }
        if cell.parse::<f32>().is_ok_and(f32::is_finite) {
            self.numbers += 1;
        } else {
            self.texts += 1;
            self.first_text.get_or_insert_with(|| (line, quoted_cell(cell)));
        }
        let number = cell.parse::<u64>().ok();
        let follows = number.filter(|number| self.next.map_or(*number <= 1, |next| *number == next));
        self.next = follows.and_then(|number| number.checked_add(1));
        self.is_broken |= self.next.is_none();
    }

    /// Returns the cells that have a value.
    pub(super) fn values(&self) -> u64 {
        self.numbers + self.texts
    }

    /// Returns whether the column numbers the rows, from 0 or 1.
    pub(super) fn is_row_number(&self) -> bool {
        !self.is_broken && self.values() > 1
    }
}

/// Returns the profile of each of `width` columns.
pub(super) fn profile_columns(file: &ProfiledFile<'_>, width: usize) -> Result<Vec<ColumnProfile>, DatasetError> {
    let mut lines = file.open()?;
    let mut columns = vec![ColumnProfile::default(); width];
    while lines.next_line()? {
        for (column, profile) in columns.iter_mut().enumerate() {
            profile.add(lines.cell(column), lines.line());
        }
    }
    Ok(columns)
}

/// The distinct values of a column that can be classes.
#[derive(Default)]
pub(super) struct DistinctValues {
    pub(super) texts: BTreeSet<String>,
    /// The distinct whole numbers, up to one more than are still classes.
    pub(super) integers: BTreeSet<i64>,
    pub(super) has_fraction: bool,
    pub(super) has_text: bool,
}

/// Maximum number of distinct integers in a target that are still classes and not a quantity.
const NUMBERED_CLASSES_MAX: usize = 100;

impl DistinctValues {
    /// Returns whether the values are too many to be the names of classes.
    pub(super) fn is_too_many(&self) -> bool {
        self.texts.len() > TABLE_CLASSES_MAX
    }

    /// Returns whether its whole numbers are too many to be classes.
    pub(super) fn is_quantity(&self) -> bool {
        self.integers.len() > NUMBERED_CLASSES_MAX
    }

    /// Adds a cell, and returns the bytes that this takes.
    fn add(&mut self, cell: &str) -> usize {
        match (cell.parse::<i64>(), cell.parse::<f64>()) {
            (Ok(number), _) if !self.is_quantity() => drop(self.integers.insert(number)),
            (Ok(_), _) => {}
            (Err(_), Ok(_)) => self.has_fraction = true,
            (Err(_), Err(_)) => self.has_text = true,
        }
        if self.is_too_many() || self.texts.contains(cell) {
            return 0;
        }
        self.texts.insert(cell.to_owned());
        cell.len() + size_of::<String>()
    }
}

/// Returns the distinct values of these columns, in their order.
///
/// # Errors
/// Returns `TooLarge` if they take too much memory; the errors of reading the file.
pub(super) fn distinct_values(file: &ProfiledFile<'_>, columns: &[usize]) -> Result<Vec<DistinctValues>, DatasetError> {
    let mut lines = file.open()?;
    let mut distinct: Vec<DistinctValues> = columns.iter().map(|_| DistinctValues::default()).collect();
    let mut bytes = 0;
    while lines.next_line()? {
        for (values, column) in distinct.iter_mut().zip(columns) {
            let cell = lines.cell(*column);
            if !is_missing_marker(cell) {
                bytes += values.add(cell);
            }
        }
        if bytes > TABLE_CLASSES_BYTES_MAX {
            let what = format!("{}: the different texts of its columns", file.file);
            return Err(DatasetError::TooLarge { what, max: TABLE_CLASSES_BYTES_MAX as u64, unit: "bytes" });
        }
    }
    Ok(distinct)
}
