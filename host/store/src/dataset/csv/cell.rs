//! Cells of a table: marks of missing values, and quotations in messages.

/// Characters of a cell that an error quotes.
const CELL_CHARS_MAX: usize = 40;

/// Returns whether a cell marks a missing value.
pub(super) fn is_missing_marker(cell: &str) -> bool {
    const MARKERS: [&str; 7] = ["", "?", "na", "n/a", "nan", "null", "none"];
    cell.len() <= 4 && MARKERS.iter().any(|marker| marker.eq_ignore_ascii_case(cell))
}

/// Returns the beginning of a cell, for messages.
pub(super) fn quoted_cell(cell: &str) -> String {
    cell.chars().take(CELL_CHARS_MAX).collect()
}
