//! Missing values: rows that are left out, and the values that take their place.

use std::path::Path;

use super::super::description::{DEFAULT_SPLIT, MissingPolicy, SplitAssigner};
use super::lines::CsvLineReader;
use super::plan::{TableField, TablePlan};
use crate::error::DatasetError;

/// Columns with missing values that are listed in notes.
const COLUMNS_NOTED: usize = 20;

/// Returns the first column that a field reads and that has no value in the current line.
pub(super) fn first_missing(plan: &TablePlan, lines: &CsvLineReader) -> Option<usize> {
    plan.fields
        .iter()
        .find_map(|field| field.columns.iter().copied().find(|column| field.is_missing(lines.cell(*column))))
}

/// What happens to the current line.
pub(super) enum RowDecision {
    /// It becomes an item.
    Keep,
    /// It is left out.
    Drop,
}

/// Decides about the current line by the plan's policy.
///
/// # Errors
/// Returns `MissingValue` if the policy refuses missing values.
pub(super) fn decide(plan: &TablePlan, lines: &CsvLineReader) -> Result<RowDecision, DatasetError> {
    let Some(column) = first_missing(plan, lines) else { return Ok(RowDecision::Keep) };
    match plan.missing {
        MissingPolicy::Refuse => Err(DatasetError::MissingValue {
            file: lines.file().to_owned(),
            line: lines.line(),
            column: column + 1,
            name: plan.column_name(column),
        }),
        MissingPolicy::Drop => Ok(RowDecision::Drop),
        MissingPolicy::Mean => {
            let is_target = |field: &&TableField| plan.target.is_some_and(|target| field.columns == [target]);
            let target = plan.fields.iter().find(is_target);
            let missing = target.is_some_and(|field| field.is_missing(lines.cell(field.columns[0])));
            Ok(if missing { RowDecision::Drop } else { RowDecision::Keep })
        }
    }
}

/// The number of rows that were left out, and the first of them.
#[derive(Default)]
pub(super) struct DroppedRows {
    count: u64,
    first_line: u64,
}

impl DroppedRows {
    /// Counts the current line.
    pub(super) fn add(&mut self, lines: &CsvLineReader) {
        if self.count == 0 {
            self.first_line = lines.line();
        }
        self.count += 1;
    }

    /// Returns a note, or `None` if there are no such rows.
    pub(super) fn note(&self, items: u64) -> Option<String> {
        let (count, total) = (self.count, self.count + items);
        let first = self.first_line;
        (count > 0).then(|| format!("{count} of {total} rows were dropped: values are missing (first in line {first})"))
    }
}

/// The values of a column that are counted: their sum, or how often each class occurs.
#[derive(Clone)]
enum ColumnStatistics {
    Numbers { sum: f64, count: u64 },
    Classes { counts: Vec<u64> },
}

/// The value that takes the place of missing ones in a column.
struct ColumnFill {
    /// The element.
    bytes: Vec<u8>,
    /// The value as text.
    text: String,
    /// The missing values.
    count: u64,
    first_line: u64,
}

/// The values that take the place of missing ones, for each column of each field.
pub(super) struct FillValues(Vec<Vec<Option<ColumnFill>>>);

impl FillValues {
    /// Reads the file and computes the means and most frequent classes over the rows of the split `train`, or over all
    /// rows if there is no such split. Rows that are held out do not count, because a model must not learn from them.
    ///
    /// # Errors
    /// The errors of reading the file; `Malformed` if a column has missing values only.
    pub(super) fn gather(path: &Path, plan: &TablePlan) -> Result<FillValues, DatasetError> {
        if plan.missing != MissingPolicy::Mean {
            return Ok(FillValues(Vec::new()));
        }
        let mut statistics: Vec<Vec<ColumnStatistics>> = plan.fields.iter().map(empty_statistics).collect();
        let mut missing: Vec<Vec<(u64, u64)>> =
            plan.fields.iter().map(|field| vec![(0, 0); field.columns.len()]).collect();
        let train = plan.shares.iter().position(|(name, _)| name == DEFAULT_SPLIT);
        let mut dealer = SplitAssigner::new(plan.shares.iter().map(|(_, share)| *share));
        let mut lines = plan.open(path)?;
        while lines.next_line()? {
            if let RowDecision::Drop = decide(plan, &lines)? {
                continue;
            }
            let split = dealer.next_split();
            let counts = train.is_none_or(|train| train == split);
            for (at, field) in plan.fields.iter().enumerate() {
                for (place, column) in field.columns.iter().enumerate() {
                    let cell = lines.cell(*column);
                    if field.is_missing(cell) {
                        let (count, first) = &mut missing[at][place];
                        *first = if *count == 0 { lines.line() } else { *first };
                        *count += 1;
                    } else if counts {
                        statistics[at][place].add(field, cell);
                    }
                }
            }
        }
        let fields = plan.fields.iter().zip(statistics).zip(missing);
        let fills = fields.map(|((field, statistics), missing)| {
            let columns = statistics.into_iter().zip(missing).zip(&field.columns);
            let fill = |((statistics, (count, first_line)), column): ((ColumnStatistics, (u64, u64)), &usize)| {
                if count == 0 {
                    return Ok(None);
                }
                let filled = statistics.fill(field).ok_or_else(|| no_value_error(plan, *column))?;
                Ok(Some(ColumnFill { bytes: filled.0, text: filled.1, count, first_line }))
            };
            columns.map(fill).collect::<Result<Vec<_>, DatasetError>>()
        });
        fills.collect::<Result<Vec<_>, _>>().map(FillValues)
    }

    /// Appends the value of a missing cell: that of the column at `place` in the field `field`.
    pub(super) fn append(&self, field: usize, place: usize, data: &mut Vec<u8>) -> Option<()> {
        let fill = self.0.get(field)?.get(place)?.as_ref()?;
        data.extend_from_slice(&fill.bytes);
        Some(())
    }

    /// Returns a note for each column with missing values.
    pub(super) fn notes(&self, plan: &TablePlan) -> Vec<String> {
        let columns = plan.fields.iter().flat_map(|field| &field.columns);
        let filled = columns.zip(self.0.iter().flatten()).filter_map(|(column, fill)| Some((*column, fill.as_ref()?)));
        let mut notes: Vec<String> = Vec::new();
        let mut more = 0;
        for (column, fill) in filled {
            if notes.len() == COLUMNS_NOTED {
                more += 1;
                continue;
            }
            let name = plan.column_name(column);
            notes.push(format!(
                "column {name}: {} missing values became {} (first in line {})",
                fill.count, fill.text, fill.first_line
            ));
        }
        if more > 0 {
            notes.push(format!("{more} more columns have missing values, which became their means"));
        }
        notes
    }
}

fn empty_statistics(field: &TableField) -> Vec<ColumnStatistics> {
    let empty = match field.classes.len() {
        0 => ColumnStatistics::Numbers { sum: 0.0, count: 0 },
        classes => ColumnStatistics::Classes { counts: vec![0; classes] },
    };
    vec![empty; field.columns.len()]
}

fn no_value_error(plan: &TablePlan, column: usize) -> DatasetError {
    let name = plan.column_name(column);
    let reason = format!("column {name} has no value in the rows of the part train, so it has no mean; leave it out");
    DatasetError::Malformed { file: plan.file.clone(), reason }
}

impl ColumnStatistics {
    /// Counts a cell. A cell that the field cannot contain is refused when its row is read.
    fn add(&mut self, field: &TableField, cell: &str) {
        match self {
            ColumnStatistics::Numbers { sum, count } => {
                if let Ok(value) = cell.parse::<f64>() {
                    *sum += value;
                    *count += 1;
                }
            }
            ColumnStatistics::Classes { counts } => {
                if let Some(class) = field.class_index(cell) {
                    counts[class] += 1;
                }
            }
        }
    }

    /// Returns the element that takes the place of a missing one, and its text. `None` if nothing was counted.
    fn fill(&self, field: &TableField) -> Option<(Vec<u8>, String)> {
        let (cell, text) = match self {
            ColumnStatistics::Numbers { count: 0, .. } => return None,
            ColumnStatistics::Numbers { sum, count } => {
                let mean = sum / *count as f64;
                // Adding zero makes a negative zero positive, which an unsigned type can contain.
                let rounded = if field.item.dtype.is_float() { mean } else { mean.round() + 0.0 };
                (rounded.to_string(), format!("their mean {rounded}"))
            }
            ColumnStatistics::Classes { counts } => {
                let most = counts.iter().max().copied().filter(|most| *most > 0)?;
                let class = counts.iter().position(|count| *count == most)?;
                (class.to_string(), format!("`{}`, the most frequent class", field.classes[class]))
            }
        };
        let mut bytes = Vec::new();
        if field.classes.is_empty() {
            field.append_cell(&cell, &mut bytes)?;
        } else {
            // By number: a class can be called like the number of another.
            let class = cell.parse::<u64>().ok()?;
            bytes.extend_from_slice(&class.to_le_bytes()[..field.item.dtype.bytes()]);
        }
        Some((bytes, text))
    }
}
