//! The format versions in a state directory, and whether this build can open it. Nothing is changed, and no lock is taken.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::checkpoint::manifest as checkpoint_manifest;
use crate::dataset::manifest as dataset_manifest;
use crate::error::StoreError;
use crate::format_number::read_format_number;
use crate::limits::MANIFEST_BYTES_MAX;
use crate::{external_runs, keys, models, records, regular_file};

/// Position of the schema's version in a SQLite file. Source: the description of its file format, section 1.3.
const USER_VERSION_AT: usize = 60;
/// Bytes of the header of a SQLite file.
const DATABASE_HEADER_BYTES: usize = 100;
/// First bytes of a SQLite file.
const DATABASE_MAGIC: &[u8] = b"SQLite format 3\0";
/// Bytes of the header of a write-ahead log, and of each frame before its page.
const LOG_HEADER_BYTES: usize = 32;
/// Bytes of the header of a frame.
const FRAME_HEADER_BYTES: usize = 24;
/// Maximum size of a page.
const PAGE_BYTES_MAX: usize = 65_536;

/// What this build does with a part of a state directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FormatVerdict {
    /// It reads it as it is.
    Readable,
    /// It converts it at the first start of a server, after which older builds refuse it.
    Migrated,
    /// It cannot be read at all.
    Unreadable,
    /// It was written by a newer build, and this one refuses it.
    TooNew,
}

/// The format of a part of a state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFormat {
    /// The part, such as `job records`.
    pub part: &'static str,
    /// The format versions that were found, with the number of files of each.
    pub found: BTreeMap<u64, u64>,
    /// The format versions that this build reads.
    pub readable: RangeInclusive<u64>,
    /// What this build does with it.
    pub verdict: FormatVerdict,
    /// The first file that cannot be read, and why; empty if all can.
    pub problem: String,
}

/// Returns the formats of all parts of the state directory at `root`.
///
/// # Errors
/// Returns `Io` if a directory cannot be listed.
pub fn read_state_formats(root: &Path) -> Result<Vec<StateFormat>, StoreError> {
    let objects = root.join("objects/checkpoints");
    let checkpoints = files_below(&objects, 1, |path| path.extension().is_some_and(|ending| ending == "json"))?;
    let manifests = |directory: &str| files_below(&root.join(directory), 2, |path| path.ends_with("manifest.json"));
    let one = |version: u64| version..=version;
    Ok(vec![
        database_format("job records", &root.join("saggar.db"), records::schema_version()),
        database_format("external runs", &root.join("external-runs.db"), external_runs::SCHEMA_VERSION),
        file_formats("checkpoints", &checkpoints, checkpoint_manifest::FORMATS_READ),
        file_formats("datasets", &manifests("datasets")?, one(dataset_manifest::FORMAT)),
        file_formats("models", &manifests("models")?, one(models::FORMAT)),
        file_formats("keys", &[root.join("keys.json")], one(keys::FORMAT)),
    ])
}

/// Returns the files at this depth of directories that `is_wanted` selects.
fn files_below(
    directory: &Path,
    depth: usize,
    is_wanted: impl Fn(&Path) -> bool + Copy,
) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::io(directory)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(StoreError::io(directory))?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if depth > 0 && path.is_dir() && !is_hidden {
            found.extend(files_below(&path, depth - 1, is_wanted)?);
        } else if depth == 0 && path.is_file() && is_wanted(&path) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the format of JSON files with a member `format`.
fn file_formats(part: &'static str, files: &[PathBuf], readable: RangeInclusive<u64>) -> StateFormat {
    let (mut found, mut problem, mut is_broken) = (BTreeMap::new(), String::new(), false);
    for path in files {
        let read = match regular_file::read(path, MANIFEST_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read.map_err(|error| error.to_string()),
        };
        let parsed = read.and_then(|text| read_format_number(&text).map_err(|it| it.to_string()));
        match parsed {
            Ok(format) => *found.entry(format).or_default() += 1,
            Err(error) => {
                is_broken = true;
                if problem.is_empty() {
                    problem = format!("{}: {error}", path.display());
                }
            }
        }
    }
    let unknown = found.keys().find(|format| !readable.contains(format)).copied();
    let verdict = match unknown {
        Some(format) if format > *readable.end() => FormatVerdict::TooNew,
        Some(_) => FormatVerdict::Unreadable,
        None if is_broken => FormatVerdict::Unreadable,
        None => FormatVerdict::Readable,
    };
    StateFormat { part, found, readable, verdict, problem }
}

/// Returns the format of a database, of which this build writes the version `newest`.
fn database_format(part: &'static str, path: &Path, newest: u64) -> StateFormat {
    let (mut found, mut problem) = (BTreeMap::new(), String::new());
    let verdict = match read_user_version(path) {
        Ok(None) => FormatVerdict::Readable,
        Ok(Some(version)) => {
            found.insert(version, 1);
            match version.cmp(&newest) {
                std::cmp::Ordering::Less => FormatVerdict::Migrated,
                std::cmp::Ordering::Equal => FormatVerdict::Readable,
                std::cmp::Ordering::Greater => FormatVerdict::TooNew,
            }
        }
        Err(error) => {
            problem = format!("{}: {error}", path.display());
            FormatVerdict::Unreadable
        }
    };
    StateFormat { part, found, readable: 0..=newest, verdict, problem }
}

/// Returns the version of the schema of the job records in a file, without opening it with SQLite. `None` if it does not exist.
///
/// # Errors
/// Returns any error of reading it, and one of a file that is no database.
pub(crate) fn records_schema(path: &Path) -> io::Result<Option<u64>> {
    read_user_version(path)
}

/// Returns the version of the schema in a SQLite file, or in its write-ahead log if a commit there is newer. Returns
/// `None` if the file does not exist or is empty. SQLite itself is not used, because it would write to the files beside
/// the database.
fn read_user_version(path: &Path) -> io::Result<Option<u64>> {
    let mut header = [0; DATABASE_HEADER_BYTES];
    let mut file = match regular_file::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if file.metadata()?.len() == 0 {
        return Ok(user_version_in_log(path)?.or(None));
    }
    file.read_exact(&mut header)?;
    if !header.starts_with(DATABASE_MAGIC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a SQLite database"));
    }
    Ok(Some(user_version_in_log(path)?.unwrap_or_else(|| user_version(&header))))
}

/// Returns the version of the schema in the first page of a database.
fn user_version(page: &[u8]) -> u64 {
    u64::from(big_endian(page, USER_VERSION_AT))
}

fn big_endian(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// Returns the version of the schema in the last commit of a database's write-ahead log that has the first page, or
/// `None`. Source: the description of SQLite's file format, section 4.
fn user_version_in_log(path: &Path) -> io::Result<Option<u64>> {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    let mut log: File = match regular_file::open(Path::new(&name)) {
        Ok(log) => log,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut header = [0; LOG_HEADER_BYTES];
    if log.read_exact(&mut header).is_err() {
        return Ok(None);
    }
    let page_bytes = big_endian(&header, 8) as usize;
    if !(512..=PAGE_BYTES_MAX).contains(&page_bytes) {
        return Ok(None);
    }
    let salts = &header[16..24];
    let (mut pending, mut committed) = (None, None);
    let mut frame = [0; FRAME_HEADER_BYTES];
    while log.read_exact(&mut frame).is_ok() && frame[8..16] == *salts {
        let next = log.stream_position()? + page_bytes as u64;
        if big_endian(&frame, 0) == 1 {
            let mut page = [0; DATABASE_HEADER_BYTES];
            if log.read_exact(&mut page).is_err() {
                break;
            }
            pending = Some(user_version(&page));
        }
        // A frame that is cut off is no commit.
        if next > log.metadata()?.len() {
            break;
        }
        // The size of the database in pages, in the last frame of a commit.
        if big_endian(&frame, 4) > 0 {
            committed = pending.or(committed);
        }
        log.seek(SeekFrom::Start(next))?;
    }
    Ok(committed)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn the_schema_version_is_read_from_the_file_and_from_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("saggar.db");
        assert_eq!(
            database_format("job records", &path, records::schema_version()).verdict,
            FormatVerdict::Readable,
            "a new one is created"
        );
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        let check = |version: u64, verdict: FormatVerdict| {
            let found = database_format("job records", &path, records::schema_version());
            assert_eq!((found.found, found.verdict), (BTreeMap::from([(version, 1)]), verdict), "{}", found.problem);
        };
        for (version, verdict) in [
            (1, FormatVerdict::Migrated),
            (records::schema_version(), FormatVerdict::Readable),
            (99, FormatVerdict::TooNew),
        ] {
            connection.execute_batch("CREATE TABLE IF NOT EXISTS t (x)").unwrap();
            connection.pragma_update(None, "user_version", version as i64).unwrap();
            assert!(fs::metadata(dir.path().join("saggar.db-wal")).unwrap().len() > 0);
            check(version, verdict);
            connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
            check(version, verdict);
        }
        drop(connection);
        fs::write(&path, vec![7; 4096]).unwrap();
        let damaged = database_format("job records", &path, records::schema_version());
        assert_eq!(damaged.verdict, FormatVerdict::Unreadable);
        assert!(damaged.problem.contains("not a SQLite database"), "{}", damaged.problem);
    }

    #[test]
    fn formats_of_manifests_are_counted_and_newer_ones_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("models/a/1/manifest.json", r#"{"format": 1, "more": []}"#);
        write("models/a/2/manifest.json", r#"{"format": 1}"#);
        write("models/.locks/a", "2");
        write("objects/checkpoints/J/5-1.json", r#"{"format": 2}"#);
        write("datasets/d/1/manifest.json", "{");
        let formats = read_state_formats(dir.path()).unwrap();
        let of = |part: &str| formats.iter().find(|it| it.part == part).unwrap();
        assert_eq!((&of("models").found, of("models").verdict), (&BTreeMap::from([(1, 2)]), FormatVerdict::Readable));
        assert_eq!(of("checkpoints").verdict, FormatVerdict::Readable, "an older format is read");
        assert_eq!(of("datasets").verdict, FormatVerdict::Unreadable);
        assert!(of("datasets").problem.contains("datasets/d/1/manifest.json"));
        write("models/a/3/manifest.json", r#"{"format": 2}"#);
        let formats = read_state_formats(dir.path()).unwrap();
        assert_eq!(formats.iter().find(|it| it.part == "models").unwrap().verdict, FormatVerdict::TooNew);
    }
}
