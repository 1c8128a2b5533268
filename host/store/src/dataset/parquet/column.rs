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

use super::super::description::ImageSize;
use super::super::staging::ColumnWriter;
use super::footer::ColumnChunk;
use super::nulls::NullRows;
use super::pages::BoundedPageReader;
use super::schema::{LeafColumn, ValueKind};
use super::thrift::ThriftResult;
use crate::error::DatasetError;
use crate::image_decoder::{self, DecodedImage};
use crate::image_resizer::resize_picture;
use crate::limits::{IMAGE_BYTES_MAX, TEXT_LINE_BYTES_MAX};

/// Bytes of the length prefix of a text.
pub(super) const LENGTH_BYTES: usize = size_of::<u32>();

/// The channels of images that are converted to another size.
const RGB: usize = 3;

/// Number of values that are decoded at once.
const BATCH_VALUES: usize = 1 << 16;

/// A column as read so far, over all files.
pub(super) struct ParquetColumn<'s> {
    pub(super) kind: ValueKind,
    /// For a list, its length, which the first row determines.
    pub(super) length: Option<usize>,
    /// Values, little-endian; each text is preceded by its length in [`LENGTH_BYTES`].
    pub(super) data: ColumnWriter<'s>,
    /// Bytes of the longest text.
    pub(super) longest: usize,
    /// Height, width and channels of its images, which the first one determines.
    pub(super) image: Option<[usize; 3]>,
    pub(super) options: ColumnOptions,
    /// The rows without a value, over all files. The column has zeros or an empty text there.
    pub(super) nulls: NullRows,
    /// The reason why the last value could not be written.
    failure: Option<DatasetError>,
}

/// How values are read that are missing or differ in size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ColumnOptions {
    /// Whether rows can have no value.
    pub(super) allows_nulls: bool,
    /// The size that images are converted to, in RGB.
    pub(super) resize: Option<ImageSize>,
}

impl<'s> ParquetColumn<'s> {
    pub(super) fn new(kind: ValueKind, data: ColumnWriter<'s>, options: ColumnOptions) -> ParquetColumn<'s> {
        let (image, nulls) = (None, NullRows::default());
        ParquetColumn { kind, length: None, data, longest: 0, image, options, nulls, failure: None }
    }

    /// Returns the bytes written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.data.bytes()
    }

    fn write(&mut self, bytes: &[u8]) -> ThriftResult<()> {
        self.data.push(bytes).map_err(|error| {
            let reason = error.to_string();
            self.failure = Some(error);
            reason
        })
    }
}

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
    column: &mut ParquetColumn<'_>,
    refused: impl FnOnce(String) -> DatasetError,
) -> std::result::Result<(), DatasetError> {
    // The decoder expects well-formed input and slices without checks in some places. Input that passes the checks of
    // pages must not end the program. After an error the column can be incomplete, but it is not used.
    let read = catch_unwind(AssertUnwindSafe(|| source.read(column)));
    let read = read.unwrap_or_else(|_| Err("its pages cannot be decoded; is the file damaged?".to_owned()));
    read.map_err(|reason| column.failure.take().unwrap_or_else(|| refused(reason)))
}

impl ColumnChunkSource<'_> {
    fn read(&self, column: &mut ParquetColumn<'_>) -> ThriftResult<()> {
        let pages = BoundedPageReader::new(self.file, self.leaf, self.chunk, Arc::clone(&self.gathered))?;
        let reader = get_column_reader(Arc::new(self.descriptor()?), Box::new(pages));
        let dtype = match column.kind {
            ValueKind::Number(dtype) => dtype,
            ValueKind::Bytes(_) | ValueKind::Text | ValueKind::Image => DType::U8,
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
                self.read_rows(reader, column, |value, column| push_image(value.as_ref(), column, self.bytes_max))
            }
            (ColumnReader::ByteArrayColumnReader(reader), _) => {
                self.read_rows(reader, column, |value, column| push_text(value.as_ref(), column, self.bytes_max))
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
        let path = ColumnPath::new(vec![self.leaf.name.clone()]);
        Ok(ColumnDescriptor::new(value, self.leaf.defined, i16::from(self.leaf.list.is_some()), path))
    }

    /// Reads all rows; `push_value` appends a value.
    fn read_rows<T: DataType>(
        &self,
        mut reader: ColumnReaderImpl<T>,
        column: &mut ParquetColumn<'_>,
        mut push: impl FnMut(&T::T, &mut ParquetColumn<'_>) -> ThriftResult<()>,
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
                    push_placeholder(column)?;
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
    fn count_nulls(&self, defined: &[i16], first: u64, column: &mut ParquetColumn<'_>) -> ThriftResult<usize> {
        let mut count = 0;
        for (at, level) in defined.iter().enumerate() {
            if *level >= self.leaf.defined {
                continue;
            }
            let row = first + at as u64;
            if column.kind == ValueKind::Image {
                return Err(null_value_error(row));
            }
            if !column.options.allows_nulls {
                return Err(format!(
                    "row {row}: a null; push with `--missing drop` to leave such rows out, or with `--missing mean`"
                ));
            }
            column.nulls.add(self.earlier + row - 1)?;
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
            let expected = *length.get_or_insert(found);
            if found == 0 {
                return Err(format!("row {row}: an empty list; a column's lists have numbers in them"));
            }
            if found != expected {
                return Err(format!(
                    "row {row}: a list of {found} numbers, and the first has {expected}; pad or cut them to one length"
                ));
            }
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

fn null_value_error(row: u64) -> String {
    format!("row {row}: a null; fill it or leave the row out")
}

/// Appends a value in place of a null: zeros, or an empty text.
fn push_placeholder(column: &mut ParquetColumn<'_>) -> ThriftResult<()> {
    let bytes = match column.kind {
        ValueKind::Number(dtype) => dtype.bytes(),
        ValueKind::Bytes(length) => length,
        ValueKind::Text => LENGTH_BYTES,
        ValueKind::Image => return Err("a null among images".to_owned()),
    };
    column.write(&vec![0; bytes])
}

/// Appends the pixels of an image. All have one size, or are converted to one.
fn push_image(bytes: &[u8], column: &mut ParquetColumn<'_>, bytes_max: u64) -> ThriftResult<()> {
    let mut image = image_decoder::decode(bytes, IMAGE_BYTES_MAX).map_err(|error| error.to_string())?;
    if let Some(ImageSize { width, height }) = column.options.resize {
        let pixels = resize_picture(&image, height, width, RGB);
        image = DecodedImage { height, width, channels: RGB, pixels };
    }
    let found = [image.height, image.width, image.channels];
    let expected = *column.image.get_or_insert(found);
    if found != expected {
        return Err(format!(
            "an image of {found:?} (height, width, channels), and the first has {expected:?}; `--resize WIDTHxHEIGHT` \
             converts all to one size"
        ));
    }
    column.write(&image.pixels)?;
    if column.bytes() > bytes_max {
        return Err(format!("its images have more than {bytes_max} bytes together; is the file damaged?"));
    }
    Ok(())
}

fn push_value<const N: usize>(column: &mut ParquetColumn<'_>, bytes: [u8; N]) -> ThriftResult<()> {
    column.write(&bytes)
}

/// Appends a text under the rules for text files: UTF-8, without zero bytes, which mark the end.
fn push_text(bytes: &[u8], column: &mut ParquetColumn<'_>, bytes_max: u64) -> ThriftResult<()> {
    if bytes.len() > TEXT_LINE_BYTES_MAX {
        return Err(format!("a text of more than {TEXT_LINE_BYTES_MAX} bytes; break it into several"));
    }
    if let Err(error) = std::str::from_utf8(bytes) {
        return Err(format!("byte {} of its text is not valid UTF-8", error.valid_up_to()));
    }
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        return Err(format!("byte {at} of its text is 0, which marks the end of a text"));
    }
    column.longest = column.longest.max(bytes.len());
    let length = u32::try_from(bytes.len()).expect("at most TEXT_LINE_BYTES_MAX");
    column.write(&length.to_le_bytes())?;
    column.write(bytes)?;
    if column.bytes() > bytes_max {
        return Err(format!("its texts have more than {bytes_max} bytes together; is the file damaged?"));
    }
    Ok(())
}
