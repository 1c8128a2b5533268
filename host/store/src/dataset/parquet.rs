//! Imports Parquet files: one field per column, whose values are numbers, texts, bytes or lists of numbers of one
//! length.
//!
//! A file is a split by its name, and a single file is `train`. Numbered files (`train-00000-of-00002`) are
//! concatenated into one split. Footers and page headers are parsed here, because memory is allocated by their sizes
//! and they can be hostile. The crate `parquet` decodes only the values of a page, because its readers of whole files
//! trust them. A row group is read column by column, one page at a time.

use std::path::Path;
use std::sync::Arc;

use super::description::ColumnFilesDescription;
use super::draft::DatasetDraft;
use super::source::list_files;
use super::staging::StagingArea;
use super::table::{TableBuilder, TableFormat, check_items, read_table};
use crate::error::{DatasetError, StoreError};
use crate::limits::PARQUET_EXPANSION_MAX;
use crate::regular_file;

mod column;
mod footer;
mod header;
mod pages;
mod schema;
mod thrift;

use column::ColumnChunkSource;

static FORMAT: TableFormat = TableFormat {
    name: "Parquet",
    pattern: "NAME.parquet",
    supported: "integers, floats, truth values, dates, strings, bytes of fixed length, images and lists of numbers are \
                read",
};

/// Returns whether the folder contains such files.
pub(super) fn detect(folder: &Path) -> Result<bool, DatasetError> {
    Ok(!list_files(folder, "parquet")?.is_empty())
}

/// Reads the folder's files: the fields of the description, or all.
pub(super) fn read(
    staging: &StagingArea<'_>,
    folder: &Path,
    description: &ColumnFilesDescription,
) -> Result<DatasetDraft, DatasetError> {
    read_table(staging, list_files(folder, "parquet")?, description, &FORMAT, append_file)
}

/// Appends a file's rows after the `items` of earlier files, and returns the number of rows.
fn append_file(table: &mut TableBuilder<'_>, path: &Path, items: u64) -> Result<u64, DatasetError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let malformed = |reason: String| DatasetError::Malformed { file: name.clone(), reason };
    if name.ends_with(".gz") {
        return Err(malformed("Parquet files are compressed inside; unpack it".to_owned()));
    }
    let file = regular_file::open(path).map_err(StoreError::io(path))?;
    let length = file.metadata().map_err(StoreError::io(path))?.len();
    let footer = footer::read_footer(&file).map_err(malformed)?;
    // The footer's parser has checked that the sum does not overflow.
    check_items(&name, items, footer.groups.iter().map(|group| group.rows).sum())?;
    let schema: Vec<_> = footer.leaves.iter().map(|leaf| &leaf.column).collect();
    let places = table.locate_columns(&name, &schema, footer.features.as_deref())?;
    let maxima = table.bytes_limits(length.saturating_mul(PARQUET_EXPANSION_MAX));
    let staging = table.staging;
    let mut held = table.stored_bytes();
    let mut rows = 0;
    for group in &footer.groups {
        for (at, place) in places.iter().enumerate() {
            let (chunk, leaf) = (&group.chunks[*place], &footer.leaves[*place]);
            let column = table.column(at);
            let more = chunk.values.checked_mul(column.kind.value_bytes() as u64);
            staging.check_size(&name, more.and_then(|more| more.checked_add(held)))?;
            let source = ColumnChunkSource {
                file: &file,
                leaf,
                chunk,
                rows: group.rows,
                before: rows,
                earlier: items,
                bytes_max: maxima[at],
                gathered: Arc::default(),
            };
            let begin = column.bytes();
            column::append_column_chunk(&source, column, |reason| leaf.column.refused(&name, reason))?;
            held = staging.check_size(&name, Some(held + (column.bytes() - begin)))?;
        }
        rows += group.rows;
    }
    Ok(rows)
}
