//! Reads the items of a WebDataset archive, one at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use super::super::source::SourceReader;
use super::SamplePart;
use crate::error::DatasetError;
use crate::limits::UPLOAD_BYTES_MAX;

/// Bytes of a header with the long name of an entry.
const NAME_HEADER_BYTES_MAX: u64 = 64 << 10;
/// Different endings that are recorded.
const ENDINGS_MAX: usize = 1_000;
/// Bytes of an ending that is recorded.
const ENDING_BYTES_MAX: usize = 63;

/// An item: consecutive entries with one name.
pub(super) struct ArchiveSample {
    /// The archive.
    pub(super) file: String,
    /// The name of its entries, up to the first dot.
    key: String,
    /// The content of each part.
    pub(super) parts: BTreeMap<SamplePart, Vec<u8>>,
}

impl ArchiveSample {
    /// Returns an error about this item.
    pub(super) fn error(&self, reason: String) -> DatasetError {
        let key: String = self.key.chars().take(100).collect();
        DatasetError::Malformed { file: format!("{}/{key}", self.file), reason }
    }
}

/// A reader of an archive.
pub(super) struct SampleReader {
    source: SourceReader<'static>,
    ignored: BTreeSet<String>,
}

impl SampleReader {
    /// Opens an archive, plain or compressed with gzip.
    pub(super) fn open(path: &Path) -> Result<SampleReader, DatasetError> {
        Ok(SampleReader { source: SourceReader::open(path)?, ignored: BTreeSet::new() })
    }

    /// Returns the archive's name.
    pub(super) fn name(&self) -> &str {
        &self.source.name
    }

    /// Returns the endings of entries that mean no field.
    pub(super) fn ignored(self) -> BTreeSet<String> {
        self.ignored
    }

    /// Calls `each` with every item, in order. Directories and entries that begin with a dot are skipped.
    pub(super) fn for_each(
        &mut self,
        mut each: impl FnMut(ArchiveSample) -> Result<(), DatasetError>,
    ) -> Result<(), DatasetError> {
        let file = self.source.name.clone();
        let broken = |error: std::io::Error| DatasetError::Malformed {
            file: file.clone(),
            reason: format!("the archive cannot be read: {error}"),
        };
        let mut archive = tar::Archive::new(Read::take(&mut self.source, UPLOAD_BYTES_MAX));
        let mut sample: Option<ArchiveSample> = None;
        let mut long_name = None;
        // The crate would read long names of any length into memory.
        for entry in archive.entries().map_err(broken)?.raw(true) {
            let mut entry = entry.map_err(broken)?;
            let kind = entry.header().entry_type();
            if kind.is_gnu_longname() || kind.is_pax_local_extensions() {
                let header = read_bounded(&file, &mut entry, NAME_HEADER_BYTES_MAX)?;
                long_name = if kind.is_gnu_longname() { Some(gnu_name(&header)) } else { pax_name(&header) };
                continue;
            }
            let name = long_name.take();
            if !kind.is_file() {
                continue;
            }
            let path = name.unwrap_or_else(|| String::from_utf8_lossy(&entry.path_bytes()).into_owned());
            let Some((key, ending)) = split_path(&path) else { continue };
            if sample.as_ref().is_some_and(|sample| sample.key != key)
                && let Some(complete) = sample.take()
                && !complete.parts.is_empty()
            {
                each(complete)?;
            }
            let sample = sample.get_or_insert_with(|| ArchiveSample {
                file: file.clone(),
                key: key.to_owned(),
                parts: BTreeMap::new(),
            });
            let Some(part) = SamplePart::of_ending(&ending) else {
                if self.ignored.len() < ENDINGS_MAX && ending.len() <= ENDING_BYTES_MAX {
                    self.ignored.insert(ending);
                }
                continue;
            };
            let bytes = read_bounded(&format!("{file}/{path}"), &mut entry, part.bytes_max() as u64)?;
            if bytes.len() as u64 != entry.header().entry_size().map_err(broken)? {
                return Err(sample.error(format!("the archive ends within {path}")));
            }
            if sample.parts.insert(part, bytes).is_some() {
                return Err(sample.error(format!("it has two entries for the field {}: {path}", part.field())));
            }
        }
        match sample {
            Some(complete) if !complete.parts.is_empty() => each(complete),
            _ => Ok(()),
        }
    }
}

/// Reads an entry of at most `max` bytes.
fn read_bounded(what: &str, entry: &mut impl Read, max: u64) -> Result<Vec<u8>, DatasetError> {
    let mut bytes = Vec::new();
    Read::take(entry, max + 1).read_to_end(&mut bytes).map_err(|error| DatasetError::Malformed {
        file: what.to_owned(),
        reason: format!("the archive cannot be read: {error}"),
    })?;
    if bytes.len() as u64 > max {
        return Err(DatasetError::TooLarge { what: what.to_owned(), max, unit: "bytes" });
    }
    Ok(bytes)
}

/// Returns the name in an entry of the type `L`, which ends with a zero byte.
fn gnu_name(header: &[u8]) -> String {
    let name = header.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// Returns the record `path` of an extended header, or `None`. Source: POSIX.1-2017, pax, Extended Header.
fn pax_name(header: &[u8]) -> Option<String> {
    let mut rest = header;
    while let Some(space) = rest.iter().position(|byte| *byte == b' ') {
        let length: usize = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
        let record = rest.get(space + 1..length.checked_sub(1)?)?;
        if let Some(path) = record.strip_prefix(b"path=") {
            return Some(String::from_utf8_lossy(path).into_owned());
        }
        rest = rest.get(length..)?;
    }
    None
}

/// Returns the name of an entry up to the first dot of its last part, and what follows in lower case after the last dot.
/// `None` for hidden entries and those without an ending.
fn split_path(path: &str) -> Option<(&str, String)> {
    let begin = path.rfind('/').map_or(0, |slash| slash + 1);
    let dot = path[begin..].find('.').filter(|dot| *dot > 0)?;
    let ending = path[begin + dot + 1..].rsplit('.').next().unwrap_or_default();
    Some((&path[..begin + dot], ending.to_lowercase()))
}
