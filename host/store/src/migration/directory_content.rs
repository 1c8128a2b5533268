//! The objects that the files of a state directory become.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::content::{ContentKind, ContentLedger, ContentPlan, ContentSource};
use crate::bucket_folders::{DATASETS_FOLDER, MODELS_FOLDER};
use crate::digest::Sha256Hasher;
use crate::error::StoreError;
use crate::limits::INDEXED_MANIFEST_BYTES_MAX;
use crate::logged_items::{LOGGED_FOLDER, LoggedKey};
use crate::models;
use crate::outputs::{OUTPUT_FOLDER, is_output_path};
use crate::regular_file;
use crate::state_dir::StateDir;
use crate::versions::VersionStore;
use crate::versions::directories::VersionDirectories;
use crate::versions::objects::{IndexedFile, IndexedPart, PART_BYTES_MAX, VersionIndex, parts_folder};

/// Bytes of a chunk of a log.
const LOG_CHUNK_BYTES: u64 = 8 << 20;
/// Files of the state directory that no server shares, each with the reason.
const OWN_FILES: [(&str, &str); 8] = [
    ("audit.log", "each server writes its own; keep the file"),
    ("audit.log.1", "each server writes its own; keep the file"),
    ("audit.log.2", "each server writes its own; keep the file"),
    ("audit.log.3", "each server writes its own; keep the file"),
    ("audit.log.4", "each server writes its own; keep the file"),
    ("key-usage.json", "each server counts what keys have used of their quotas"),
    (
        "external-runs.db",
        "runs that MLflow's clients logged are in each server's own directory: copy the file to one of them",
    ),
    ("uploads", "uploads of datasets that are not complete: push them again"),
];
/// The files beside a model's versions that are documents.
pub(super) const SHARED_NOTES: [&str; 2] = ["model.json", "serving.json"];
/// A file that each server writes about versions that it cannot load.
const OWN_NOTE: &str = "failures.json";

/// A version whose index is written after its parts.
#[derive(Debug)]
pub(super) struct PlannedVersion {
    kind: ContentKind,
    /// The name of the index.
    object: String,
    parts: String,
    /// The files: the name, the bytes and the names of the parts of each.
    files: Vec<(String, u64, Vec<String>)>,
    manifest: Option<String>,
}

/// The content of a state directory.
#[derive(Debug, Default)]
pub(super) struct DirectoryContent {
    pub(super) plan: ContentPlan,
    pub(super) versions: Vec<PlannedVersion>,
}

impl DirectoryContent {
    /// Lists the files of a state directory.
    ///
    /// # Errors
    /// Returns `Io`.
    pub(super) fn read(home: &StateDir) -> Result<DirectoryContent, StoreError> {
        let mut content = DirectoryContent::default();
        content.add_objects(&home.objects())?;
        for (kind, root, folder) in [
            (ContentKind::Datasets, home.datasets(), DATASETS_FOLDER),
            (ContentKind::Models, home.models(), MODELS_FOLDER),
        ] {
            content.add_versions(kind, &root, folder)?;
        }
        content.add_jobs(&home.jobs())?;
        for (name, reason) in OWN_FILES {
            let path = home.root().join(name);
            let is_there = if path.is_dir() { !list(&path)?.is_empty() } else { path.exists() };
            if is_there {
                content.plan.leave(name, reason);
            }
        }
        Ok(content)
    }

    /// Returns the plan of the versions' indexes, after their parts were copied.
    pub(super) fn indexes(&self, parts: &ContentLedger) -> ContentPlan {
        let mut plan = ContentPlan::default();
        for version in &self.versions {
            let part = |name: &String| {
                let (_, _, sha256) = parts.0[&format!("{}/{name}", version.parts)];
                IndexedPart { name: name.clone(), sha256 }
            };
            let file = |(name, bytes, parts): &(String, u64, Vec<String>)| IndexedFile {
                name: name.clone(),
                bytes: *bytes,
                parts: parts.iter().map(part).collect(),
            };
            let files = version.files.iter().map(file).collect();
            let index = VersionIndex { parts: version.parts.clone(), files, manifest: version.manifest.clone() };
            plan.add(version.kind, version.object.clone(), ContentSource::Bytes(index.encode().into()));
        }
        plan
    }

    /// Objects have the same names in a bucket.
    fn add_objects(&mut self, root: &Path) -> Result<(), StoreError> {
        for (path, name) in files_below(root)? {
            let kind = if name.starts_with("checkpoints/") { ContentKind::Checkpoints } else { ContentKind::Plugins };
            // `#` begins the suffix of an object that is being written.
            if name.starts_with('.') || name.contains('#') {
                continue;
            }
            let bytes = size(&path)?;
            self.plan.add(kind, name, ContentSource::File { path, first_byte: 0, bytes });
        }
        Ok(())
    }

    fn add_versions(&mut self, kind: ContentKind, root: &Path, folder: &str) -> Result<(), StoreError> {
        let directories = VersionDirectories::new(root);
        // Names that have no version any more have a lock with the highest number, too.
        let mut last: BTreeMap<String, u64> = BTreeMap::new();
        for (path, name) in files_below(&root.join(".locks"))? {
            let text = regular_file::read_to_string(&path, 64).map_err(StoreError::io(&path))?;
            last.insert(name, text.trim().parse().unwrap_or(0));
        }
        for name in directories.names()? {
            let versions = directories.versions(&name)?;
            for version in &versions {
                self.add_version(kind, &directories.directory(&name, *version), folder, &name, *version)?;
            }
            if last.get(&name).is_some_and(|last| versions.last().is_some_and(|newest| newest >= last)) {
                last.remove(&name);
            }
            if kind == ContentKind::Models {
                self.leave_notes(&root.join(&name), &name)?;
            }
        }
        for (name, number) in last.into_iter().filter(|(_, number)| *number > 0) {
            // An empty object: the number was used, and is not used again.
            self.plan.add(kind, format!("{folder}/{name}/{number}.removed"), ContentSource::Bytes(Bytes::new()));
        }
        for (path, name) in files_below(&root.join(".projects"))? {
            let bytes = size(&path)?;
            let target = format!("{folder}-projects/{name}/{:020}", 1);
            self.plan.add(kind, target, ContentSource::File { path, first_byte: 0, bytes });
        }
        Ok(())
    }

    fn add_version(
        &mut self,
        kind: ContentKind,
        directory: &Path,
        folder: &str,
        name: &str,
        version: u64,
    ) -> Result<(), StoreError> {
        let object = format!("{folder}/{name}/{version}.json");
        let mut files = Vec::new();
        for path in list(directory)? {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_file() && !file.starts_with('.') {
                files.push((file, size(&path)?, path));
            }
        }
        let manifest_path = directory.join(models::MANIFEST_FILE);
        let manifest = match regular_file::read(&manifest_path, crate::limits::MANIFEST_BYTES_MAX) {
            Ok(manifest) => manifest,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.plan.leave(object, "the directory has no manifest.json: it is not a complete version");
                return Ok(());
            }
            Err(error) => return Err(StoreError::io(&manifest_path)(error)),
        };
        // The same in a repetition, and of no other version.
        let mut id = Sha256Hasher::new();
        id.update_field(object.as_bytes());
        id.update(&manifest);
        let parts = parts_folder(folder, name, &id.finish().hex()[..32]);
        let (mut indexed, mut number) = (Vec::new(), 0_u64);
        for (file, bytes, path) in files {
            let mut names = Vec::new();
            for first_byte in (0..bytes).step_by(PART_BYTES_MAX as usize) {
                let source =
                    ContentSource::File { path: path.clone(), first_byte, bytes: part_bytes(bytes, first_byte) };
                self.plan.add(kind, format!("{parts}/{number}"), source);
                names.push(number.to_string());
                number += 1;
            }
            indexed.push((file, bytes, names));
        }
        let manifest = String::from_utf8(manifest).ok().filter(|text| text.len() <= INDEXED_MANIFEST_BYTES_MAX);
        self.versions.push(PlannedVersion { kind, object, parts, files: indexed, manifest });
        Ok(())
    }

    fn leave_notes(&mut self, directory: &Path, model: &str) -> Result<(), StoreError> {
        for path in list(directory)?.into_iter().filter(|path| path.is_file()) {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if SHARED_NOTES.contains(&file.as_str()) || file == OWN_NOTE || file.starts_with('.') {
                continue;
            }
            self.plan.leave(
                format!("models/{model}/{file}"),
                "servers do not share files beside a model's versions: copy it to the same place on each server",
            );
        }
        Ok(())
    }

    fn add_jobs(&mut self, root: &Path) -> Result<(), StoreError> {
        for directory in list(root)?.into_iter().filter(|path| path.is_dir()) {
            let job = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let mut has_rest = false;
            for (path, name) in files_below(&directory)? {
                let bytes = size(&path)?;
                match job_object(&name) {
                    JobObject::Whole => {
                        let source = ContentSource::File { path, first_byte: 0, bytes };
                        self.plan.add(ContentKind::JobFiles, format!("jobs/{job}/{name}"), source);
                    }
                    JobObject::Chunks(folder) => {
                        for first_byte in (0..bytes).step_by(LOG_CHUNK_BYTES as usize) {
                            let bytes = LOG_CHUNK_BYTES.min(bytes - first_byte);
                            let source = ContentSource::File { path: path.clone(), first_byte, bytes };
                            let target = format!("jobs/{job}/{folder}/{first_byte:020}");
                            self.plan.add(ContentKind::JobFiles, target, source);
                        }
                    }
                    JobObject::None => has_rest = true,
                }
            }
            if has_rest && !job.starts_with('.') {
                self.plan.leave(format!("jobs/{job}"), "the folder of a notebook stays on its machine");
            }
        }
        Ok(())
    }
}

/// What a file of a job becomes.
enum JobObject {
    Whole,
    /// Chunks in this folder.
    Chunks(String),
    None,
}

fn job_object(name: &str) -> JobObject {
    if let Some((folder, rest)) = name.split_once('/') {
        let is_whole = match folder {
            OUTPUT_FOLDER => is_output_path(rest),
            LOGGED_FOLDER => LoggedKey::from_file_name(rest).is_some(),
            _ => false,
        };
        return if is_whole { JobObject::Whole } else { JobObject::None };
    }
    let attempt = |text: &str| text.parse::<u32>().ok();
    let of = |suffix: &str| attempt(name.strip_prefix("attempt-")?.strip_suffix(suffix)?);
    match (of(".log"), of(".calls")) {
        (Some(attempt), _) => JobObject::Chunks(format!("attempt-{attempt}")),
        (_, Some(attempt)) => JobObject::Chunks(format!("calls-{attempt}")),
        (None, None) => JobObject::None,
    }
}

fn part_bytes(bytes: u64, first_byte: u64) -> u64 {
    PART_BYTES_MAX.min(bytes - first_byte)
}

fn size(path: &Path) -> Result<u64, StoreError> {
    Ok(fs::metadata(path).map_err(StoreError::io(path))?.len())
}

/// Returns the entries of a directory, sorted; empty if it does not exist.
pub(super) fn list(directory: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::io(directory)(error)),
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, std::io::Error>>();
    let mut paths = paths.map_err(StoreError::io(directory))?;
    paths.sort();
    Ok(paths)
}

/// Returns the files below a directory with their paths below it, in which names that are not text are left out.
pub(super) fn files_below(root: &Path) -> Result<Vec<(PathBuf, String)>, StoreError> {
    let (mut found, mut left) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = left.pop() {
        for path in list(&directory)? {
            if path.is_dir() {
                left.push(path);
            } else if let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str) {
                let name = name.to_owned();
                found.push((path, name));
            }
        }
    }
    found.sort();
    Ok(found)
}
