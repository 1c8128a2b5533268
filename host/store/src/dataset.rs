//! Datasets: folders of files taken in once, as immutable versions of dense columns.
//!
//! ```text
//! datasets/<name>/<version>/manifest.json  image.bin  label.bin
//! ```
//! A column holds one tensor for every item, little-endian and row-major, one after the other.
//! Splits are ranges of items.

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saggar_tensor::Descriptor;

use crate::clock::UnixMillis;
use crate::digest::Digest;
use crate::error::DatasetError;
use crate::versions::{self, VersionDirectories};

mod arrays;
mod cifar;
mod csv;
mod description;
mod export;
mod idx;
mod images;
mod in_memory;
mod ingest;
mod manifest;
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
#[cfg(test)]
mod tests;
mod text;
pub mod upload;

pub use export::{DatasetExport, ExportedFile, ExportedTar};
use manifest::DatasetManifest;
use map::ColumnBytes;
use staging::{QuotaCheck, StagingArea};

/// A column: a tensor for every item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetField {
    /// Its name.
    pub name: String,
    /// Data type and shape of one item.
    pub item: Descriptor,
    /// Names of the classes where the field is a class number, else empty.
    pub classes: Vec<String>,
}

/// A named part: a range of items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetSplit {
    /// Its name: `train`.
    pub name: String,
    /// Its items.
    pub items: Range<u64>,
}

/// A dataset version, open to be read. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ColumnarDataset(Arc<LoadedDataset>);

#[derive(Debug)]
struct LoadedDataset {
    fields: Vec<DatasetField>,
    columns: Vec<ColumnBytes>,
    splits: Vec<DatasetSplit>,
    items: u64,
    digest: Digest,
}

/// A dataset version, as a listing shows it.
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
    /// Bytes of all columns.
    pub bytes: u64,
    /// Its columns.
    pub fields: Vec<DatasetField>,
    /// Its parts.
    pub splits: Vec<DatasetSplit>,
    /// When it was taken in.
    pub created_ms: UnixMillis,
    /// Its directory.
    pub dir: PathBuf,
}

impl ColumnarDataset {
    /// The columns.
    pub fn fields(&self) -> &[DatasetField] {
        &self.0.fields
    }

    /// The column of this name.
    ///
    /// # Errors
    /// `Unknown`, listing those there are.
    pub fn field(&self, name: &str) -> Result<&DatasetField, DatasetError> {
        Ok(&self.0.fields[self.column_index(name)?])
    }

    /// The parts.
    pub fn splits(&self) -> &[DatasetSplit] {
        &self.0.splits
    }

    /// The items of a part, or of all of it.
    ///
    /// # Errors
    /// `Unknown`, listing the parts there are.
    pub fn items(&self, split: Option<&str>) -> Result<Range<u64>, DatasetError> {
        let Some(name) = split else { return Ok(0..self.0.items) };
        let found = self.0.splits.iter().find(|split| split.name == name);
        let found = found.ok_or_else(|| {
            let known = self.0.splits.iter().map(|split| split.name.as_str());
            unknown_name_error("split", name, known)
        })?;
        Ok(found.items.clone())
    }

    /// The number of items in a part, or in all of it.
    ///
    /// # Errors
    /// As `items`.
    pub fn len(&self, split: Option<&str>) -> Result<u64, DatasetError> {
        self.items(split).map(|items| items.end - items.start)
    }

    /// Whether there is nothing in it. Ingest refuses such datasets.
    pub fn is_empty(&self) -> bool {
        self.0.items == 0
    }

    /// Digest over fields, splits and columns: equal digests are equal datasets.
    pub fn digest(&self) -> Digest {
        self.0.digest
    }

    /// A whole column, items in order.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn column(&self, field: &str) -> Result<&[u8], DatasetError> {
        Ok(&self.0.columns[self.column_index(field)?])
    }

    /// One tensor of these items, numbered within the whole dataset: `[items, item...]`.
    ///
    /// # Errors
    /// `Unknown` for a field or an item that there is not.
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

    /// As `read`, without a copy where the items follow each other: a pass in order reads the column itself.
    ///
    /// # Errors
    /// As `read`.
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

/// The datasets under one directory.
#[derive(Clone, Debug)]
pub struct DatasetStore {
    versions: VersionDirectories,
}

impl DatasetStore {
    /// The datasets under `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> DatasetStore {
        DatasetStore { versions: VersionDirectories::new(dir) }
    }

    /// Takes in a folder as the next version of `name`; the same content gives the version that it
    /// has already. A failure leaves nothing behind. May take long; memory holds at most
    /// [`INGEST_BYTES_MAX`](crate::limits::INGEST_BYTES_MAX) bytes.
    ///
    /// # Errors
    /// `BadName`; `DiskFull`; `Store`; and every error that names a place in a file of the folder.
    pub fn ingest(&self, name: &str, folder: &Path, now_ms: UnixMillis) -> Result<DatasetInfo, DatasetError> {
        self.ingest_from(name, folder, None, now_ms, &|_| Ok(()))
    }

    /// As [`ingest`](Self::ingest), from an upload if one is named. `room` is asked before columns are written.
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
            let find = |version: &&u64| self.is_intact(name, **version, &digest);
            Ok::<_, DatasetError>(versions.iter().rev().find(find).copied())
        };
        let complete = || Ok(staging.complete(&manifest, &draft)?);
        let placed = self.versions.publish_staged(name, &staged, same, complete)?;
        self.info(name, placed.version)
    }

    fn is_intact(&self, name: &str, version: u64, digest: &Digest) -> bool {
        let dir = self.versions.directory(name, version);
        // The cheap look first: most versions are others.
        DatasetManifest::read(&dir).is_ok_and(|it| it.digest() == *digest) && ColumnarDataset::open(&dir).is_ok()
    }

    /// A version, as a listing shows it.
    ///
    /// # Errors
    /// `BadName`; `NotFound`; `Damaged`; `Store`.
    pub fn info(&self, name: &str, version: u64) -> Result<DatasetInfo, DatasetError> {
        check_name(name)?;
        let dir = self.versions.directory(name, version);
        let manifest = DatasetManifest::read(&dir)?;
        Ok(DatasetInfo {
            name: name.to_owned(),
            version,
            digest: manifest.digest(),
            items: manifest.items,
            bytes: manifest.columns.iter().map(|column| column.bytes).sum(),
            fields: manifest.fields(),
            splits: manifest.splits(),
            created_ms: manifest.created_ms,
            dir,
        })
    }

    /// Every version of every dataset that can be read, by name and number.
    ///
    /// # Errors
    /// `Store` where a directory cannot be listed.
    pub fn list(&self) -> Result<Vec<DatasetInfo>, DatasetError> {
        let mut infos = Vec::new();
        for name in self.versions.names()? {
            for version in self.versions.versions(&name)? {
                match self.info(&name, version) {
                    Ok(info) => infos.push(info),
                    Err(error) => tracing::warn!(name, version, %error, "dataset left out"),
                }
            }
        }
        Ok(infos)
    }

    /// The version that `mnist` (the newest) or `mnist/2` means.
    ///
    /// # Errors
    /// `BadName`; `NotFound`; `Damaged`; `Store`.
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

    /// Takes a version away for good: its number is not used again. Whoever has it open goes on reading it. Whether
    /// somebody wants it still is for the caller to ask.
    ///
    /// # Errors
    /// `BadName`; `NotFound`; `Store`.
    pub fn remove(&self, name: &str, version: u64) -> Result<(), DatasetError> {
        check_name(name)?;
        if self.versions.remove(name, version)? {
            return Ok(());
        }
        Err(DatasetError::NotFound { kind: "dataset", name: format!("{name}/{version}") })
    }

    /// The version made from this upload, if there is one; it is on the disk then.
    fn find_version_of_upload(&self, name: &str, source: &Digest) -> Result<Option<u64>, DatasetError> {
        let is_from = |version: &u64| {
            let manifest = DatasetManifest::read(&self.versions.directory(name, *version));
            manifest.is_ok_and(|manifest| manifest.source == Some(*source))
        };
        let found = self.versions.versions(name)?.into_iter().rev().find(is_from);
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
