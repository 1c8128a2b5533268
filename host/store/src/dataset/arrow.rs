//! Imports Arrow IPC files: the file format, which is version 2 of Feather, and the stream format, which the library
//! `datasets` of Hugging Face writes.
//!
//! Columns, splits, nulls and descriptions are those of Parquet files (`table`). Metadata is parsed here, because it is
//! untrusted and memory is allocated by its sizes. Buffers are read and decompressed piece by piece, so a record batch
//! can have any size.

use std::collections::BTreeMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::description::ColumnFilesDescription;
use super::draft::DatasetDraft;
use super::source::list_files;
use super::staging::StagingArea;
use super::table::{ColumnResult, DictionaryBudget, TableBuilder, TableColumn, TableFormat, check_items, read_table};
use crate::error::{DatasetError, StoreError};
use crate::limits::ARROW_EXPANSION_MAX;
use crate::regular_file;

mod batch;
mod buffers;
mod dictionary;
mod flatbuffer;
mod messages;
mod schema;
mod texts;
mod values;

use batch::RecordBatch;
use buffers::DecodeBudget;
use dictionary::DictionaryStore;
use messages::{ArrowMessage, MessageContent, MessageReader};
use schema::{ArrowColumn, ArrowSchema, ColumnStorage};
use values::BatchColumn;

/// The endings of such files.
const ENDINGS: [&str; 2] = ["arrow", "feather"];

static FORMAT: TableFormat = TableFormat {
    name: "Arrow",
    pattern: "NAME.arrow or NAME.feather",
    supported: "integers, floats, truth values, dates, strings, dictionaries of strings, bytes of fixed length, images \
                and lists of numbers are read",
};

/// Returns whether the folder contains such files.
pub(super) fn detect(folder: &Path) -> Result<bool, DatasetError> {
    Ok(!list_arrow_files(folder)?.is_empty())
}

/// Returns the folder's files by name, in order.
fn list_arrow_files(folder: &Path) -> Result<BTreeMap<String, PathBuf>, DatasetError> {
    let mut files = BTreeMap::new();
    for ending in ENDINGS {
        for (name, path) in list_files(folder, ending)? {
            if files.contains_key(&name) {
                let reason = format!("{name}.{} is there too; keep one of them", ENDINGS[0]);
                return Err(DatasetError::Malformed { file: format!("{name}.{ending}"), reason });
            }
            files.insert(name, path);
        }
    }
    Ok(files)
}

/// Reads the folder's files: the fields of the description, or all.
pub(super) fn read(
    staging: &StagingArea<'_>,
    folder: &Path,
    description: &ColumnFilesDescription,
) -> Result<DatasetDraft, DatasetError> {
    let mut budgets = ImportBudgets { decode: DecodeBudget::new(), class_names: DictionaryBudget::new() };
    read_table(staging, list_arrow_files(folder)?, description, &FORMAT, |table, path, items| {
        append_file(table, path, items, &mut budgets)
    })
}

/// What all files of an import may take together.
struct ImportBudgets {
    decode: DecodeBudget,
    class_names: DictionaryBudget,
}

/// Appends a file's rows after the `items` of earlier files, and returns the number of rows.
fn append_file(
    table: &mut TableBuilder<'_>,
    path: &Path,
    items: u64,
    budgets: &mut ImportBudgets,
) -> Result<u64, DatasetError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let malformed = |reason: String| DatasetError::Malformed { file: name.clone(), reason };
    if name.ends_with(".gz") {
        return Err(malformed("Arrow files are compressed inside; unpack it".to_owned()));
    }
    let file = regular_file::open(path).map_err(StoreError::io(path))?;
    let length = file.metadata().map_err(StoreError::io(path))?.len();
    budgets.decode.add_file(length);
    let (mut messages, schema) = MessageReader::open(&file, length).map_err(malformed)?;
    let columns: Vec<_> = schema.columns.iter().map(|column| &column.column).collect();
    let places = table.locate_columns(&name, &columns, schema.features.as_deref())?;
    let read = places.iter().map(|place| &schema.columns[*place]);
    let mut source = ArrowSource {
        file: &file,
        name: &name,
        maxima: table.bytes_limits(length.saturating_mul(ARROW_EXPANSION_MAX)),
        dictionaries: DictionaryStore::new(read),
        schema: &schema,
        places,
        items,
        rows: 0,
        budgets,
    };
    let is_stream = messages.is_stream();
    while let Some(message) = messages.next_message().map_err(malformed)? {
        match message.content().map_err(malformed)? {
            MessageContent::Dictionary(dictionary) => source
                .read_dictionary(&message, dictionary, is_stream)
                .map_err(|reason| malformed(format!("a dictionary: {reason}")))?,
            MessageContent::Batch(batch) => {
                let batch = RecordBatch::parse(&file, message.body, batch).map_err(malformed)?;
                source.append_batch(table, &batch)?;
            }
        }
    }
    Ok(source.rows)
}

/// A file that is being read.
struct ArrowSource<'a> {
    file: &'a File,
    name: &'a str,
    schema: &'a ArrowSchema,
    /// The column of the schema of each field.
    places: Vec<usize>,
    /// For each field the limit on the bytes of its column.
    maxima: Vec<u64>,
    dictionaries: DictionaryStore,
    /// Rows of earlier files.
    items: u64,
    /// Rows so far.
    rows: u64,
    budgets: &'a mut ImportBudgets,
}

impl ArrowSource<'_> {
    fn read_dictionary(
        &mut self,
        message: &ArrowMessage,
        table: flatbuffer::FlatTable<'_>,
        is_stream: bool,
    ) -> ColumnResult<()> {
        let Some(batch) = self.dictionaries.needed_batch(table)? else { return Ok(()) };
        let batch = RecordBatch::parse(self.file, message.body, batch)?;
        let (dictionaries, budget) = (&mut self.dictionaries, &mut self.budgets.decode);
        without_panic(|| dictionaries.read(table, &batch, is_stream, budget))
    }

    /// Appends the rows of a record batch, one column at a time.
    fn append_batch(&mut self, table: &mut TableBuilder<'_>, batch: &RecordBatch<'_>) -> Result<(), DatasetError> {
        let malformed = |reason: String| DatasetError::Malformed { file: self.name.to_owned(), reason };
        check_items(self.name, self.items + self.rows, batch.rows)?;
        let parts = batch.columns(self.schema.columns.iter().map(|column| column.counts));
        let parts = parts.map_err(|reason| malformed(format!("a record batch: {reason}")))?;
        if batch.rows == 0 {
            return Ok(());
        }
        let staging = table.staging;
        let mut held = table.stored_bytes();
        for at in 0..self.places.len() {
            let place = self.places[at];
            let schema = &self.schema.columns[place];
            let refused = |reason: String| schema.column.refused(self.name, reason);
            let column = table.column(at);
            let values = value_count(batch, schema, parts[place].node).map_err(refused)?;
            let more = values.checked_mul(column.kind.value_bytes() as u64);
            staging.check_size(self.name, more.and_then(|more| more.checked_add(held)))?;
            let source = BatchColumn {
                batch,
                field: at,
                parts: parts[place],
                before: self.rows,
                earlier: self.items,
                bytes_max: self.maxima[at],
            };
            let begin = column.bytes();
            let (dictionaries, budgets) = (&mut self.dictionaries, &mut *self.budgets);
            let read = without_panic(|| append_column(&source, schema, column, dictionaries, budgets));
            // After an error the column can be incomplete, but it is not used.
            read.map_err(|reason| column.take_failure().unwrap_or_else(|| refused(reason)))?;
            held = staging.check_size(self.name, Some(held + (column.bytes() - begin)))?;
        }
        self.rows += batch.rows;
        Ok(())
    }
}

/// Returns the number of values of a column in a record batch: those of its lists, or one in each row.
fn value_count(batch: &RecordBatch<'_>, column: &ArrowColumn, node: usize) -> ColumnResult<u64> {
    let rows = batch.node_length(node)?;
    if rows != batch.rows {
        return Err(format!("{rows} rows in a record batch of {}; is the file damaged?", batch.rows));
    }
    if column.column.is_list { batch.node_length(node + 1) } else { Ok(rows) }
}

fn append_column(
    source: &BatchColumn<'_, '_>,
    schema: &ArrowColumn,
    column: &mut TableColumn<'_>,
    dictionaries: &mut DictionaryStore,
    budgets: &mut ImportBudgets,
) -> ColumnResult<()> {
    let budget = &mut budgets.decode;
    match schema.storage {
        Some(ColumnStorage::Fixed(fixed)) => source.append_fixed(fixed, column, budget),
        Some(ColumnStorage::List(offsets, item)) => source.append_lists(offsets, item, column, budget),
        Some(ColumnStorage::FixedList(length, item)) => source.append_fixed_lists(length, item, column, budget),
        Some(ColumnStorage::Text(layout)) => source.append_texts(layout, column, budget),
        Some(ColumnStorage::Image { nodes, buffers, layout }) => {
            source.append_images(layout, (nodes, buffers), column, budget)
        }
        Some(ColumnStorage::Dictionary { id, index, .. }) => {
            source.append_classes((id, index), dictionaries, column, budgets)
        }
        None => Err("a column that is not read".to_owned()),
    }
}

/// Runs what reads buffers. The decompressors expect well-formed input in some places; a panic in them must not end the
/// program.
fn without_panic<T>(read: impl FnOnce() -> ColumnResult<T>) -> ColumnResult<T> {
    let read = catch_unwind(AssertUnwindSafe(read));
    read.unwrap_or_else(|_| Err("its buffers cannot be decompressed; is the file damaged?".to_owned()))
}
