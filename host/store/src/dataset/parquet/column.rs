//! Reads the values of a column: decodes a few rows at a time, checks them, and appends them.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parquet::basic::{Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::schema::types::{ColumnDescriptor, ColumnPath, Type};
use saggar_tensor::DType;

use super::super::table::{TableColumn, ValueKind, check_list_length, null_value_error};
use super::footer::ColumnChunk;
use super::pages::BoundedPageReader;
use super::schema::LeafColumn;
use super::thrift::ThriftResult;
use crate::error::DatasetError;

/// Number of values that are decoded at once.
const BATCH_VALUES: usize = 1 << 16;

/// A column of a row group to read.
pub(super) struct ColumnChunkSource<'a> {
    pub(super) file: &'a File,
    pub(super) leaf: &'a LeafColumn,
    pub(super) chunk: &'a ColumnChunk,
    /// Rows of the row group, and of those before it in the file.
    pub(super) rows: u64,
    pub(super) before: u64,
    /// Rows of earlier files.
    pub(super) earlier: u64,
    /// Limit on the bytes of the column after the row group is read.
    pub(super) bytes_max: u64,
    /// Values in pages passed to the decoder since it last returned rows.
    pub(super) gathered: Arc<AtomicU64>,
}

/// Appends the values of a row group. `refused` makes the error of an invalid file from a reason.
pub(super) fn append_column_chunk(
    source: &ColumnChunkSource<'_>,
    column: &mut TableColumn<'_>,
    refused: impl FnOnce(String) -> DatasetError,
) -> std::result::Result<(), DatasetError> {
    // The decoder expects well-formed input and slices without checks in some places. Input that passes the checks of
    // pages must not end the program. After an error the column can be incomplete, but it is not used.
    let read = catch_unwind(AssertUnwindSafe(|| source.read(column)));
    let read = read.unwrap_or_else(|_| Err("its pages cannot be decoded; is the file damaged?".to_owned()));
    read.map_err(|reason| column.take_failure().unwrap_or_else(|| refused(reason)))
}

impl ColumnChunkSource<'_> {
    fn read(&self, column: &mut TableColumn<'_>) -> ThriftResult<()> {
        let pages = BoundedPageReader::new(self.file, self.leaf, self.chunk, Arc::clone(&self.gathered))?;
        let reader = get_column_reader(Arc::new(self.descriptor()?), Box::new(pages));
        let dtype = match column.kind {
            ValueKind::Number(dtype) => dtype,
            ValueKind::Bytes(_) | ValueKind::Text | ValueKind::Image | ValueKind::Class => DType::U8,
        };
        let length = self.leaf.length;
        match (reader, dtype) {
            (ColumnReader::BoolColumnReader(reader), _) => {
                self.read_rows(reader, column, |value, column| push_value(column, [u8::from(*value)]))
            }
            (ColumnReader::Int32ColumnReader(reader), DType::I8) => self.read_rows(reader, column, |value, column| {
                push_value(column, i8::try_from(*value).map_err(|_| format!("{value} is no int8"))?.to_le_bytes())
            }),
            (ColumnReader::Int32ColumnReader(reader), DType::U8) => self.read_rows(reader, column, |value, column| {
                push_value(column, [u8::try_from(*value).map_err(|_| format!("{value} is no uint8"))?])
            }),
            (ColumnReader::Int32ColumnReader(reader), _) => {
                self.read_rows(reader, column, |value, column| push_value(column, value.to_le_bytes()))
            }
            (ColumnReader::Int64ColumnReader(reader), _) => {
                self.read_rows(reader, column, |value, column| push_value(column, value.to_le_bytes()))
            }
            (ColumnReader::FloatColumnReader(reader), _) => {
                self.read_rows(reader, column, |value, column| push_value(column, value.to_le_bytes()))
            }
            (ColumnReader::DoubleColumnReader(reader), _) => self.read_rows(reader, column, |value, column| {
                let rounded = *value as f32;
                if value.is_finite() && rounded.is_infinite() {
                    return Err(format!("{value:e} is too large for float32"));
                }
                push_value(column, rounded.to_le_bytes())
            }),
            (ColumnReader::FixedLenByteArrayColumnReader(reader), _) => {
                self.read_rows(reader, column, |value, column| {
                    let bytes: &[u8] = value.as_ref();
                    if bytes.len() != length {
                        return Err(format!("{} bytes, and every value has {length}", bytes.len()));
                    }
                    column.write(bytes)
                })
            }
            (ColumnReader::ByteArrayColumnReader(reader), _) if column.kind == ValueKind::Image => {
                self.read_rows(reader, column, |value, column| column.push_image(value.as_ref(), self.bytes_max))
            }
            (ColumnReader::ByteArrayColumnReader(reader), _) => {
                self.read_rows(reader, column, |value, column| column.push_text(value.as_ref(), self.bytes_max))
            }
            (ColumnReader::Int96ColumnReader(_), _) => Err("timestamps of 96 bits are not read".to_owned()),
        }
    }

    /// Returns the column's type and levels for the decoder, without its logical meaning.
    fn descriptor(&self) -> ThriftResult<ColumnDescriptor> {
        let length = match self.leaf.physical {
            Physical::FIXED_LEN_BYTE_ARRAY => self.leaf.length as i32,
            _ => -1,
        };
        let builder = Type::primitive_type_builder("value", self.leaf.physical);
        let builder = builder.with_repetition(Repetition::REQUIRED).with_length(length);
        let value = Arc::new(builder.build().map_err(|error| error.to_string())?);
        let path = ColumnPath::new(vec![self.leaf.column.name.clone()]);
        Ok(ColumnDescriptor::new(value, self.leaf.defined, i16::from(self.leaf.list.is_some()), path))
    }

    /// Reads all rows; `push_value` appends a value.
    fn read_rows<T: DataType>(
        &self,
        mut reader: ColumnReaderImpl<T>,
        column: &mut TableColumn<'_>,
        mut push: impl FnMut(&T::T, &mut TableColumn<'_>) -> ThriftResult<()>,
    ) -> ThriftResult<()> {
        let (mut defined, mut repeated, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let mut done = 0u64;
        loop {
            // Asking for one row too many detects extra rows. A list of unknown length can be long.
            let wide = match (self.leaf.list, column.length) {
                // One image at a time, because each can be as large as a page.
                (None, _) if column.kind == ValueKind::Image => BATCH_VALUES,
                (None, _) => 1,
                (Some(_), Some(length)) => length.max(1),
                (Some(_), None) => BATCH_VALUES,
            };
            let rows = (self.rows - done + 1).min((BATCH_VALUES / wide).max(1) as u64) as usize;
            let read = reader.read_records(rows, Some(&mut defined), Some(&mut repeated), &mut values);
            let (read, ..) = read.map_err(describe_error)?;
            self.gathered.store(0, Ordering::Relaxed);
            if read == 0 {
                break;
            }
            let first = self.before + done + 1;
            done += read as u64;
            if done > self.rows {
                return Err(format!("more than the {} rows of its row group", self.rows));
            }
            let expected = match self.leaf.list {
                None => read - self.count_nulls(&defined, first, column)?,
                Some(list) => {
                    self.check_list_lengths(&defined, &repeated, list, first, &mut column.length)?;
                    repeated.len()
                }
            };
            if values.len() != expected {
                return Err(format!("{} values after levels for {expected}; is the file damaged?", values.len()));
            }
            let length = column.length.unwrap_or(1);
            let has_nulls = expected < read && self.leaf.list.is_none();
            let mut next = values.iter();
            for at in 0..if has_nulls { read } else { values.len() } {
                if has_nulls && defined.get(at).is_some_and(|level| *level < self.leaf.defined) {
                    column.push_placeholder()?;
                    continue;
                }
                let Some(value) = next.next() else { break };
                let row = |reason| format!("row {}: {reason}", first + (at / length) as u64);
                push(value, column).map_err(row)?;
            }
            defined.clear();
            repeated.clear();
            values.clear();
        }
        if done < self.rows {
            return Err(format!("{done} rows in a row group of {}", self.rows));
        }
        Ok(())
    }

    /// Records the rows without a value, and returns their number. Refuses them if the column cannot have any.
    fn count_nulls(&self, defined: &[i16], first: u64, column: &mut TableColumn<'_>) -> ThriftResult<usize> {
        let mut count = 0;
        for (at, level) in defined.iter().enumerate() {
            if *level >= self.leaf.defined {
                continue;
            }
            column.add_null(first + at as u64, self.earlier)?;
            count += 1;
        }
        Ok(count)
    }

    /// Refuses lists that contain nulls or differ in length from the first one.
    fn check_list_lengths(
        &self,
        defined: &[i16],
        repeated: &[i16],
        list: i16,
        first: u64,
        length: &mut Option<usize>,
    ) -> ThriftResult<()> {
        let (mut row, mut at) = (first, 0);
        while at < repeated.len() {
            let end = repeated[at + 1..].iter().position(|level| *level == 0).map_or(repeated.len(), |it| at + 1 + it);
            let levels = defined.get(at..end).ok_or("its lists have other levels than its values")?;
            let found = match levels {
                [level] if *level < list - 1 => return Err(null_value_error(row)),
                [level] if *level < list => 0,
                levels if levels.iter().any(|level| *level < self.leaf.defined) => return Err(null_value_error(row)),
                levels => levels.len(),
            };
            check_list_length(row, found, length)?;
            (row, at) = (row + 1, end);
        }
        Ok(())
    }
}

/// Returns the text of a decoder's error. It also passes on the errors of the page reader.
fn describe_error(error: ParquetError) -> String {
    match error {
        ParquetError::General(reason) => reason,
        other => other.to_string(),
    }
}

fn push_value<const N: usize>(column: &mut TableColumn<'_>, bytes: [u8; N]) -> ThriftResult<()> {
    column.write(&bytes)
}
