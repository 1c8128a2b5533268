//! Versions in an object store.
//!
//! ```text
//! <folder>/<name>/<version>.json      the index: names, sizes and parts of the version's files
//! <folder>/<name>/<version>.removed   marks a version as removed, so that its number is not used again
//! <folder>/<name>/parts/<draft>/<n>   the content, in parts of at most PART_BYTES_MAX
//! ```
//!
//! The index is written last, and only if its name is free: that commits the version. Files are fetched into a local
//! directory when they are read, and verified against the index. The directory can be deleted at any time.
//!
//! No lock keeps two processes from publishing equal content at the same time; both versions are complete then.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::{MANIFEST_FILE, StagedVersion, VersionDraft, VersionFetch, VersionStore, is_name, parse_version};
use crate::digest::Digest;
use crate::durable::{self, disk};
use crate::error::StoreError;
use crate::objects::{ObjectStorage, PutOutcome};

/// Maximum bytes of one part of a file, which is in memory while it is sent or received.
const PART_BYTES_MAX: u64 = 64 << 20;

/// The named, numbered versions below one folder of an object store.
#[derive(Clone, Debug)]
pub(crate) struct ObjectVersions {
    objects: ObjectStorage,
    folder: String,
    cache: PathBuf,
    runtime: Handle,
}

/// The index of a version.
#[derive(Debug, Default, Serialize, Deserialize)]
struct VersionIndex {
    /// The folder of the parts.
    parts: String,
    files: Vec<IndexedFile>,
}

/// A file of a version.
#[derive(Debug, Serialize, Deserialize)]
struct IndexedFile {
    name: String,
    bytes: u64,
    parts: Vec<IndexedPart>,
}

/// A part of a file.
#[derive(Debug, Serialize, Deserialize)]
struct IndexedPart {
    /// Its name in the folder of the parts.
    name: String,
    sha256: Digest,
}

impl ObjectVersions {
    /// Returns the versions below `folder` of `objects`. Files are fetched into `cache`. `runtime` drives the object
    /// store; it must not be the calling runtime, which is blocked.
    pub(crate) fn new(
        objects: ObjectStorage,
        folder: &str,
        cache: impl Into<PathBuf>,
        runtime: Handle,
    ) -> ObjectVersions {
        ObjectVersions { objects, folder: folder.to_owned(), cache: cache.into(), runtime }
    }

    fn name_folder(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    fn index_name(&self, name: &str, version: u64) -> String {
        format!("{}/{version}.json", self.name_folder(name))
    }

    fn tombstone_name(&self, name: &str, version: u64) -> String {
        format!("{}/{version}.removed", self.name_folder(name))
    }

    /// Returns the numbers of a name's versions that exist, and of those that were removed.
    fn numbers(&self, name: &str) -> Result<(Vec<u64>, Vec<u64>), StoreError> {
        let objects = self.runtime.block_on(self.objects.list_flat(&self.name_folder(name)))?;
        let numbers = |suffix: &str| -> Vec<u64> {
            let number = |object: &str| parse_version(object.rsplit('/').next()?.strip_suffix(suffix)?);
            objects.iter().filter_map(|object| number(&object.name)).collect()
        };
        let (mut existing, removed) = (numbers(".json"), numbers(".removed"));
        existing.retain(|version| !removed.contains(version));
        existing.sort_unstable();
        Ok((existing, removed))
    }

    /// Returns the index of a version, or `None` if the version does not exist.
    fn index(&self, name: &str, version: u64) -> Result<Option<VersionIndex>, StoreError> {
        if self.runtime.block_on(self.objects.size(&self.tombstone_name(name, version)))?.is_some() {
            return Ok(None);
        }
        self.read_index(name, version)
    }

    /// Returns the index of a version, even if it was removed.
    fn read_index(&self, name: &str, version: u64) -> Result<Option<VersionIndex>, StoreError> {
        let object = self.index_name(name, version);
        match self.runtime.block_on(self.objects.get(&object)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
                let source = io::Error::new(io::ErrorKind::InvalidData, error);
                StoreError::Io { path: object.into(), source }
            }),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the files of a version that `is_fetched` selects to `target`, which exists as a whole or not at all.
    fn fetch(&self, index: &VersionIndex, target: &Path, is_fetched: impl Fn(&str) -> bool) -> Result<(), StoreError> {
        let parent = target.parent().unwrap_or(&self.cache);
        durable::create_directories(parent).map_err(StoreError::io(parent))?;
        let staging = StagedVersion::create_below(parent)?;
        for indexed in index.files.iter().filter(|file| is_fetched(&file.name)) {
            let path = staging.path.join(&indexed.name);
            let file = disk::create_file(&path, durable::PRIVATE_FILE_MODE).map_err(StoreError::io(&path))?;
            for part in &indexed.parts {
                let name = format!("{}/{}", index.parts, part.name);
                let bytes = self.runtime.block_on(self.objects.get_verified(&name, &part.sha256))?;
                disk::write(&file, &path, &bytes).map_err(StoreError::io(&path))?;
            }
            // The directory is complete as soon as it has its name, also after a power loss.
            disk::sync(&file, &path).map_err(StoreError::io(&path))?;
        }
        disk::sync_directory(&staging.path).map_err(StoreError::io(&staging.path))?;
        match disk::rename(&staging.path, target) {
            // Another process or thread has fetched the same files.
            Err(_) if target.is_dir() => Ok(()),
            renamed => renamed.map_err(StoreError::io(target)),
        }
    }

    /// Sends a file in parts.
    fn send_file(
        &self,
        path: &Path,
        name: &str,
        parts_folder: &str,
        parts: &mut u64,
    ) -> Result<IndexedFile, StoreError> {
        let mut file = File::open(path).map_err(StoreError::io(path))?;
        let mut indexed = IndexedFile { name: name.to_owned(), bytes: 0, parts: Vec::new() };
        loop {
            let mut bytes = Vec::new();
            (&mut file).take(PART_BYTES_MAX).read_to_end(&mut bytes).map_err(StoreError::io(path))?;
            if bytes.is_empty() {
                return Ok(indexed);
            }
            let part = IndexedPart { name: parts.to_string(), sha256: Digest::of(&bytes) };
            *parts += 1;
            indexed.bytes += bytes.len() as u64;
            let object = format!("{parts_folder}/{}", part.name);
            self.runtime.block_on(self.objects.create(&object, Bytes::from(bytes).into()))?;
            indexed.parts.push(part);
        }
    }

    /// Sends the files of a directory, and commits them as the next version.
    fn commit_directory(&self, name: &str, directory: &Path) -> Result<u64, StoreError> {
        let parts_folder = format!("{}/parts/{}", self.name_folder(name), durable::unique_suffix());
        let committed = self.send_files(directory, &parts_folder).and_then(|index| self.commit_index(name, &index));
        if committed.is_err() {
            let _ = self.runtime.block_on(self.objects.delete_folder(&parts_folder));
        }
        committed
    }

    fn send_files(&self, directory: &Path, parts_folder: &str) -> Result<VersionIndex, StoreError> {
        let mut index = VersionIndex { parts: parts_folder.to_owned(), files: Vec::new() };
        let mut parts = 0;
        let mut files = disk::list(directory).map_err(StoreError::io(directory))?;
        files.sort_by(|a, b| a.0.cmp(&b.0));
        for (path, _) in files.iter().filter(|(_, kind)| kind.is_file()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            index.files.push(self.send_file(path, &name, parts_folder, &mut parts)?);
        }
        Ok(index)
    }

    fn commit_index(&self, name: &str, index: &VersionIndex) -> Result<u64, StoreError> {
        let text = serde_json::to_vec(index).expect("an index is plain data");
        loop {
            let (existing, removed) = self.numbers(name)?;
            let version = existing.iter().chain(&removed).max().copied().unwrap_or(0).saturating_add(1);
            let object = self.index_name(name, version);
            // The index names the folder of this version's parts, which no other version has.
            let put = self.runtime.block_on(self.objects.create_unique(&object, text.clone().into()))?;
            if put == PutOutcome::Created {
                return Ok(version);
            }
        }
    }
}

impl VersionStore for ObjectVersions {
    fn names(&self) -> Result<Vec<String>, StoreError> {
        let folders = self.runtime.block_on(self.objects.list_folders(&self.folder))?;
        let mut names = Vec::new();
        for name in folders.into_iter().filter(|name| is_name(name)) {
            if !self.numbers(&name)?.0.is_empty() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn versions(&self, name: &str) -> Result<Vec<u64>, StoreError> {
        Ok(self.numbers(name)?.0)
    }

    fn local_directory(&self, name: &str, version: u64, fetch: VersionFetch) -> Result<PathBuf, StoreError> {
        let whole = self.cache.join(name).join(version.to_string());
        let Some(index) = self.index(name, version)? else {
            // It was removed, possibly on another machine. Files that are open stay readable.
            let _ = disk::remove_tree(&whole);
            return Ok(whole);
        };
        if whole.is_dir() {
            return Ok(whole);
        }
        match fetch {
            VersionFetch::All => self.fetch(&index, &whole, |_| true).map(|()| whole),
            VersionFetch::Manifest => {
                let manifest = self.cache.join(".manifests").join(name).join(version.to_string());
                if !manifest.is_dir() {
                    self.fetch(&index, &manifest, |file| file == MANIFEST_FILE)?;
                }
                Ok(manifest)
            }
        }
    }

    fn sync_versions(&self, _: &str) -> Result<(), StoreError> {
        Ok(())
    }

    fn begin(&self, name: &str) -> Result<Box<dyn VersionDraft + '_>, StoreError> {
        let versions = self.versions(name)?;
        Ok(Box::new(ObjectDraft { store: self, name: name.to_owned(), versions, staging: DraftStaging::None }))
    }

    fn stage(&self, name: &str) -> Result<StagedVersion, StoreError> {
        let directory = self.cache.join(name);
        durable::create_directories(&directory).map_err(StoreError::io(&directory))?;
        StagedVersion::create_below(&directory)
    }

    fn begin_staged<'a>(
        &'a self,
        name: &str,
        staged: &'a StagedVersion,
    ) -> Result<Box<dyn VersionDraft + 'a>, StoreError> {
        let versions = self.versions(name)?;
        let staging = DraftStaging::Caller(staged);
        Ok(Box::new(ObjectDraft { store: self, name: name.to_owned(), versions, staging }))
    }

    fn remove(&self, name: &str, version: u64) -> Result<bool, StoreError> {
        // A removal that was interrupted has written the tombstone, and is completed.
        let Some(index) = self.read_index(name, version)? else { return Ok(false) };
        let tombstone = self.tombstone_name(name, version);
        let put = self.runtime.block_on(self.objects.create(&tombstone, Bytes::new().into()))?;
        self.runtime.block_on(self.objects.delete_folder(&index.parts))?;
        self.runtime.block_on(self.objects.delete(&self.index_name(name, version)))?;
        let _ = disk::remove_tree(&self.cache.join(name).join(version.to_string()));
        Ok(put == PutOutcome::Created)
    }

    fn remove_rest(&self, _: &str) -> Result<(), StoreError> {
        // Only tombstones are left.
        Ok(())
    }
}

/// Where a draft's files are.
#[derive(Debug)]
enum DraftStaging<'a> {
    /// Nowhere yet.
    None,
    /// In a directory of the draft.
    Own(StagedVersion),
    /// In a directory of the caller.
    Caller(&'a StagedVersion),
}

/// A version that is being created.
#[derive(Debug)]
struct ObjectDraft<'a> {
    store: &'a ObjectVersions,
    name: String,
    versions: Vec<u64>,
    staging: DraftStaging<'a>,
}

impl VersionDraft for ObjectDraft<'_> {
    fn versions(&self) -> &[u64] {
        &self.versions
    }

    fn directory(&mut self) -> Result<PathBuf, StoreError> {
        if let DraftStaging::Caller(staged) = &self.staging {
            return Ok(staged.path.clone());
        }
        let staged = self.store.stage(&self.name)?;
        let path = staged.path.clone();
        self.staging = DraftStaging::Own(staged);
        Ok(path)
    }

    fn commit(self: Box<Self>) -> Result<u64, StoreError> {
        let staged = match &self.staging {
            DraftStaging::Own(staged) => staged,
            DraftStaging::Caller(staged) => staged,
            DraftStaging::None => unreachable!("`directory` is called before `commit`"),
        };
        self.store.commit_directory(&self.name, &staged.path)
    }
}

impl StagedVersion {
    /// Creates a directory in `directory`, which must exist.
    fn create_below(directory: &Path) -> Result<StagedVersion, StoreError> {
        let path = directory.join(format!(".staged-{}", durable::unique_suffix()));
        disk::make_directory(&path).map_err(StoreError::io(&path))?;
        // Nothing else is removed with it: other threads use the parent directory.
        Ok(StagedVersion { lock: None, directory: path.clone(), path })
    }
}
