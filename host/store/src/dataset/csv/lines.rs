//! Reads the lines of a CSV file: bounded records, one number of columns, UTF-8.

use std::io::{self, Read};
use std::path::Path;

use super::super::source::SourceReader;
use crate::error::DatasetError;
use crate::limits::CSV_LINE_BYTES_MAX;

/// Characters that separate cells, in the order in which they are preferred.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// Returns the character that separates the cells of a file: the most frequent candidate in the first line, outside
/// quotes.
///
/// # Errors
/// Returns `BadEncoding` if the file is not a text in UTF-8 or ASCII; the errors of reading the file.
pub(super) fn detect_delimiter(path: &Path, file: &str) -> Result<u8, DatasetError> {
    let begin = SourceReader::open(path)?.take_up_to(CSV_LINE_BYTES_MAX as u64)?;
    let wide = [&b"\xff\xfe"[..], b"\xfe\xff"].iter().any(|mark| begin.starts_with(mark));
    let line = begin.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let zero = line.iter().position(|byte| *byte == 0);
    if wide || zero.is_some() {
        let encoding = if wide { "the text is UTF-16" } else { "a zero byte, as in UTF-16" };
        let reason = format!("{encoding}, and UTF-8 is read; {}", conversion_hint(file, "UTF-16"));
        let column = line[..zero.unwrap_or(0)].iter().filter(|byte| DELIMITERS.contains(byte)).count() + 1;
        return Err(DatasetError::BadEncoding { file: file.to_owned(), line: 1, column, reason });
    }
    let mut counts = [0usize; DELIMITERS.len()];
    let mut is_quoted = false;
    for byte in line {
        is_quoted ^= *byte == b'"';
        if let (false, Some(at)) = (is_quoted, DELIMITERS.iter().position(|delimiter| delimiter == byte)) {
            counts[at] += 1;
        }
    }
    // The first of the most frequent ones.
    let most = (0..DELIMITERS.len()).rev().max_by_key(|at| counts[*at]).unwrap_or(0);
    Ok(DELIMITERS[most])
}

/// Returns the command that converts a file to UTF-8.
fn conversion_hint(file: &str, from: &str) -> String {
    let file = file.rsplit('/').next().unwrap_or(file);
    let plain = file.strip_suffix(".gz").unwrap_or(file);
    let stem = plain.rsplit_once('.').map_or(plain, |(stem, _)| stem);
    let unpack = if plain.len() < file.len() { format!("gunzip {file}; ") } else { String::new() };
    format!("convert it: {unpack}iconv -f {from} -t UTF-8 {plain} > {stem}-utf8.csv")
}

/// A reader of a file's lines.
pub(super) struct CsvLineReader {
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
    /// Opens a file. `header` skips its first line; every line must have `needed` columns, and as many as the first.
    pub(super) fn open(
        path: &Path,
        file: &str,
        delimiter: u8,
        header: bool,
        needed: usize,
    ) -> Result<CsvLineReader, DatasetError> {
        let source = LimitedRecords { source: SourceReader::open(path)?, record_bytes: 0 };
        let mut reader = csv::ReaderBuilder::new();
        reader.has_headers(header).flexible(true).delimiter(delimiter).trim(csv::Trim::All);
        Ok(CsvLineReader {
            file: file.to_owned(),
            reader: reader.from_reader(source),
            record: csv::ByteRecord::new(),
            line: 0,
            columns: None,
            needed,
        })
    }

    /// Returns the file's name.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// Returns the number of the current line, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Returns the line's cells as text.
    pub(super) fn cells(&self) -> Vec<String> {
        (0..self.record.len()).map(|column| self.cell(column).to_owned()).collect()
    }

    /// Returns a cell; empty if the line has fewer.
    pub(super) fn cell(&self, column: usize) -> &str {
        let cell = self.record.get(column).unwrap_or_default();
        std::str::from_utf8(cell).expect("checked when the line was read")
    }

    /// Advances to the next line. Returns `false` at the end of the file.
    pub(super) fn next_line(&mut self) -> Result<bool, DatasetError> {
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
        if !self.record.as_slice().is_ascii() {
            self.check_encoding()?;
        }
        Ok(true)
    }

    fn check_encoding(&self) -> Result<(), DatasetError> {
        let wrong = |cell: &[u8]| {
            let error = std::str::from_utf8(cell).err()?;
            cell.get(error.valid_up_to()).copied()
        };
        let Some((column, byte)) = self.record.iter().zip(1..).find_map(|(cell, at)| Some((at, wrong(cell)?))) else {
            return Ok(());
        };
        let hint = conversion_hint(&self.file, "LATIN1");
        let reason = format!("byte {byte:#04x} is not UTF-8; if the text is Latin-1 (Windows), {hint}");
        Err(DatasetError::BadEncoding { file: self.file.clone(), line: self.line, column, reason })
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
