//! Imports CSV files: one line per item, fields as ranges of columns.
//!
//! If the description does not say whether the first line is a header, the line after it decides.

mod infer;

use std::io::{self, Read};
use std::path::Path;

use saggar_tensor::DType;

use super::description::{CsvDescription, CsvFieldDescription, check_field_names};
use super::draft::{DatasetDraft, DraftColumn};
use super::source::{SourceReader, list_files};
use super::split::reorder_by_split;
use super::staging::StagingArea;
use super::upload::is_relative_file_path;
use crate::error::DatasetError;
use crate::limits::CSV_LINE_BYTES_MAX;

/// Returns whether the folder has CSV files.
pub(super) fn detect(folder: &Path) -> Result<bool, DatasetError> {
    Ok(!list_files(folder, "csv")?.is_empty())
}

/// Reads the folder's only CSV file, which has no description.
///
/// # Errors
/// Returns `Table` if there are several files, or their meaning cannot be inferred; the errors of [`read`].
pub(super) fn read_undescribed(staging: &StagingArea<'_>, folder: &Path) -> Result<DatasetDraft, DatasetError> {
    let found = list_files(folder, "csv")?;
    let names = found.values().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
    let names: Vec<String> = names.collect();
    let [file] = &names[..] else { return Err(infer::several_files_error(&names)) };
    let text = infer::infer_description(&folder.join(file), file)?;
    read(staging, folder, &text)
}

/// Reads the described file. Items are ordered by split, and within a split as in the file.
pub(super) fn read(
    staging: &StagingArea<'_>,
    folder: &Path,
    text: &CsvDescription,
) -> Result<DatasetDraft, DatasetError> {
    check_field_names(text.fields.iter().map(|field| field.name.as_str()))?;
    let shares = text.split_shares()?;
    let items = text.fields.iter().map(CsvFieldDescription::item_descriptor).collect::<Result<Vec<_>, _>>()?;
    let path = folder.join(&text.file);
    if !is_relative_file_path(&text.file) {
        return Err(DatasetError::BadPath { path: text.file.clone() });
    }
    if !path.is_file() {
        let (file, needed_by) = (text.file.clone(), "dataset.json".to_owned());
        return Err(DatasetError::MissingFile { file, needed_by });
    }
    let header = match text.header {
        Some(header) => header,
        None => has_header(&path, text)?,
    };
    let needed = text.fields.iter().map(|field| field.columns.1).max().unwrap_or(0);
    let mut lines = CsvLineReader::open(&path, &text.file, header, needed)?;
    let mut columns = items.iter().map(|_| staging.writer(items.len())).collect::<Result<Vec<_>, _>>()?;
    let (mut count, mut bytes) = (0, 0);
    let mut value = Vec::new();
    while lines.next_line()? {
        count += 1;
        for ((field, item), column) in text.fields.iter().zip(&items).zip(&mut columns) {
            bytes = staging.check_size(&text.file, Some(bytes + item.bytes() as u64))?;
            value.clear();
            lines.append(field, item.dtype, &mut value)?;
            column.push(&value)?;
        }
    }
    if count == 0 {
        return Err(DatasetError::Empty { file: text.file.clone() });
    }
    let mut drafts = Vec::with_capacity(columns.len());
    for ((field, item), column) in text.fields.iter().zip(items).zip(columns) {
        let (name, classes, data) = (field.name.clone(), field.classes.clone(), column.finish()?);
        drafts.push(DraftColumn { name, item, classes, data });
    }
    let splits = reorder_by_split(staging, &mut drafts, &shares, count)?;
    Ok(DatasetDraft { columns: drafts, splits, items: count, description: text.description.clone() })
}

/// Returns whether the first line of a described file is a header.
fn has_header(path: &Path, text: &CsvDescription) -> Result<bool, DatasetError> {
    let mut lines = CsvLineReader::open(path, &text.file, false, 0)?;
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
        text.fields.iter().filter(|field| !field.classes.is_empty()).any(|field| {
            (field.columns.0..field.columns.1).any(|at| line.get(at).is_some_and(|cell| field.classes.contains(cell)))
        })
    };
    Ok(!is_class(&first) && (is_header(&first, &second) || is_class(&second)))
}

/// Returns whether a line is a header: some cells are not numbers where the next line has numbers, and no cell is a
/// number where the next line has none.
fn is_header(first: &[String], second: &[String]) -> bool {
    let is_number = |cell: &String| cell.parse::<f64>().is_ok();
    let mut pairs = first.iter().zip(second);
    !first.iter().any(is_number) && pairs.any(|(name, value)| !is_number(name) && is_number(value))
}

/// Maximum number of classes that an error lists.
const CLASSES_NAMED: usize = 10;

/// A reader of a file's lines.
struct CsvLineReader {
    file: String,
    reader: csv::Reader<LimitedRecords>,
    record: csv::ByteRecord,
    line: u64,
    /// Number of columns of the first line; every line must have as many.
    columns: Option<usize>,
    /// Number of columns that the fields require.
    needed: usize,
}

impl CsvLineReader {
    fn open(path: &Path, file: &str, header: bool, needed: usize) -> Result<CsvLineReader, DatasetError> {
        let source = LimitedRecords { source: SourceReader::open(path)?, record_bytes: 0 };
        let reader =
            csv::ReaderBuilder::new().has_headers(header).flexible(true).trim(csv::Trim::All).from_reader(source);
        Ok(CsvLineReader {
            file: file.to_owned(),
            reader,
            record: csv::ByteRecord::new(),
            line: 0,
            columns: None,
            needed,
        })
    }

    /// Returns the line's cells as text.
    fn cells(&self) -> Vec<String> {
        self.record.iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect()
    }

    /// Returns a cell; empty if the line has fewer.
    fn cell(&self, column: usize) -> String {
        self.record.get(column).map_or_else(String::new, |cell| String::from_utf8_lossy(cell).into_owned())
    }

    /// Advances to the next line. Returns `false` at the end of the file.
    fn next_line(&mut self) -> Result<bool, DatasetError> {
        self.reader.get_mut().record_bytes = 0;
        let more = self.reader.read_byte_record(&mut self.record);
        let more = more.map_err(|error| self.read_error(&error))?;
        if !more {
            return Ok(false);
        }
        self.line = self.record.position().map_or(0, csv::Position::line);
        let found = self.record.len();
        let expected = *self.columns.get_or_insert(found.max(self.needed));
        if found != expected {
            let (file, line) = (self.file.clone(), self.line);
            return Err(DatasetError::BadLine { file, line, found, expected });
        }
        Ok(true)
    }

    fn read_error(&self, error: &csv::Error) -> DatasetError {
        let source = &self.reader.get_ref().source;
        match error.kind() {
            csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => DatasetError::TooLarge {
                what: format!("{}: the record after line {}", self.file, self.line),
                max: CSV_LINE_BYTES_MAX as u64,
                unit: "bytes",
            },
            csv::ErrorKind::Io(error) => source.read_error(error),
            _ => source.read_error(&io::Error::other(error.to_string())),
        }
    }

    /// Appends the line's values of a field.
    fn append(&self, field: &CsvFieldDescription, dtype: DType, data: &mut Vec<u8>) -> Result<(), DatasetError> {
        for column in field.columns.0..field.columns.1 {
            let value = &self.record[column];
            let appended = std::str::from_utf8(value).ok().and_then(|text| {
                if let Some(maximum) = field.maximum {
                    append_scaled(text, maximum, data)
                } else if field.classes.is_empty() {
                    append_number(text, dtype, data)
                } else {
                    // Match the class by name, then by number if the file contains numbers.
                    let named = field.classes.iter().position(|class| class == text);
                    let class = named.or_else(|| text.parse().ok())?;
                    (class < field.classes.len()).then_some(())?;
                    append_number(&class.to_string(), dtype, data)
                }
            });
            appended.ok_or_else(|| self.bad_value(field, dtype, column, value))?;
        }
        Ok(())
    }

    fn bad_value(&self, field: &CsvFieldDescription, dtype: DType, column: usize, value: &[u8]) -> DatasetError {
        let expected = match (field.maximum, field.classes.len()) {
            (Some(maximum), _) => format!("a number from 0 to {maximum}"),
            (None, 0) => format!("a number of type {dtype}"),
            (None, classes) => {
                let names = field.classes.iter().take(CLASSES_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
                let more = if classes > CLASSES_NAMED { ", ..." } else { "" };
                format!("a class: {names}{more}, or its number from 0 to {}", classes - 1)
            }
        };
        DatasetError::BadValue {
            file: self.file.clone(),
            line: self.line,
            column: column + 1,
            value: String::from_utf8_lossy(value).chars().take(40).collect(),
            expected: format!("{expected} (field {})", field.name),
        }
    }
}

/// Maps `0..=maximum` to `0..=255`, rounding half up.
fn append_scaled(text: &str, maximum: u32, data: &mut Vec<u8>) -> Option<()> {
    let value: f64 = text.parse().ok()?;
    let maximum = f64::from(maximum);
    (0.0..=maximum).contains(&value).then_some(())?;
    data.push((value * 255.0 / maximum).round() as u8);
    Some(())
}

fn append_number(text: &str, dtype: DType, data: &mut Vec<u8>) -> Option<()> {
    fn bytes<T: std::str::FromStr, const N: usize>(
        text: &str,
        data: &mut Vec<u8>,
        to_bytes: impl Fn(T) -> [u8; N],
    ) -> Option<()> {
        data.extend_from_slice(&to_bytes(text.parse().ok()?));
        Some(())
    }
    match dtype {
        DType::F32 => bytes(text, data, f32::to_le_bytes),
        // The description refuses this type, because the standard library cannot parse 16-bit floats.
        DType::F16 => None,
        DType::I64 => bytes(text, data, i64::to_le_bytes),
        DType::U64 => bytes(text, data, u64::to_le_bytes),
        DType::I32 => bytes(text, data, i32::to_le_bytes),
        DType::U32 => bytes(text, data, u32::to_le_bytes),
        DType::I8 => bytes(text, data, i8::to_le_bytes),
        DType::U8 => bytes(text, data, u8::to_le_bytes),
    }
}

/// Fails before a record grows without limit, as in a small file that decompresses to gigabytes. Counts the record, the
/// empty lines before it and the reader's read-ahead. A quoted record can span any number of lines.
struct LimitedRecords {
    source: SourceReader<'static>,
    /// Bytes read since the previous record was complete.
    record_bytes: usize,
}

impl Read for LimitedRecords {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.record_bytes > CSV_LINE_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let n = self.source.read(buffer)?;
        self.record_bytes += n;
        Ok(n)
    }
}
