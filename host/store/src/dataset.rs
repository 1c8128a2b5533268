//! Datasets: imported folders of files, stored as immutable versions of dense columns.
//!
//! ```text
//! datasets/<name>/<version>/manifest.json  image.bin  label.bin
//! ```
//!
//! A column holds one tensor per item, little-endian and row-major, contiguous in the order of items. Splits are ranges
//! of items.

use std::borrow::Cow;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saggar_clock::UnixMillis;
use saggar_tensor::Descriptor;

use crate::bucket_folders::DATASETS_FOLDER;
use crate::digest::Digest;
use crate::error::{DatasetError, StoreError};
use crate::objects::BlockingObjects;
use crate::state_dir::StateDir;
use crate::versions::directories::VersionDirectories;
use crate::versions::objects::ObjectVersions;
use crate::versions::{self, ManifestSource, VersionStore};

mod arrays;
mod arrow;
mod cifar;
mod csv;
mod description;
mod draft;
mod export;
mod idx;
mod images;
mod in_memory;
mod ingest;
mod json_lines;
pub(crate) mod manifest;
mod map;
mod npy;
mod npz;
mod open;
mod output;
mod parquet;
mod safetensors;
mod source;
mod split;
mod staging;
mod table;
#[cfg(test)]
mod tests;
mod text;
pub mod upload;
mod webdataset;

pub use description::schema::dataset_description_schema;
pub use export::{DatasetExport, ExportedFile, ExportedTar};
use manifest::DatasetManifest;
use map::ColumnBytes;
use staging::{QuotaCheck, StagingArea};

/// A column: one tensor per item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetField {
    /// Its name.
    pub name: String,
    /// Data type and shape of one item.
    pub item: Descriptor,
    /// Names of the classes if the field is a class label, otherwise empty.
    pub classes: Vec<String>,
}

/// A named split: a range of items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetSplit {
    /// Its name, such as `train`.
    pub name: String,
    /// Its items.
    pub items: Range<u64>,
}

/// A dataset version opened for reading. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ColumnarDataset(Arc<LoadedDataset>);

#[derive(Debug)]
struct LoadedDataset {
    fields: Vec<DatasetField>,
    columns: Vec<ColumnBytes>,
    splits: Vec<DatasetSplit>,
    items: u64,
    digest: Digest,
    /// Keeps the files, if they are a copy that could be removed.
    _pin: Option<File>,
}

/// An entry of a listing of dataset versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetInfo {
    /// The dataset.
    pub name: String,
    /// The version.
    pub version: u64,
    /// Digest over fields, splits and columns.
    pub digest: Digest,
    /// Number of items.
    pub items: u64,
    /// Size of all columns in bytes.
    pub bytes: u64,
    /// Its columns.
    pub fields: Vec<DatasetField>,
    /// Its splits.
    pub splits: Vec<DatasetSplit>,
    /// The time of the import.
    pub created_ms: UnixMillis,
    /// Messages for the user about the import: what was inferred, left out or replaced.
    pub notes: Vec<String>,
}

impl DatasetInfo {
    fn of(name: &str, version: u64, manifest: DatasetManifest) -> DatasetInfo {
        DatasetInfo {
            name: name.to_owned(),
            version,
            digest: manifest.digest(),
            items: manifest.items,
            bytes: manifest.columns.iter().map(|column| column.bytes).sum(),
            fields: manifest.fields(),
            splits: manifest.splits(),
            created_ms: manifest.created_ms,
            notes: manifest.notes,
        }
    }
}

impl ColumnarDataset {
    /// Returns the columns.
    pub fn fields(&self) -> &[DatasetField] {
        &self.0.fields
    }

    /// Returns the column with this name.
    ///
    /// # Errors
    /// Returns `Unknown`, listing the columns that exist.
    pub fn field(&self, name: &str) -> Result<&DatasetField, DatasetError> {
        Ok(&self.0.fields[self.column_index(name)?])
    }

    /// Returns the splits.
    pub fn splits(&self) -> &[DatasetSplit] {
        &self.0.splits
    }

    /// Returns the items of a split, or all items if `split` is `None`.
    ///
    /// # Errors
    /// Returns `Unknown`, listing the splits that exist.
    pub fn items(&self, split: Option<&str>) -> Result<Range<u64>, DatasetError> {
        let Some(name) = split else { return Ok(0..self.0.items) };
        let found = self.0.splits.iter().find(|split| split.name == name);
        let found = found.ok_or_else(|| {
            let known = self.0.splits.iter().map(|split| split.name.as_str());
            unknown_name_error("split", name, known)
        })?;
        Ok(found.items.clone())
    }

    /// Returns the number of items in a split, or in the whole dataset.
    ///
    /// # Errors
    /// The same as `items`.
    pub fn len(&self, split: Option<&str>) -> Result<u64, DatasetError> {
        self.items(split).map(|items| items.end - items.start)
    }

    /// Returns whether the dataset has no items. Import refuses such datasets.
    pub fn is_empty(&self) -> bool {
        self.0.items == 0
    }

    /// Returns the digest over fields, splits and columns. Equal digests mean equal datasets.
    pub fn digest(&self) -> Digest {
        self.0.digest
    }

    /// Returns a whole column, in the order of items.
    ///
    /// # Errors
    /// Returns `Unknown`.
    pub fn column(&self, field: &str) -> Result<&[u8], DatasetError> {
        Ok(&self.0.columns[self.column_index(field)?])
    }

    /// Returns one tensor of these items, which are numbered within the whole dataset: `[items, item...]`.
    ///
    /// # Errors
    /// Returns `Unknown` for a field or an item that does not exist.
    pub fn read(&self, field: &str, items: &[u64]) -> Result<Vec<u8>, DatasetError> {
        let index = self.column_index(field)?;
        let size = self.0.fields[index].item.bytes();
        let column = &self.0.columns[index];
        let mut bytes = Vec::with_capacity(size * items.len());
        for &item in items {
            if item >= self.0.items {
                let known = format!("items 0 to {}", self.0.items.saturating_sub(1));
                return Err(DatasetError::Unknown { kind: "item", name: item.to_string(), known });
            }
            let start = item as usize * size;
            bytes.extend_from_slice(&column[start..start + size]);
        }
        Ok(bytes)
    }

    /// Returns the same as `read`, without a copy if the items are consecutive, so that a pass in order reads the
    /// column itself.
    ///
    /// # Errors
    /// The same as `read`.
    pub fn view(&self, field: &str, items: &[u64]) -> Result<Cow<'_, [u8]>, DatasetError> {
        let follow = items.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]));
        let (Some(first), Some(last), true) = (items.first(), items.last(), follow) else {
            return self.read(field, items).map(Cow::Owned);
        };
        if *last >= self.0.items {
            return self.read(field, items).map(Cow::Owned);
        }
        let index = self.column_index(field)?;
        let size = self.0.fields[index].item.bytes();
        Ok(Cow::Borrowed(&self.0.columns[index][*first as usize * size..(*last as usize + 1) * size]))
    }

    fn column_index(&self, name: &str) -> Result<usize, DatasetError> {
        let found = self.0.fields.iter().position(|field| field.name == name);
        found.ok_or_else(|| {
            let known = self.0.fields.iter().map(|field| field.name.as_str());
            unknown_name_error("field", name, known)
        })
    }
}

fn unknown_name_error<'a>(kind: &'static str, name: &str, known: impl Iterator<Item = &'a str>) -> DatasetError {
    let known = known.collect::<Vec<_>>().join(", ");
    DatasetError::Unknown { kind, name: name.to_owned(), known }
}

/// The datasets of one installation. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DatasetStore {
    versions: Arc<dyn VersionStore>,
}

/// Returns the source of a version that was made of a fetched file. It differs from the source of every upload.
fn fetched_source(sha256: &Digest) -> Digest {
    Digest::of(format!("fetched {sha256}").as_bytes())
}

impl DatasetStore {
    /// Returns the datasets under `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> DatasetStore {
        DatasetStore { versions: Arc::new(VersionDirectories::new(dir)) }
    }

    /// Returns the datasets in an object store. Versions that are opened are fetched into `cache`, to be mapped.
    pub fn in_objects(objects: BlockingObjects, cache: impl Into<PathBuf>) -> DatasetStore {
        DatasetStore { versions: Arc::new(ObjectVersions::new(objects, DATASETS_FOLDER, cache)) }
    }

    /// Returns the datasets of an installation: those in its bucket, or those of the state directory without one.
    pub fn of_home(home: &StateDir) -> DatasetStore {
        match home.bucket() {
            Some(bucket) => DatasetStore::in_objects(bucket.clone(), home.fetched_versions()),
            None => DatasetStore::new(home.datasets()),
        }
    }

    /// Imports a folder as the next version of `name`, or returns the existing version with the same content. A failure
    /// leaves nothing behind. Can take long. Uses at most [`INGEST_BYTES_MAX`](crate::limits::INGEST_BYTES_MAX) bytes
    /// of memory.
    ///
    /// # Errors
    /// Returns `BadName`; `DiskFull`; `Store`; and every error that names a position in a file of the folder.
    pub fn ingest(&self, name: &str, folder: &Path, now_ms: UnixMillis) -> Result<DatasetInfo, DatasetError> {
        self.ingest_from(name, folder, None, now_ms, &|_| Ok(()))
    }

    /// Imports as [`ingest`](Self::ingest) does. `room` checks the quota for a number of bytes before they are written.
    ///
    /// # Errors
    /// Returns the same errors, and those of `room`.
    pub fn ingest_within(
        &self,
        name: &str,
        folder: &Path,
        now_ms: UnixMillis,
        room: impl Fn(u64) -> Result<(), StoreError>,
    ) -> Result<DatasetInfo, DatasetError> {
        self.ingest_from(name, folder, None, now_ms, &room)
    }

    /// Imports the content of a fetched file with this SHA-256, as [`ingest_within`](Self::ingest_within) does. The version
    /// is found by [`find_fetched`](Self::find_fetched).
    ///
    /// # Errors
    /// Returns the same errors.
    pub fn ingest_fetched(
        &self,
        name: &str,
        folder: &Path,
        sha256: &Digest,
        now_ms: UnixMillis,
        room: impl Fn(u64) -> Result<(), StoreError>,
    ) -> Result<DatasetInfo, DatasetError> {
        self.ingest_from(name, folder, Some(fetched_source(sha256)), now_ms, &room)
    }

    /// Returns the version of `name` that was made of a fetched file with this SHA-256, or `None`.
    ///
    /// # Errors
    /// Returns `BadName`; `Damaged`; `Store`.
    pub fn find_fetched(&self, name: &str, sha256: &Digest) -> Result<Option<DatasetInfo>, DatasetError> {
        check_name(name)?;
        let found = self.find_version_of_upload(name, &fetched_source(sha256))?;
        found.map(|version| self.info(name, version)).transpose()
    }

    /// Imports as [`ingest`](Self::ingest) does, from an upload if one is given. Calls `room` before columns are
    /// written.
    fn ingest_from(
        &self,
        name: &str,
        folder: &Path,
        source: Option<Digest>,
        now_ms: UnixMillis,
        room: &QuotaCheck<'_>,
    ) -> Result<DatasetInfo, DatasetError> {
        check_name(name)?;
        let staged = self.versions.stage(name)?;
        let staging = StagingArea::new(staged.path(), folder, room)?;
        let draft = ingest::read_folder(folder, &staging)?;
        let manifest = draft.manifest(source, now_ms)?;
        let digest = manifest.digest();
        let same = |versions: &[u64]| {
            if versions.is_empty() {
                return Ok::<_, DatasetError>(None);
            }
            // The manifests first, because they are cheap and most versions differ.
            let is_equal = |source: &ManifestSource| {
                DatasetManifest::read_from(source).is_ok_and(|manifest| manifest.digest() == digest)
            };
            let listed = self.versions.list(Some(name))?.into_iter().rev();
            let mut equal = listed.filter(|it| it.manifest.as_ref().is_ok_and(is_equal)).map(|it| it.version);
            Ok(equal.find(|version| self.is_intact(name, *version)))
        };
        let complete = |_: &Path| Ok(staging.complete(&manifest, draft.columns.iter().map(|column| &column.data))?);
        let version = self.versions.begin_staged(name, &staged)?;
        let placed = versions::publish(&*self.versions, name, version, same, complete)?;
        self.info(name, placed.version)
    }

    fn is_intact(&self, name: &str, version: u64) -> bool {
        self.versions.local_directory(name, version).is_ok_and(|dir| self.open_directory(&dir).is_ok())
    }

    /// Returns the description of a version.
    ///
    /// # Errors
    /// Returns `BadName`; `NotFound`; `Damaged`; `Store`.
    pub fn info(&self, name: &str, version: u64) -> Result<DatasetInfo, DatasetError> {
        check_name(name)?;
        let manifest = DatasetManifest::read_from(&self.versions.manifest(name, version)?)?;
        Ok(DatasetInfo::of(name, version, manifest))
    }

    /// Opens a version for reading.
    ///
    /// # Errors
    /// Returns `NotFound` if it was removed; `Damaged`; `Store`.
    pub fn open(&self, info: &DatasetInfo) -> Result<ColumnarDataset, DatasetError> {
        let opened = self.open_directory(&self.directory(info)?);
        let Err(DatasetError::Damaged { file, .. }) = &opened else { return opened };
        match file.parent().is_some_and(|dir| self.versions.discard_copy(dir)) {
            // Only the copy on this machine was damaged.
            true => self.open_directory(&self.directory(info)?),
            false => opened,
        }
    }

    /// Opens a directory of this store for reading, and keeps it until the dataset is dropped.
    fn open_directory(&self, dir: &Path) -> Result<ColumnarDataset, DatasetError> {
        let pin = self.versions.pin(dir);
        ColumnarDataset::open_pinned(dir, pin)
    }

    /// Returns the directory of this machine with the files of a version. It does not exist if the version does not.
    ///
    /// # Errors
    /// Returns `Store` if the files cannot be fetched.
    pub fn directory(&self, info: &DatasetInfo) -> Result<PathBuf, DatasetError> {
        Ok(self.versions.local_directory(&info.name, info.version)?)
    }

    /// Returns every readable version of every dataset, sorted by name and number.
    ///
    /// # Errors
    /// Returns `Store` if a directory cannot be listed.
    pub fn list(&self) -> Result<Vec<DatasetInfo>, DatasetError> {
        let mut infos = Vec::new();
        for it in self.versions.list(None)? {
            let manifest = it.manifest.map_err(DatasetError::from);
            match manifest.and_then(|source| DatasetManifest::read_from(&source)) {
                Ok(manifest) => infos.push(DatasetInfo::of(&it.name, it.version, manifest)),
                Err(error) => {
                    let (name, version) = (&it.name, it.version);
                    tracing::warn!(name, version, %error, "unreadable dataset omitted from the list");
                }
            }
        }
        Ok(infos)
    }

    /// Returns the version that a reference means: `mnist` is the newest, `mnist/2` is version 2.
    ///
    /// # Errors
    /// Returns `BadName`; `NotFound`; `Damaged`; `Store`.
    pub fn resolve(&self, reference: &str) -> Result<DatasetInfo, DatasetError> {
        let missing = || DatasetError::NotFound { kind: "dataset", name: reference.to_owned() };
        match reference.split_once('/') {
            Some((name, version)) => self.info(name, versions::parse_version(version).ok_or_else(missing)?),
            None => {
                check_name(reference)?;
                let newest = self.versions.versions(reference)?.last().copied();
                self.info(reference, newest.ok_or_else(missing)?)
            }
        }
    }

    /// Removes a version permanently. Its number is not reused, and readers that have it open can still read it. The
    /// caller must check whether it is still in use.
    ///
    /// # Errors
    /// Returns `BadName`; `NotFound`; `Store`.
    pub fn remove(&self, name: &str, version: u64) -> Result<(), DatasetError> {
        check_name(name)?;
        if self.versions.remove(name, version)? {
            return Ok(());
        }
        Err(DatasetError::NotFound { kind: "dataset", name: format!("{name}/{version}") })
    }

    /// Returns the version made from this upload, if it exists, and makes sure that it is durable.
    fn find_version_of_upload(&self, name: &str, source: &Digest) -> Result<Option<u64>, DatasetError> {
        let is_from = |manifest: &ManifestSource| {
            DatasetManifest::read_from(manifest).is_ok_and(|manifest| manifest.source == Some(*source))
        };
        let listed = self.versions.list(Some(name))?.into_iter().rev();
        let mut found = listed.filter(|it| it.manifest.as_ref().is_ok_and(is_from)).map(|it| it.version);
        let found = found.next();
        if found.is_some() {
            self.versions.sync_versions(name)?;
        }
        Ok(found)
    }
}

fn check_name(name: &str) -> Result<(), DatasetError> {
    if versions::is_name(name) {
        return Ok(());
    }
    Err(DatasetError::BadName { name: name.to_owned() })
}
