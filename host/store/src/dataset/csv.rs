//! Imports CSV files: one line per item, fields as columns.
//!
//! If the description does not say whether the first line is a header, the line after it decides. Without fields in the
//! description, they are inferred from the columns.

mod cell;
mod header;
mod infer;
mod lines;
mod missing;
mod plan;
mod profile;
mod values;

use std::path::Path;

use super::description::{CsvDescription, check_field_names};
use super::draft::{DatasetDraft, DraftColumn};
use super::source::list_files;
use super::split::reorder_by_split;
use super::staging::StagingArea;
use super::upload::is_relative_file_path;
use crate::error::DatasetError;
use missing::{DroppedRows, FillValues, RowDecision};
use plan::TablePlan;

/// Returns whether the folder has CSV files.
pub(super) fn detect(folder: &Path) -> Result<bool, DatasetError> {
    Ok(!list_files(folder, "csv")?.is_empty())
}

/// Reads a CSV file as described. Items are ordered by split, and within a split as in the file.
///
/// # Errors
/// Returns `Table` if there are several files, or their meaning cannot be inferred; errors that name a position in the
/// file or a key of the description.
pub(super) fn read(
    staging: &StagingArea<'_>,
    folder: &Path,
    text: &CsvDescription,
) -> Result<DatasetDraft, DatasetError> {
    text.check_keys()?;
    let file = find_table_file(folder, text)?;
    let path = folder.join(&file);
    let delimiter = match text.delimiter.map(u8::try_from) {
        Some(Ok(delimiter)) => delimiter,
        _ => lines::detect_delimiter(&path, &file)?,
    };
    let plan = if text.fields.is_empty() {
        infer::infer_plan(&path, &file, delimiter, text)?
    } else {
        check_field_names(text.fields.iter().map(|field| field.name.as_str()))?;
        TablePlan::from_fields(&path, &file, delimiter, text)?
    };
    let draft = read_rows(staging, &path, plan)?;
    Ok(DatasetDraft { description: text.description.clone(), ..draft })
}

/// Returns the described file, or the folder's only CSV file.
fn find_table_file(folder: &Path, text: &CsvDescription) -> Result<String, DatasetError> {
    if let Some(file) = &text.file {
        if !is_relative_file_path(file) {
            return Err(DatasetError::BadPath { path: file.clone() });
        }
        if !folder.join(file).is_file() {
            let (file, needed_by) = (file.clone(), "dataset.json".to_owned());
            return Err(DatasetError::MissingFile { file, needed_by });
        }
        return Ok(file.clone());
    }
    let found = list_files(folder, "csv")?;
    let names = found.values().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
    let names: Vec<String> = names.collect();
    match &names[..] {
        [] => {
            let (file, needed_by) = ("NAME.csv".to_owned(), "dataset.json".to_owned());
            Err(DatasetError::MissingFile { file, needed_by })
        }
        [file] => Ok(file.clone()),
        [..] => Err(infer::several_files_error(&names)),
    }
}

/// Reads the rows of a file.
fn read_rows(staging: &StagingArea<'_>, path: &Path, plan: TablePlan) -> Result<DatasetDraft, DatasetError> {
    let fills = FillValues::gather(path, &plan)?;
    let mut lines = plan.open(path)?;
    let writers = plan.fields.iter().map(|_| staging.writer(plan.fields.len()));
    let mut columns = writers.collect::<Result<Vec<_>, _>>()?;
    let (mut count, mut bytes, mut dropped) = (0, 0, DroppedRows::default());
    let mut value = Vec::new();
    while lines.next_line()? {
        if let RowDecision::Drop = missing::decide(&plan, &lines)? {
            dropped.add(&lines);
            continue;
        }
        count += 1;
        for (at, (field, writer)) in plan.fields.iter().zip(&mut columns).enumerate() {
            bytes = staging.check_size(&plan.file, Some(bytes + field.item.bytes() as u64))?;
            value.clear();
            for (place, column) in field.columns.iter().enumerate() {
                let cell = lines.cell(*column);
                let appended = if field.is_missing(cell) {
                    fills.append(at, place, &mut value)
                } else {
                    field.append_cell(cell, &mut value)
                };
                appended.ok_or_else(|| field.bad_value(&lines, *column))?;
            }
            writer.push(&value)?;
        }
    }
    if count == 0 {
        return Err(match dropped.note(0) {
            Some(note) => DatasetError::Malformed { file: plan.file, reason: format!("no items: {note}") },
            None => DatasetError::Empty { file: plan.file },
        });
    }
    let notes = [dropped.note(count)].into_iter().flatten().chain(fills.notes(&plan));
    let notes: Vec<String> = plan.notes.iter().cloned().chain(notes).collect();
    let mut drafts = Vec::with_capacity(columns.len());
    for (field, writer) in plan.fields.into_iter().zip(columns) {
        let (name, item, classes, data) = (field.name, field.item, field.classes, writer.finish()?);
        drafts.push(DraftColumn { name, item, classes, data });
    }
    let splits = reorder_by_split(staging, &mut drafts, &plan.shares, count)?;
    Ok(DatasetDraft { columns: drafts, splits, items: count, description: String::new(), notes })
}
