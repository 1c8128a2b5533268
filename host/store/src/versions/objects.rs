//! Versions in an object store.
//!
//! ```text
//! <folder>/<name>/<version>.json        the index: names, sizes and parts of the version's files, and its manifest
//! <folder>/<name>/<version>.removed     marks a version as removed, so that its number is not used again
//! <folder>-parts/<name>/<id>/<n>        the content, in parts of at most PART_BYTES_MAX
//! <folder>-parts/<name>/<id>/index.json the index, if a publication is registered before it becomes visible
//! ```
//!
//! The index is written last, and only if its name is free: that commits the version. Files are fetched into a cache of
//! this machine when they are read, and verified against the index. A listing reads the names of all indexes, and the
//! indexes that this process has not read before.
//!
//! No lock keeps two processes from publishing equal content at the same time; both versions are complete then.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use parking_lot::Mutex;
use saggar_clock::UnixMillis;

use super::fetch_cache::FetchCache;
use super::publication_fence::{PendingPublication, PublicationFence};
use super::staged_draft::{DirectoryCommit, StagedDraft};
use super::{
    ListedVersion, MANIFEST_FILE, ManifestSource, StagedVersion, VersionDraft, VersionStore, is_name, parse_version,
};
use crate::digest::Digest;
use crate::durable::{self, disk};
use crate::error::StoreError;
use crate::limits::{FETCHED_BYTES_MAX, INDEXED_MANIFEST_BYTES_MAX};
use crate::objects::{BlockingObjects, ObjectInfo, PutOutcome};

mod abandoned;
mod pending;
mod version_index;

pub(crate) use pending::{PENDING_INDEX_NAME, RenumberPublication};
pub(crate) use version_index::{IndexedFile, IndexedPart, VersionIndex};

/// Maximum bytes of one part of a file, which is in memory while it is sent or received.
pub(crate) const PART_BYTES_MAX: u64 = 64 << 20;

/// Returns the folder of the parts of a version of the versions below `folder`.
pub(crate) fn parts_folder(folder: &str, name: &str, id: &str) -> String {
    format!("{folder}-parts/{name}/{id}")
}

/// Indexes that were read, with the time of that, by name and version.
type KnownIndexes = BTreeMap<(String, u64), (UnixMillis, Arc<VersionIndex>)>;

/// The named, numbered versions below one folder of an object store.
#[derive(Debug)]
pub(crate) struct ObjectVersions {
    objects: BlockingObjects,
    folder: String,
    cache: FetchCache,
    /// The indexes that were read, by name and number. An index is never changed; another one of the same number, in a
    /// bucket that was emptied, has another time.
    indexes: Mutex<KnownIndexes>,
    /// Decides whether a new version may become visible, if somebody does.
    fence: Option<Arc<dyn PublicationFence>>,
}

/// The objects of a listing: the versions that exist, with the time of their index, and those that were removed.
#[derive(Debug, Default)]
struct VersionNumbers {
    existing: BTreeMap<(String, u64), UnixMillis>,
    /// Whether all objects of the removed version are removed.
    removed: BTreeMap<(String, u64), bool>,
}

/// The versions of all names, and the indexes of those that exist, or `None` for one that was removed meanwhile.
#[derive(Debug)]
pub(crate) struct VersionListing {
    pub(crate) existing: BTreeMap<(String, u64), Result<Arc<VersionIndex>, StoreError>>,
    pub(crate) removed: BTreeSet<(String, u64)>,
}

impl ObjectVersions {
    /// Returns the versions below `folder` of `objects`. Files are fetched into `cache`.
    pub(crate) fn new(objects: BlockingObjects, folder: &str, cache: impl Into<PathBuf>) -> ObjectVersions {
        let cache = FetchCache::new(cache.into(), FETCHED_BYTES_MAX);
        ObjectVersions { objects, folder: folder.to_owned(), cache, indexes: Mutex::default(), fence: None }
    }

    /// Asks `fence` before a version becomes visible, if there is one.
    pub(crate) fn with_fence(self, fence: Option<Arc<dyn PublicationFence>>) -> ObjectVersions {
        ObjectVersions { fence, ..self }
    }

    fn index_name(&self, name: &str, version: u64) -> String {
        format!("{}/{name}/{version}.json", self.folder)
    }

    fn tombstone_name(&self, name: &str, version: u64) -> String {
        format!("{}/{name}/{version}.removed", self.folder)
    }

    /// Lists the versions of a name, or of all names, with one request for each thousand.
    fn numbers(&self, name: Option<&str>) -> Result<VersionNumbers, StoreError> {
        let prefix = name.map_or_else(|| self.folder.clone(), |name| format!("{}/{name}", self.folder));
        let listed = self.objects.wait(|objects| async move { objects.list(&prefix).await })?;
        let mut numbers = VersionNumbers::default();
        for object in &listed {
            let Some((key, is_removed)) = self.parse_name(object) else { continue };
            if is_removed {
                numbers.removed.insert(key, object.size == 0);
            } else {
                numbers.existing.insert(key, object.written_ms);
            }
        }
        numbers.existing.retain(|key, _| !numbers.removed.contains_key(key));
        Ok(numbers)
    }

    /// Returns the version that an object is the index or the tombstone of, and whether it is the tombstone.
    fn parse_name(&self, object: &ObjectInfo) -> Option<((String, u64), bool)> {
        let (name, file) = object.name.strip_prefix(&self.folder)?.strip_prefix('/')?.split_once('/')?;
        let (number, suffix) = file.split_once('.')?;
        let key = (name.to_owned(), parse_version(number)?);
        match suffix {
            "json" if is_name(name) => Some((key, false)),
            "removed" if is_name(name) => Some((key, true)),
            _ => None,
        }
    }

    /// Returns the versions of a name, or of all names, with their indexes.
    pub(crate) fn listing(&self, name: Option<&str>) -> Result<VersionListing, StoreError> {
        let VersionNumbers { existing, removed } = self.numbers(name)?;
        let is_known = |key: &(String, u64), written: &UnixMillis, it: &BTreeMap<_, (UnixMillis, _)>| {
            it.get(key).is_some_and(|(then, _)| then == written)
        };
        let missing: Vec<_> = {
            let mut indexes = self.indexes.lock();
            // Nothing is kept of versions that do not exist any more.
            indexes.retain(|key, _| existing.contains_key(key) || name.is_some_and(|name| name != key.0));
            existing.iter().filter(|(key, written)| !is_known(key, written, &indexes)).collect()
        };
        let objects: Vec<String> = missing.iter().map(|((name, version), _)| self.index_name(name, *version)).collect();
        let requested = objects.clone();
        let read = self.objects.wait(|objects| async move { objects.get_all(requested).await })?;
        let mut failed = BTreeMap::new();
        let mut indexes = self.indexes.lock();
        for ((object, (key, written)), text) in objects.iter().zip(missing).zip(read) {
            match text.map(|text| VersionIndex::parse(object, &text)).transpose() {
                Ok(Some(index)) => drop(indexes.insert(key.clone(), (*written, Arc::new(index)))),
                // It was removed meanwhile.
                Ok(None) => {}
                Err(error) => drop(failed.insert(key.clone(), Err(error))),
            }
        }
        let found = existing.keys().filter_map(|key| Some((key.clone(), Ok(Arc::clone(&indexes.get(key)?.1)))));
        let mut existing: BTreeMap<_, _> = found.collect();
        existing.extend(failed);
        Ok(VersionListing { existing, removed: removed.into_keys().collect() })
    }

    /// Returns the index of a version, or `None` if the version does not exist.
    pub(crate) fn index(&self, name: &str, version: u64) -> Result<Option<VersionIndex>, StoreError> {
        let object = self.index_name(name, version);
        let wanted = object.clone();
        let text = self.objects.wait(|objects| async move { objects.find(&wanted).await })?;
        text.map(|text| VersionIndex::parse(&object, &text)).transpose()
    }

    /// Fetches the files of a version into `directory`, and syncs each.
    pub(crate) fn fetch_files(&self, index: &VersionIndex, directory: &Path, mode: u32) -> Result<(), StoreError> {
        for indexed in &index.files {
            let path = directory.join(&indexed.name);
            let file = disk::create_file(&path, mode).map_err(StoreError::io(&path))?;
            for part in &indexed.parts {
                let (name, sha256) = (format!("{}/{}", index.parts, part.name), part.sha256);
                let bytes = self.objects.wait(|objects| async move { objects.get_verified(&name, &sha256).await })?;
                disk::write(&file, &path, &bytes).map_err(StoreError::io(&path))?;
            }
            // The directory is complete as soon as it has its name, also after a power loss.
            disk::sync(&file, &path).map_err(StoreError::io(&path))?;
        }
        Ok(())
    }

    /// Returns the cached directory of a version, which is fetched if it is not there.
    fn cached_directory(&self, index: &VersionIndex) -> Result<PathBuf, StoreError> {
        let fetch = |directory: &Path| self.fetch_files(index, directory, durable::PRIVATE_FILE_MODE);
        self.cache.get_or_fetch(index.id(), index.bytes(), fetch)
    }

    /// Returns where the manifest of a version is: in its index, or in its files if it is large.
    fn manifest_source(&self, index: &VersionIndex) -> Result<ManifestSource, StoreError> {
        match index.manifest.clone() {
            Some(text) => {
                let path = self.cache.directory(index.id()).join(MANIFEST_FILE);
                Ok(ManifestSource::Text { path, text })
            }
            None => Ok(ManifestSource::Directory(self.cached_directory(index)?)),
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
            self.objects.wait(|objects| async move { objects.create(&object, Bytes::from(bytes).into()).await })?;
            indexed.parts.push(part);
        }
    }

    /// Sends the files of a directory, and commits them: as the version of this number, or as the next one. Returns the
    /// version with its index, or `None` if the number is taken.
    pub(crate) fn commit_directory(
        &self,
        name: &str,
        directory: &Path,
        number: Option<u64>,
    ) -> Result<Option<(u64, VersionIndex)>, StoreError> {
        let parts_folder = parts_folder(&self.folder, name, &durable::random_hex::<16>());
        let mut is_registered = false;
        let committed = self.send_files(directory, &parts_folder).and_then(|index| {
            let version = self.commit_index(name, &index, number, &mut is_registered)?;
            Ok(version.map(|version| (version, index)))
        });
        // A registered version can become visible later.
        if !matches!(committed, Ok(Some(_))) && !is_registered {
            let _ = self.objects.wait(|objects| async move { objects.delete_folder(&parts_folder).await });
        }
        committed
    }

    fn send_files(&self, directory: &Path, parts_folder: &str) -> Result<VersionIndex, StoreError> {
        let mut index = VersionIndex { parts: parts_folder.to_owned(), files: Vec::new(), manifest: None };
        let mut parts = 0;
        let mut files = disk::list(directory).map_err(StoreError::io(directory))?;
        files.sort_by(|a, b| a.0.cmp(&b.0));
        for (path, _) in files.iter().filter(|(_, kind)| kind.is_file()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // Temporary files of the preparation are no part of the version.
            if name.starts_with('.') {
                continue;
            }
            if name == MANIFEST_FILE {
                let text = String::from_utf8(disk::read(path).map_err(StoreError::io(path))?);
                index.manifest = text.ok().filter(|text| text.len() <= INDEXED_MANIFEST_BYTES_MAX);
            }
            index.files.push(self.send_file(path, &name, parts_folder, &mut parts)?);
        }
        Ok(index)
    }

    /// Makes a version visible whose parts were sent. Sets `is_registered` once the fence has permitted that.
    fn commit_index(
        &self,
        name: &str,
        index: &VersionIndex,
        number: Option<u64>,
        is_registered: &mut bool,
    ) -> Result<Option<u64>, StoreError> {
        if self.fence.is_some() {
            self.store_pending_index(index)?;
        }
        let text = Bytes::from(index.encode());
        loop {
            let VersionNumbers { existing, removed } = self.numbers(Some(name))?;
            let last = existing.keys().chain(removed.keys()).map(|key| key.1).max().unwrap_or(0);
            let version = number.unwrap_or(last.saturating_add(1));
            if removed.contains_key(&(name.to_owned(), version)) {
                return Ok(None);
            }
            if let Some(fence) = &self.fence {
                let (id, model) = (index.id().to_owned(), name.to_owned());
                fence.register(&PendingPublication { id, model, version })?;
                *is_registered = true;
            }
            let (object, text) = (self.index_name(name, version), text.clone());
            // The index names the folder of this version's parts, which no other version has.
            let put = self.objects.wait(|objects| async move { objects.create_unique(&object, text).await })?;
            if put == PutOutcome::Created {
                return Ok(Some(version));
            }
            if number.is_some() {
                return Ok(None);
            }
        }
    }

    /// Removes the assignment of a name to projects, which is defined in `projects`.
    fn remove_projects(&self, name: &str) -> Result<(), StoreError> {
        let folder = format!("{}-projects/{name}", self.folder);
        self.objects.wait(|objects| async move { objects.delete_folder(&folder).await })
    }

    /// Removes the objects of a version that has a tombstone, which is empty from then on.
    fn complete_removal(&self, name: &str, version: u64) -> Result<(), StoreError> {
        let (tombstone, index) = (self.tombstone_name(name, version), self.index_name(name, version));
        self.objects.wait(|objects| async move {
            let parts = objects.get(&tombstone).await?;
            objects.delete(&index).await?;
            if let Ok(parts) = std::str::from_utf8(&parts)
                && !parts.is_empty()
            {
                objects.delete_folder(parts).await?;
            }
            objects.replace(&tombstone, Bytes::new().into()).await
        })
    }
}

impl VersionStore for ObjectVersions {
    fn names(&self) -> Result<Vec<String>, StoreError> {
        let mut names: Vec<String> = self.numbers(None)?.existing.into_keys().map(|(name, _)| name).collect();
        names.dedup();
        Ok(names)
    }

    fn versions(&self, name: &str) -> Result<Vec<u64>, StoreError> {
        Ok(self.numbers(Some(name))?.existing.into_keys().map(|(_, version)| version).collect())
    }

    fn local_directory(&self, name: &str, version: u64) -> Result<PathBuf, StoreError> {
        match self.index(name, version)? {
            Some(index) => self.cached_directory(&index),
            None => Ok(self.cache.directory(&format!(".missing-{name}-{version}"))),
        }
    }

    fn manifest(&self, name: &str, version: u64) -> Result<ManifestSource, StoreError> {
        let Some(index) = self.index(name, version)? else {
            return Ok(ManifestSource::Directory(self.cache.directory(&format!(".missing-{name}-{version}"))));
        };
        self.manifest_source(&index)
    }

    fn list(&self, name: Option<&str>) -> Result<Vec<ListedVersion>, StoreError> {
        let listed = |((name, version), index): ((String, u64), Result<Arc<VersionIndex>, StoreError>)| {
            let manifest = index.and_then(|index| self.manifest_source(&index));
            ListedVersion { name, version, manifest }
        };
        Ok(self.listing(name)?.existing.into_iter().map(listed).collect())
    }

    fn pin(&self, directory: &Path) -> Option<File> {
        self.cache.pin(directory)
    }

    fn discard_copy(&self, directory: &Path) -> bool {
        self.cache.remove(directory);
        true
    }

    fn sync_versions(&self, _: &str) -> Result<(), StoreError> {
        Ok(())
    }

    fn begin(&self, name: &str) -> Result<Box<dyn VersionDraft + '_>, StoreError> {
        StagedDraft::begin(self, name, None)
    }

    fn stage(&self, _: &str) -> Result<StagedVersion, StoreError> {
        self.cache.make_room(0, SystemTime::now());
        self.cache.stage()
    }

    fn begin_staged<'a>(
        &'a self,
        name: &str,
        staged: &'a StagedVersion,
    ) -> Result<Box<dyn VersionDraft + 'a>, StoreError> {
        StagedDraft::begin(self, name, Some(staged))
    }

    /// Also completes removals of this name that were interrupted.
    fn remove(&self, name: &str, version: u64) -> Result<bool, StoreError> {
        let numbers = self.numbers(Some(name))?;
        for ((_, version), _) in numbers.removed.iter().filter(|(_, is_complete)| !**is_complete) {
            self.complete_removal(name, *version)?;
        }
        if !numbers.existing.contains_key(&(name.to_owned(), version)) {
            return Ok(false);
        }
        let Some(index) = self.index(name, version)? else { return Ok(false) };
        let (tombstone, parts) = (self.tombstone_name(name, version), Bytes::from(index.parts.clone()));
        let put = self.objects.wait(|objects| async move { objects.create(&tombstone, parts.into()).await })?;
        self.complete_removal(name, version)?;
        self.cache.remove(&self.cache.directory(index.id()));
        if numbers.existing.len() == 1 {
            self.remove_projects(name)?;
        }
        Ok(put == PutOutcome::Created)
    }

    fn remove_rest(&self, name: &str) -> Result<(), StoreError> {
        // Only tombstones are left besides.
        if self.versions(name)?.is_empty() { self.remove_projects(name) } else { Ok(()) }
    }
}

impl DirectoryCommit for ObjectVersions {
    /// The files stay in the cache, because they are usually read next.
    fn commit_staged(&self, name: &str, staged: &StagedVersion) -> Result<u64, StoreError> {
        let committed = self.commit_directory(name, staged.path(), None)?;
        let (version, index) = committed.expect("the next number is not taken");
        let _ = self.cache.install(staged, index.id());
        Ok(version)
    }
}
