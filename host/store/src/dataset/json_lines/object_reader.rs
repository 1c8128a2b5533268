//! Reads the objects of a file of JSON lines, one bounded line at a time.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde_json::{Map, Value};

use super::super::source::SourceReader;
use crate::error::DatasetError;
use crate::limits::JSON_LINE_BYTES_MAX;

/// An object and its place.
pub(super) struct JsonObject {
    pub(super) file: String,
    /// The line, from 1.
    pub(super) line: u64,
    pub(super) members: Map<String, Value>,
}

impl JsonObject {
    /// Returns a member's value; `None` if it is absent or null.
    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.members.get(key).filter(|value| !value.is_null())
    }

    /// Returns the place of the object, for messages.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }

    /// Returns an error at this object.
    pub(super) fn error(&self, reason: String) -> DatasetError {
        DatasetError::BadText { file: self.file.clone(), line: self.line, reason }
    }
}

/// A reader of a file's objects.
pub(super) struct ObjectReader {
    file: String,
    lines: BufReader<SourceReader<'static>>,
    line: u64,
    text: Vec<u8>,
}

impl ObjectReader {
    /// Opens a file, plain or compressed.
    pub(super) fn open(path: &Path) -> Result<ObjectReader, DatasetError> {
        let source = SourceReader::open(path)?;
        Ok(ObjectReader { file: source.name.clone(), lines: BufReader::new(source), line: 0, text: Vec::new() })
    }

    /// Returns the next object, or `None` at the end. Empty lines are skipped.
    pub(super) fn next_object(&mut self) -> Result<Option<JsonObject>, DatasetError> {
        loop {
            self.text.clear();
            let mut line = Read::take(&mut self.lines, JSON_LINE_BYTES_MAX as u64 + 1);
            if let Err(error) = line.read_until(b'\n', &mut self.text) {
                return Err(self.lines.get_ref().read_error(&error));
            }
            if self.text.is_empty() {
                return Ok(None);
            }
            self.line += 1;
            if self.text.len() > JSON_LINE_BYTES_MAX {
                let what = format!("{}: line {}", self.file, self.line);
                return Err(DatasetError::TooLarge { what, max: JSON_LINE_BYTES_MAX as u64, unit: "bytes" });
            }
            if !self.text.trim_ascii().is_empty() {
                break;
            }
        }
        let (file, line) = (self.file.clone(), self.line);
        match serde_json::from_slice(&self.text) {
            Ok(members) => Ok(Some(JsonObject { file, line, members })),
            Err(error) => {
                let (text, column) = (error.to_string(), error.column());
                // Its line is that in the text of one line.
                let text = text.rsplit_once(" at line ").map_or(&*text, |(text, _)| text);
                let reason = format!("column {column}: expected one JSON object on each line: {text}");
                Err(DatasetError::BadText { file, line, reason })
            }
        }
    }
}
