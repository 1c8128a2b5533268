//! Text files: a line for each item.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use saggar_tensor::{DType, Descriptor, Shape};

use super::describe::{TextFiles, check_field_names};
use super::ingest::{Draft, DraftColumn, check_size};
use super::source::{Source, named};
use super::upload::is_path;
use crate::error::DatasetError;
use crate::limits::TEXT_LINE_BYTES_MAX;

/// The field of a folder that has no description.
const FIELD: &str = "text";
/// The part that a folder's only file is.
const PART: &str = "train";

/// For each part, the file of each field.
type Parts = Vec<(String, BTreeMap<String, PathBuf>)>;

/// Whether the folder has text files.
pub(super) fn is_there(folder: &Path) -> Result<bool, DatasetError> {
    Ok(!texts(folder)?.is_empty())
}

/// Reads a folder without a description: a field `text`, and a part for each file. An only file is the part `train`.
pub(super) fn read(folder: &Path) -> Result<Draft, DatasetError> {
    let files = texts(folder)?;
    let part = |name: &str| if files.len() == 1 { PART.to_owned() } else { name.to_owned() };
    let parts = files.iter().map(|(name, path)| (part(name), BTreeMap::from([(FIELD.to_owned(), path.clone())])));
    columns(parts.collect(), String::new())
}

/// Reads the files that a description names: `uint8[longest line]` for each field, with zeros after the text.
pub(super) fn read_described(folder: &Path, text: &TextFiles) -> Result<Draft, DatasetError> {
    let wrong = |reason: String| DatasetError::Description { reason };
    let mut parts = Parts::new();
    for (part, files) in &text.parts {
        let mut fields = BTreeMap::new();
        for (field, file) in files {
            if !is_path(file) {
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
    columns(parts, text.description.clone())
}

/// The folder's text files by the names that parts get from them, in order.
fn texts(folder: &Path) -> Result<BTreeMap<String, PathBuf>, DatasetError> {
    named(folder, "txt")
}

/// The lines of all files as columns.
fn columns(parts: Parts, description: String) -> Result<Draft, DatasetError> {
    let mut lines: BTreeMap<String, Vec<Text>> = BTreeMap::new();
    let (mut splits, mut items) = (Vec::new(), 0);
    let mut held = 0;
    for (part, files) in parts {
        let mut first: Option<(String, u64)> = None;
        for (field, path) in files {
            let text = Text::read(&path, &mut held)?;
            let count = text.ends.len() as u64;
            let (other, expected) = first.get_or_insert_with(|| (text.file.clone(), count)).clone();
            if count != expected {
                return Err(DatasetError::CountMismatch { file: text.file, found: count, other, expected });
            }
            lines.entry(field).or_default().push(text);
        }
        let count = first.map_or(0, |(_, count)| count);
        splits.push((part, items, items + count));
        items += count;
    }
    let mut columns = Vec::with_capacity(lines.len());
    for (field, texts) in lines {
        held -= texts.iter().map(Text::held).sum::<u64>();
        let column = column(field, &texts, items, held)?;
        held += column.data.len() as u64;
        columns.push(column);
    }
    Ok(Draft { columns, splits, items, description })
}

/// Every line stretched to the longest. The other columns have `held` bytes.
fn column(name: String, texts: &[Text], items: u64, held: u64) -> Result<DraftColumn, DatasetError> {
    // A text has a line, and so a dataset has a text.
    let longest = texts.iter().max_by_key(|text| text.longest.0);
    let (width, place) = longest.map_or((1, String::new()), |text| {
        (text.longest.0.max(1), format!("{}: line {}, stretching all lines to it,", text.file, text.longest.1))
    });
    check_size(&place, items.checked_mul(width as u64).and_then(|bytes| bytes.checked_add(held)))?;
    let mut data = Vec::with_capacity(items as usize * width);
    for text in texts {
        let mut begin = 0;
        for &end in &text.ends {
            data.extend_from_slice(&text.bytes[begin..end]);
            data.resize(data.len() + width - (end - begin), 0);
            begin = end;
        }
    }
    let too_large = |_| DatasetError::TooLarge { what: place.clone(), max: 1 << 31, unit: "bytes a line" };
    let item = Descriptor::new(DType::U8, Shape::new([width]).map_err(too_large)?);
    Ok(DraftColumn { name, item, classes: Vec::new(), data })
}

/// The lines of a file, one after the other without their ends.
struct Text {
    file: String,
    bytes: Vec<u8>,
    /// Where each line ends.
    ends: Vec<usize>,
    /// Bytes of the longest line, and its number, from 1.
    longest: (usize, u64),
}

impl Text {
    /// Reads a file. All lines of the dataset so far take `held` bytes, to which its own are added.
    fn read(path: &Path, held: &mut u64) -> Result<Text, DatasetError> {
        let source = Source::open(path)?;
        let mut text = Text { file: source.name.clone(), bytes: Vec::new(), ends: Vec::new(), longest: (0, 0) };
        let mut reader = BufReader::new(source);
        let mut line = Vec::new();
        loop {
            line.clear();
            // One byte more than a line may have, its end besides.
            let mut bounded = reader.by_ref().take(TEXT_LINE_BYTES_MAX as u64 + 2);
            let read = bounded.read_until(b'\n', &mut line).map_err(|error| reader.get_ref().unreadable(&error))?;
            if read == 0 {
                break;
            }
            let before = text.held();
            text.push(&line)?;
            *held = check_size(&text.file, held.checked_add(text.held() - before))?;
        }
        if text.ends.is_empty() {
            return Err(DatasetError::Empty { file: text.file });
        }
        Ok(text)
    }

    /// Bytes that it takes in memory: a line that is empty takes some too.
    fn held(&self) -> u64 {
        (self.bytes.len() + size_of_val(self.ends.as_slice())) as u64
    }

    fn push(&mut self, line: &[u8]) -> Result<(), DatasetError> {
        let number = self.ends.len() as u64 + 1;
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let bad = |reason: String| DatasetError::BadText { file: self.file.clone(), line: number, reason };
        if line.len() > TEXT_LINE_BYTES_MAX {
            return Err(bad(format!("more than {TEXT_LINE_BYTES_MAX} bytes; break it into several lines")));
        }
        if let Err(error) = std::str::from_utf8(line) {
            return Err(bad(format!("byte {} of it is no UTF-8", error.valid_up_to())));
        }
        if let Some(at) = line.iter().position(|byte| *byte == 0) {
            return Err(bad(format!("byte {at} of it is 0, which marks the end of a text")));
        }
        self.bytes.extend_from_slice(line);
        self.ends.push(self.bytes.len());
        if line.len() > self.longest.0 {
            self.longest = (line.len(), number);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::DATASET_BYTES_MAX;

    #[test]
    fn lines_without_letters_take_memory_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "\n\nabc\n").unwrap();
        let mut held = 0;
        let text = Text::read(&path, &mut held).unwrap();
        assert_eq!((held, text.held()), (27, 27));
        let refused = |error: DatasetError| matches!(error, DatasetError::TooLarge { .. });
        assert!(refused(Text::read(&path, &mut (DATASET_BYTES_MAX - 26)).err().unwrap()));
        let other_columns = DATASET_BYTES_MAX - 8;
        assert!(refused(column("x".to_owned(), &[text], 3, other_columns).err().unwrap()));
    }
}
