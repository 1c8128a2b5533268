//! Whether the first line of a CSV file has the names of the columns.

use std::path::Path;

use super::super::description::{ColumnSelection, CsvDescription};
use super::lines::CsvLineReader;
use crate::error::DatasetError;

/// Returns whether a line is a header: some cells are not numbers where the next line has numbers, and no cell is a
/// number where the next line has none.
pub(super) fn is_header(first: &[String], second: &[String]) -> bool {
    let is_number = |cell: &String| cell.parse::<f64>().is_ok();
    let mut pairs = first.iter().zip(second);
    !first.iter().any(is_number) && pairs.any(|(name, value)| !is_number(name) && is_number(value))
}

/// Returns whether the first line of a described file is a header.
pub(super) fn has_header(path: &Path, file: &str, delimiter: u8, text: &CsvDescription) -> Result<bool, DatasetError> {
    let mut lines = CsvLineReader::open(path, file, delimiter, false, 0)?;
    if !lines.next_line()? {
        return Ok(false);
    }
    let first = lines.cells();
    // Reading the data refuses a line of another length.
    if !lines.next_line().unwrap_or(false) {
        return Ok(false);
    }
    let second = lines.cells();
    let is_class = |line: &[String]| {
        text.fields.iter().filter(|field| !field.classes.is_empty()).any(|field| match field.columns {
            ColumnSelection::Range(start, end) => {
                (start..end.min(line.len())).any(|at| field.classes.contains(&line[at]))
            }
            ColumnSelection::Names(_) => false,
        })
    };
    Ok(!is_class(&first) && (is_header(&first, &second) || is_class(&second)))
}
