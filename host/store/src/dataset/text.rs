//! Imports text files: one line per item.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use saggar_tensor::{DType, Descriptor, Shape};

use super::description::{DEFAULT_SPLIT, TextFilesDescription, check_field_names};
use super::draft::{DatasetDraft, DraftColumn};
use super::source::{SourceReader, list_files};
use super::staging::StagingArea;
use super::upload::is_relative_file_path;
use crate::error::DatasetError;
use crate::limits::{INGEST_BUFFER_BYTES_MAX, TEXT_LINE_BYTES_MAX};

/// The field of a folder without a description.
const DEFAULT_FIELD: &str = "text";

/// For each split, the file of each field.
type TextFilesBySplit = Vec<(String, BTreeMap<String, PathBuf>)>;

/// Returns whether the folder contains text files.
pub(super) fn detect(folder: &Path) -> Result<bool, DatasetError> {
    Ok(!list_text_files(folder)?.is_empty())
}

/// Reads a folder without a description: a field `text`, and a split per file. A single file is the split `train`.
pub(super) fn read(staging: &StagingArea<'_>, folder: &Path) -> Result<DatasetDraft, DatasetError> {
    let files = list_text_files(folder)?;
    let part = |name: &str| if files.len() == 1 { DEFAULT_SPLIT.to_owned() } else { name.to_owned() };
    let parts =
        files.iter().map(|(name, path)| (part(name), BTreeMap::from([(DEFAULT_FIELD.to_owned(), path.clone())])));
    build_columns(staging, &parts.collect(), String::new())
}

/// Reads the files that a description names: `uint8[longest line]` per field, padded with zeros.
pub(super) fn read_described(
    staging: &StagingArea<'_>,
    folder: &Path,
    text: &TextFilesDescription,
) -> Result<DatasetDraft, DatasetError> {
    let wrong = |reason: String| DatasetError::Description { reason };
    let mut parts = TextFilesBySplit::new();
    for (part, files) in &text.parts {
        let mut fields = BTreeMap::new();
        for (field, file) in files {
            if !is_relative_file_path(file) {
                return Err(DatasetError::BadPath { path: file.clone() });
            }
            let path = folder.join(file);
            if !path.is_file() {
                return Err(DatasetError::MissingFile { file: file.clone(), needed_by: "dataset.json".to_owned() });
            }
            fields.insert(field.clone(), path);
        }
        parts.push((part.clone(), fields));
    }
    let Some((first, fields)) = parts.first() else {
        return Err(wrong("`parts` is empty; expected {\"train\": {\"text\": \"FILE\"}}".to_owned()));
    };
    check_field_names(fields.keys().map(String::as_str))?;
    if let Some((other, _)) = parts.iter().find(|(_, other)| !other.keys().eq(fields.keys())) {
        return Err(wrong(format!("part {other} has other fields than part {first}; every part has the same")));
    }
    build_columns(staging, &parts, text.description.clone())
}

/// Returns the folder's text files by split name, in order.
fn list_text_files(folder: &Path) -> Result<BTreeMap<String, PathBuf>, DatasetError> {
    list_files(folder, "txt")
}

/// The size that the lines of a field need: each is padded to the longest.
#[derive(Default)]
struct TextFieldExtent {
    count: u64,
    /// Bytes of the longest line; its position and file follow.
    longest: usize,
    line: u64,
    file: String,
}

impl TextFieldExtent {
    fn width(&self) -> u64 {
        self.longest.max(1) as u64
    }

    fn bytes(&self) -> Option<u64> {
        self.count.checked_mul(self.width())
    }

    /// Returns the position of the longest line, for messages.
    fn longest_line_location(&self) -> String {
        format!("{}: line {}, stretching all lines to it,", self.file, self.line)
    }
}

/// Returns the lines of all files as columns. Every file is read twice: to find the longest line, and to copy the
/// lines.
fn build_columns(
    staging: &StagingArea<'_>,
    parts: &TextFilesBySplit,
    description: String,
) -> Result<DatasetDraft, DatasetError> {
    let mut fields: BTreeMap<&str, TextFieldExtent> = BTreeMap::new();
    let (mut splits, mut items) = (Vec::new(), 0);
    for (part, files) in parts {
        let mut first: Option<(String, u64)> = None;
        for (field, path) in files {
            let others = fields.iter().filter(|(name, _)| **name != field.as_str());
            let others = others.map(|(_, field)| field.bytes().unwrap_or(u64::MAX)).fold(0, u64::saturating_add);
            let (file, count) = measure_file(staging, path, fields.entry(field).or_default(), others)?;
            let (other, expected) = first.get_or_insert_with(|| (file.clone(), count)).clone();
            if count != expected {
                return Err(DatasetError::CountMismatch { file, found: count, other, expected });
            }
        }
        let count = first.map_or(0, |(_, count)| count);
        splits.push((part.clone(), items, items + count));
        items += count;
    }
    let mut columns = Vec::with_capacity(fields.len());
    for (name, field) in fields {
        let files = parts.iter().filter_map(|(_, files)| files.get(name));
        columns.push(build_column(staging, name, &field, files)?);
    }
    Ok(DatasetDraft { columns, splits, items, description, notes: Vec::new() })
}

/// Adds the lines of a file to the field's extent, next to other columns of `others` bytes. Returns the file's name and
/// its number of lines.
fn measure_file(
    staging: &StagingArea<'_>,
    path: &Path,
    field: &mut TextFieldExtent,
    others: u64,
) -> Result<(String, u64), DatasetError> {
    let mut lines = TextLineReader::open(path)?;
    let (before, bytes_max) = (field.count, staging.bytes_max());
    while let Some(line) = lines.next()? {
        let (length, number) = (line.text.len(), line.number);
        field.count += line.empty + 1;
        if length > field.longest || field.file.is_empty() {
            (field.longest, field.line, field.file) = (length, number, lines.source.name.clone());
        }
        let bytes = field.bytes().and_then(|bytes| bytes.checked_add(others));
        if bytes.is_none_or(|bytes| bytes > bytes_max) {
            staging.check_size(&field.longest_line_location(), bytes)?;
        }
    }
    let count = field.count - before;
    if count == 0 {
        return Err(DatasetError::Empty { file: lines.source.name });
    }
    Ok((lines.source.name, count))
}

/// Returns a column with every line padded to the longest.
fn build_column<'a>(
    staging: &StagingArea<'_>,
    name: &str,
    field: &TextFieldExtent,
    files: impl Iterator<Item = &'a PathBuf>,
) -> Result<DraftColumn, DatasetError> {
    let width = field.width();
    let mut data = staging.writer(1)?;
    for path in files {
        let mut lines = TextLineReader::open(path)?;
        while let Some(line) = lines.next()? {
            let Some(padding) = width.checked_sub(line.text.len() as u64) else {
                let (file, reason) = (lines.source.name, "it changed while it was read; send it again".to_owned());
                return Err(DatasetError::Malformed { file, reason });
            };
            data.push_zeros(line.empty.saturating_mul(width))?;
            data.push(line.text)?;
            data.push_zeros(padding)?;
        }
    }
    let data = data.finish()?;
    if Some(data.bytes()) != field.bytes() {
        let reason = "its files changed while they were read; send them again".to_owned();
        return Err(DatasetError::Malformed { file: format!("field {name}"), reason });
    }
    let too_large =
        |_| DatasetError::TooLarge { what: field.longest_line_location(), max: 1 << 31, unit: "bytes a line" };
    let item = Descriptor::new(DType::U8, Shape::new([width as usize]).map_err(too_large)?);
    Ok(DraftColumn { name: name.to_owned(), item, classes: Vec::new(), data })
}

/// A reader of a file's lines.
struct TextLineReader {
    source: SourceReader<'static>,
    /// Bytes read; those from `at` on are not processed yet.
    buffer: Vec<u8>,
    at: usize,
    is_at_end: bool,
    /// Number of lines before the next one.
    count: u64,
}

/// A line, preceded by empty lines.
struct TextLine<'a> {
    /// Number of empty lines before it.
    empty: u64,
    /// Its line number, from 1.
    number: u64,
    /// The text without the line end.
    text: &'a [u8],
}

impl TextLineReader {
    fn open(path: &Path) -> Result<TextLineReader, DatasetError> {
        let source = SourceReader::open(path)?;
        Ok(TextLineReader { source, buffer: Vec::new(), at: 0, is_at_end: false, count: 0 })
    }

    /// Returns the next line, or `None` at the end of the file.
    fn next(&mut self) -> Result<Option<TextLine<'_>>, DatasetError> {
        self.fill_buffer()?;
        let rest = &self.buffer[self.at..];
        if rest.is_empty() {
            return Ok(None);
        }
        // Runs of empty lines cost almost nothing to send, so they are counted at once and not one by one.
        let run = rest.iter().take_while(|byte| **byte == b'\n').count();
        if run > 1 {
            self.at += run;
            self.count += run as u64;
            return Ok(Some(TextLine { empty: run as u64 - 1, number: self.count, text: &[] }));
        }
        let length = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
        let line = self.at..self.at + length;
        self.at = line.end;
        self.count += 1;
        let text = check_line(&self.source.name, self.count, &self.buffer[line])?;
        Ok(Some(TextLine { empty: 0, number: self.count, text }))
    }

    /// Reads more unless the buffer certainly holds a whole line.
    fn fill_buffer(&mut self) -> Result<(), DatasetError> {
        // One byte more than the maximum line, plus its line end.
        const LINE: usize = TEXT_LINE_BYTES_MAX + 3;
        if self.buffer.len() - self.at >= LINE || self.is_at_end {
            return Ok(());
        }
        self.buffer.drain(..self.at);
        self.at = 0;
        let wanted = INGEST_BUFFER_BYTES_MAX as u64;
        let read = Read::take(&mut self.source, wanted).read_to_end(&mut self.buffer);
        let read = read.map_err(|error| self.source.read_error(&error))?;
        self.is_at_end = (read as u64) < wanted;
        Ok(())
    }
}

/// Returns a line without its end if it is valid as an item.
fn check_line<'a>(file: &str, number: u64, line: &'a [u8]) -> Result<&'a [u8], DatasetError> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let bad = |reason: String| DatasetError::BadText { file: file.to_owned(), line: number, reason };
    if line.len() > TEXT_LINE_BYTES_MAX {
        return Err(bad(format!("more than {TEXT_LINE_BYTES_MAX} bytes; break it into several lines")));
    }
    if let Err(error) = std::str::from_utf8(line) {
        return Err(bad(format!("byte {} of it is not valid UTF-8", error.valid_up_to())));
    }
    if let Some(at) = line.iter().position(|byte| *byte == 0) {
        return Err(bad(format!("byte {at} of it is 0, which marks the end of a text")));
    }
    Ok(line)
}
