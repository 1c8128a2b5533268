//! Restores a backup into a new state directory. The file is untrusted: nothing is kept before all of it is verified.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Component, Path, PathBuf};

use super::{
    BACKUP_FORMAT, BackupError, BackupFile, BackupIndex, BackupSummary, INDEX_BYTES_MAX, INDEX_ENTRY, LONG_PREFIX,
    PATH_BYTES_MAX, malformed,
};
use crate::digest::{Digest, Sha256Hasher};
use crate::durable::{self, disk};
use crate::error::StoreError;
use crate::format_number::read_format_number;
use crate::regular_file;

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 256 << 10;

/// Restores the backup in `file` to the directory `home`, which must be new or empty. It appears as a whole, durably,
/// or not at all.
///
/// # Errors
/// Returns `NotEmpty`; `Malformed` and `OtherFormat` for a file that is not an intact backup; `Store`.
pub fn restore(file: &Path, home: &Path) -> Result<BackupSummary, BackupError> {
    let home = std::path::absolute(home).map_err(StoreError::io(home))?;
    check_is_empty(&home)?;
    let parent = home.parent().unwrap_or(Path::new("/"));
    durable::create_directories(parent).map_err(StoreError::io(parent))?;
    let staging = home.with_added_extension(format!("restore-{}", durable::unique_suffix()));
    let restored = restore_into(file, &staging).and_then(|summary| {
        disk::rename(&staging.join("home"), &home).map_err(StoreError::io(&home))?;
        disk::sync_directory(parent).map_err(StoreError::io(parent))?;
        Ok(summary)
    });
    let _ = disk::remove_tree(&staging);
    restored
}

fn check_is_empty(home: &Path) -> Result<(), BackupError> {
    match fs::read_dir(home).map(|mut entries| entries.next().is_some()) {
        Ok(true) => Err(BackupError::NotEmpty { dir: home.to_owned() }),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io(home)(error).into()),
        Ok(false) | Err(_) => Ok(()),
    }
}

/// Unpacks and verifies the backup into `staging/home`.
fn restore_into(file: &Path, staging: &Path) -> Result<BackupSummary, BackupError> {
    let entries_dir = staging.join("entries");
    durable::create_directories(&entries_dir).map_err(StoreError::io(&entries_dir))?;
    let reader = BufReader::with_capacity(COPY_BYTES, regular_file::open(file).map_err(StoreError::io(file))?);
    let (unpacked, index) = unpack(reader, &entries_dir)?;
    check_index(&index, &unpacked)?;
    let home = staging.join("home");
    durable::create_directories(&home).map_err(StoreError::io(&home))?;
    let mut directories: BTreeSet<PathBuf> = [home.clone()].into();
    for entry in &index.files {
        let target = home.join(&entry.path);
        let parent = target.parent().unwrap_or(&home);
        durable::create_directories_below(&home, parent).map_err(StoreError::io(parent))?;
        directories.extend(parent.ancestors().take_while(|it| it.starts_with(&home)).map(Path::to_owned));
        let unpacked = &unpacked[entry.entry.as_deref().unwrap_or(&entry.path)];
        disk::rename(&unpacked.path, &target).map_err(StoreError::io(&target))?;
    }
    for directory in &directories {
        disk::sync_directory(directory).map_err(StoreError::io(directory))?;
    }
    let bytes = index.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
    Ok(BackupSummary { files: index.files.len() as u64, bytes })
}

/// An entry that was unpacked, under a number as its name.
struct UnpackedEntry {
    path: PathBuf,
    bytes: u64,
    sha256: Digest,
}

/// Unpacks all entries into files with numbers as their names, and returns them by name, with the index.
fn unpack(reader: impl Read, dir: &Path) -> Result<(BTreeMap<String, UnpackedEntry>, BackupIndex), BackupError> {
    let mut archive = tar::Archive::new(reader);
    let broken = |error: io::Error| malformed(format!("the file is not a backup, or is cut off: {error}"));
    // Raw entries: no extension is interpreted, because backups have none.
    let entries = archive.entries().map_err(broken)?.raw(true);
    let mut unpacked: BTreeMap<String, UnpackedEntry> = BTreeMap::new();
    let mut index = None;
    for entry in entries {
        let mut entry = entry.map_err(broken)?;
        let name = String::from_utf8(entry.path_bytes().into_owned())
            .map_err(|_| malformed("the name of an entry is not text"))?;
        let refuse =
            |reason: &str| malformed(format!("entry {:?}: {reason}", name.chars().take(200).collect::<String>()));
        if index.is_some() {
            return Err(refuse("it follows the index, which is the last entry of a backup"));
        }
        if entry.header().entry_type() != tar::EntryType::Regular {
            return Err(refuse("it is a link, a directory or a device, and a backup has only plain files"));
        }
        if name == INDEX_ENTRY {
            index = Some(read_index(&mut entry)?);
            continue;
        }
        if unpacked.contains_key(&name) {
            return Err(refuse("it is there twice"));
        }
        let path = dir.join(unpacked.len().to_string());
        let (bytes, sha256) = unpack_entry(&mut entry, &path)?;
        unpacked.insert(name, UnpackedEntry { path, bytes, sha256 });
    }
    let index =
        index.ok_or_else(|| malformed(format!("it has no {INDEX_ENTRY}: it is not a backup, or is cut off")))?;
    Ok((unpacked, index))
}

fn unpack_entry(entry: &mut impl Read, path: &Path) -> Result<(u64, Digest), BackupError> {
    let file: File = disk::create_file(path, durable::PRIVATE_FILE_MODE).map_err(StoreError::io(path))?;
    let (mut hasher, mut buffer, mut bytes) = (Sha256Hasher::new(), vec![0; COPY_BYTES], 0);
    loop {
        let read = entry.read(&mut buffer).map_err(|error| malformed(format!("the file is cut off: {error}")))?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        (&file).write_all(&buffer[..read]).map_err(StoreError::io(path))?;
        bytes += read as u64;
    }
    disk::sync(&file, path).map_err(StoreError::io(path))?;
    Ok((bytes, hasher.finish()))
}

fn read_index(entry: &mut impl Read) -> Result<BackupIndex, BackupError> {
    let refuse = |reason: String| malformed(format!("{INDEX_ENTRY}: {reason}"));
    let mut text = Vec::new();
    entry.take(INDEX_BYTES_MAX + 1).read_to_end(&mut text).map_err(|error| refuse(error.to_string()))?;
    if text.len() as u64 > INDEX_BYTES_MAX {
        return Err(refuse(format!("it has more than {INDEX_BYTES_MAX} bytes")));
    }
    let format = read_format_number(&text).map_err(|error| refuse(error.to_string()))?;
    if format != BACKUP_FORMAT {
        return Err(BackupError::OtherFormat { found: format, expected: BACKUP_FORMAT });
    }
    serde_json::from_slice(&text).map_err(|error| refuse(error.to_string()))
}

/// Checks the paths of the index, and that it lists exactly the entries, with their sizes and digests.
fn check_index(index: &BackupIndex, unpacked: &BTreeMap<String, UnpackedEntry>) -> Result<(), BackupError> {
    let mut paths: BTreeSet<&str> = BTreeSet::new();
    let mut entries: BTreeSet<&str> = BTreeSet::new();
    for file in &index.files {
        let BackupFile { path, bytes, sha256, entry } = file;
        let short_path: String = path.chars().take(200).collect();
        let refuse = |reason: &str| malformed(format!("{INDEX_ENTRY}: {short_path:?}: {reason}"));
        if !is_plain_path(path) {
            return Err(refuse("it is not a path below the state directory"));
        }
        if entry.as_ref().is_some_and(|entry| !entry.starts_with(LONG_PREFIX)) {
            return Err(refuse("its entry has another name than its path"));
        }
        let entry = entry.as_deref().unwrap_or(path);
        if !paths.insert(path) || !entries.insert(entry) {
            return Err(refuse("it is there twice"));
        }
        let Some(found) = unpacked.get(entry) else { return Err(refuse("the backup has no such entry")) };
        if found.bytes != *bytes {
            return Err(refuse(&format!("it has {} bytes, and the index says {bytes}", found.bytes)));
        }
        if found.sha256 != *sha256 {
            return Err(refuse("it was changed or damaged: its SHA-256 differs"));
        }
    }
    if let Some(extra) = unpacked.keys().find(|name| !entries.contains(name.as_str())) {
        let extra: String = extra.chars().take(200).collect();
        return Err(malformed(format!("entry {extra:?}: the index does not list it")));
    }
    // A file must not be a directory of another one.
    let inside =
        |path: &&&str| Path::new(path).ancestors().skip(1).any(|it| it.to_str().is_some_and(|it| paths.contains(it)));
    match paths.iter().find(inside) {
        Some(path) => Err(malformed(format!("{INDEX_ENTRY}: {path:?}: another file is its directory"))),
        None => Ok(()),
    }
}

/// Returns whether a path stays below the directory that it is joined to.
fn is_plain_path(path: &str) -> bool {
    let parts = Path::new(path).components();
    let is_plain = parts.clone().all(|part| matches!(part, Component::Normal(_)));
    let same = parts.map(|part| part.as_os_str().to_string_lossy().into_owned()).collect::<Vec<_>>().join("/") == path;
    is_plain && same && !path.is_empty() && path.len() <= PATH_BYTES_MAX && !path.contains('\0')
}
