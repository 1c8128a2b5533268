//! `saggar data push`: sends only the chunks that the server lacks, so that an interrupted push resumes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use saggar_rest::datasets::{AnnouncedFile, DatasetAnnouncement, DatasetDocument, DatasetUploadDocument};
use saggar_store::digest::{Digest, Sha256Hasher};
use saggar_store::limits::{UPLOAD_BYTES_MAX, UPLOAD_FILES_MAX};
use saggar_store::regular_file;

use super::described::{self, DESCRIPTION_FILE};
use super::ignore_file::IgnorePatterns;
use crate::args::{DataPushArgs, DataTableArgs};
use crate::client::{ApiClient, RequestBody};
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::progress::ProgressDisplay;
use crate::units;

/// Bytes of a chunk, the server's maximum.
const CHUNK_BYTES: usize = 4 << 20;

/// The content of a chunk, or where it is read again.
enum ChunkLocation {
    File { path: PathBuf, index: u64, bytes: u64 },
    Memory(Vec<u8>),
}

impl ChunkLocation {
    fn bytes(&self) -> u64 {
        match self {
            ChunkLocation::File { bytes, .. } => *bytes,
            ChunkLocation::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Returns the content.
    fn read(&self) -> Result<Vec<u8>, CliError> {
        let (path, index) = match self {
            ChunkLocation::File { path, index, .. } => (path, *index),
            ChunkLocation::Memory(bytes) => return Ok(bytes.clone()),
        };
        let mut file = open_file(path)?;
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(index * CHUNK_BYTES as u64))
            .map_err(|error| CliError::new(exit::UNEXPECTED, "unreadable", format!("{}: {error}", path.display())))?;
        read_chunk(&mut file, path)
    }
}

pub(super) fn push(args: &DataPushArgs, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => default_name(&args.dir),
    };
    let (root, paths) = if args.dir.is_file() {
        (args.dir.parent().unwrap_or(Path::new("")), vec![args.dir.clone()])
    } else {
        (&*args.dir, list_files(&args.dir)?)
    };
    send_and_print(&SentFiles::described(root, &paths, &args.table)?, &name, client, output)
}

/// Returns the files of a folder that would be sent.
///
/// # Errors
/// It cannot be read, holds no files or something else than plain files, or is over the limits of a dataset.
pub(in crate::commands) fn read_folder(dir: &Path) -> Result<SentFiles, CliError> {
    let sent = SentFiles::described(dir, &list_files(dir)?, &DataTableArgs::default())?;
    sent.check_limits().map(|_| sent)
}

/// Sends a folder as a version of the dataset `name`.
pub(super) fn push_folder(dir: &Path, name: &str, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    send_and_print(&read_folder(dir)?, name, client, output)
}

/// Sends files of the folder `root` as a version of the dataset `name`.
pub(super) fn push_files(
    root: &Path,
    paths: &[PathBuf],
    name: &str,
    client: &ApiClient,
    output: CliOutput,
) -> Result<(), CliError> {
    send_and_print(&SentFiles::described(root, paths, &DataTableArgs::default())?, name, client, output)
}

fn send_and_print(sent: &SentFiles, name: &str, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let total = sent.check_limits()?;
    let stored = send_files(sent, name, client, output)?;
    super::print_stored_version(&stored, &format!("{} read", units::format_bytes(total)), output);
    Ok(())
}

/// A file that is sent.
struct SentFile {
    /// Where it is.
    path: PathBuf,
    /// Its path in the dataset.
    name: String,
}

/// The files of an upload.
pub(in crate::commands) struct SentFiles {
    root: PathBuf,
    files: Vec<SentFile>,
    /// The description that options stand for, which replaces the folder's.
    description: Option<Vec<u8>>,
}

impl SentFiles {
    /// Returns files below `root`, with a description of these options.
    fn described(root: &Path, paths: &[PathBuf], options: &DataTableArgs) -> Result<SentFiles, CliError> {
        let relative = |path: &PathBuf| {
            let parts = path.strip_prefix(root).unwrap_or(path).iter();
            parts.map(|part| part.to_string_lossy().into_owned()).collect::<Vec<_>>().join("/")
        };
        let files = paths.iter().map(|path| SentFile { path: path.clone(), name: relative(path) });
        let mut files: Vec<SentFile> = files.collect();
        let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
        let existing = files.iter().position(|file| file.name == DESCRIPTION_FILE);
        let description = described::described(options, existing.map(|at| &*files[at].path), &names)?;
        if description.is_some() {
            files.retain(|file| file.name != DESCRIPTION_FILE);
        }
        Ok(SentFiles { root: root.to_owned(), files, description })
    }

    /// Checks that a dataset can hold them. Returns their bytes.
    fn check_limits(&self) -> Result<u64, CliError> {
        let total: u64 = self.files.iter().filter_map(|file| file.path.metadata().ok()).map(|data| data.len()).sum();
        if total <= UPLOAD_BYTES_MAX && self.files.len() <= UPLOAD_FILES_MAX {
            return Ok(total);
        }
        Err(CliError::invalid(format!(
            "{} holds {} files of {} together; a dataset takes at most {UPLOAD_FILES_MAX} files of {}",
            self.root.display(),
            self.files.len(),
            units::format_bytes(total),
            units::format_bytes(UPLOAD_BYTES_MAX),
        ))
        .with_hint("list files to skip in .saggarignore"))
    }
}

/// Returns the default name of a dataset: the folder's, or the file's without its extensions.
fn default_name(path: &Path) -> String {
    let name = path.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().to_lowercase()));
    let name = name.unwrap_or_default();
    if !path.is_file() {
        return name;
    }
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    plain.rsplit_once('.').map_or(plain, |(stem, _)| stem).to_owned()
}

/// Sends files as a version of the dataset `name`, and returns it. Equal content is a version that exists.
pub(in crate::commands) fn send_files(
    sent: &SentFiles,
    name: &str,
    client: &ApiClient,
    output: CliOutput,
) -> Result<DatasetDocument, CliError> {
    let total = sent.check_limits()?;
    let mut progress = ProgressDisplay::for_bytes("reading", total, output);
    let mut chunks = BTreeMap::new();
    let mut files = Vec::new();
    for file in &sent.files {
        files.push(chunk_file(file, &mut chunks, &mut progress)?);
    }
    if let Some(text) = &sent.description {
        let digest = Digest::of(text).hex();
        let (path, size) = (DESCRIPTION_FILE.to_owned(), text.len() as u64);
        files.push(AnnouncedFile { path, size, sha256: digest.clone(), chunks: vec![digest.clone()] });
        chunks.insert(digest, ChunkLocation::Memory(text.clone()));
    }
    drop(progress);
    let announcement = DatasetAnnouncement { name: name.to_owned(), files };
    let begun: DatasetUploadDocument = client.post("/api/v1/datasets", RequestBody::json(&announcement))?;
    let upload = &begun.upload;
    let missing: BTreeSet<&str> = begun.missing.iter().map(String::as_str).collect();
    send_missing_chunks(client, name, upload, &missing, &chunks, output)?;
    client.post(&format!("/api/v1/datasets/{name}/uploads/{upload}/commit"), RequestBody::Empty)
}

/// Lists the plain files below `dir`, sorted. Names that begin with a dot and files that `.saggarignore` matches are
/// skipped.
fn list_files(dir: &Path) -> Result<Vec<PathBuf>, CliError> {
    let unreadable = |path: &Path, error: std::io::Error| {
        CliError::new(exit::NOT_FOUND, "unreadable", format!("{}: {error}", path.display()))
    };
    let ignored = IgnorePatterns::read_from(dir)?;
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|error| unreadable(&folder, error))? {
            let entry = entry.map_err(|error| unreadable(&folder, error))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(|error| unreadable(&path, error))?;
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if hidden || ignored.matches(path.strip_prefix(dir).unwrap_or(&path), kind.is_dir()) {
                continue;
            }
            if kind.is_dir() {
                left.push(path);
            } else if kind.is_file() {
                found.push(path);
            } else {
                let what = if kind.is_symlink() { "a symbolic link" } else { "no plain file" };
                let message = format!("{} is {what}; a dataset holds plain files", path.display());
                return Err(CliError::invalid(message)
                    .with_hint("replace it by the file itself, or skip it with .saggarignore"));
            }
        }
    }
    if found.is_empty() {
        return Err(CliError::invalid(format!("{} holds no files", dir.display())));
    }
    found.sort();
    Ok(found)
}

fn chunk_file(
    sent: &SentFile,
    chunks: &mut BTreeMap<String, ChunkLocation>,
    progress: &mut ProgressDisplay,
) -> Result<AnnouncedFile, CliError> {
    let path = &*sent.path;
    let mut file = open_file(path)?;
    let mut whole = Sha256Hasher::new();
    let (mut size, mut list) = (0u64, Vec::new());
    loop {
        let bytes = read_chunk(&mut file, path)?;
        if bytes.is_empty() {
            break;
        }
        whole.update(&bytes);
        let digest = Digest::of(&bytes).hex();
        let (path, index) = (path.to_owned(), list.len() as u64);
        let place = ChunkLocation::File { path, index, bytes: bytes.len() as u64 };
        chunks.entry(digest.clone()).or_insert(place);
        list.push(digest);
        size += bytes.len() as u64;
        progress.advance(bytes.len() as u64);
    }
    Ok(AnnouncedFile { path: sent.name.clone(), size, sha256: whole.finish().hex(), chunks: list })
}

fn send_missing_chunks(
    client: &ApiClient,
    name: &str,
    upload: &str,
    missing: &BTreeSet<&str>,
    chunks: &BTreeMap<String, ChunkLocation>,
    output: CliOutput,
) -> Result<(), CliError> {
    let offered = missing.iter().filter_map(|digest| chunks.get(*digest));
    let mut progress = ProgressDisplay::for_bytes("sending", offered.map(ChunkLocation::bytes).sum(), output);
    for digest in missing {
        let place = chunks.get(*digest).ok_or_else(|| {
            CliError::new(
                exit::UNEXPECTED,
                "bad_answer",
                format!("the server asks for a chunk that was not offered: {digest}"),
            )
        })?;
        let bytes = place.read()?;
        client.put(&format!("/api/v1/datasets/{name}/uploads/{upload}/chunks/{digest}"), &bytes)?;
        progress.advance(bytes.len() as u64);
    }
    Ok(())
}

fn open_file(path: &Path) -> Result<File, CliError> {
    regular_file::open(path)
        .map_err(|error| CliError::new(exit::NOT_FOUND, "unreadable", format!("{}: {error}", path.display())))
}

fn read_chunk(file: &mut File, path: &Path) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let read = file.take(CHUNK_BYTES as u64).read_to_end(&mut bytes);
    read.map_err(|error| CliError::new(exit::UNEXPECTED, "unreadable", format!("{}: {error}", path.display())))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_name_defaults_to_the_folder_or_file_stem() {
        let directory = tempfile::tempdir().unwrap();
        for (file, name) in [("Wine.csv", "wine"), ("wine.csv.gz", "wine"), ("a.b.npz", "a.b"), ("plain", "plain")] {
            std::fs::write(directory.path().join(file), "x").unwrap();
            assert_eq!(default_name(&directory.path().join(file)), name);
        }
        std::fs::create_dir(directory.path().join("Set.v1")).unwrap();
        assert_eq!(default_name(&directory.path().join("Set.v1")), "set.v1");
    }

    #[test]
    fn symbolic_links_are_refused_and_ignored_files_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        std::fs::create_dir_all(dir.join("deep/build")).unwrap();
        for name in ["a.csv", "notes.md", "deep/b.csv", "deep/build/x", ".hidden"] {
            std::fs::write(dir.join(name), "x").unwrap();
        }
        let names = || {
            let found = list_files(dir)?;
            Ok::<_, CliError>(
                found.iter().map(|path| path.strip_prefix(dir).unwrap().display().to_string()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(names().unwrap(), ["a.csv", "deep/b.csv", "deep/build/x", "notes.md"]);
        std::fs::write(dir.join(".saggarignore"), "build/\n*.md\n").unwrap();
        assert_eq!(names().unwrap(), ["a.csv", "deep/b.csv"]);
        std::os::unix::fs::symlink("/etc/passwd", dir.join("deep/link")).unwrap();
        let refused = names().unwrap_err();
        assert_eq!(refused.exit_code, exit::INVALID);
        assert!(refused.message.contains("deep/link is a symbolic link"), "{refused}");
        std::fs::write(dir.join(".saggarignore"), "build/\n*.md\nlink\n").unwrap();
        assert_eq!(names().unwrap(), ["a.csv", "deep/b.csv"]);
        std::fs::write(dir.join(".saggarignore"), "*").unwrap();
        assert!(names().unwrap_err().message.contains("holds no files"));
    }
}
