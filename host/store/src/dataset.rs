//! Datasets: folders of files taken in once, as immutable versions of dense columns.
//!
//! ```text
//! datasets/<name>/<version>/manifest.json  image.bin  label.bin
//! ```
//! A column holds one tensor for every item, little-endian and row-major, one after the other.
//! Splits are ranges of items.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saggar_tensor::Descriptor;

use crate::clock::Millis;
use crate::digest::Digest;
use crate::durable;
use crate::error::{DatasetError, Problem, StoreError};
use crate::versions::{self, Versions};

mod cifar;
mod csv;
mod describe;
mod idx;
mod ingest;
mod made;
mod manifest;
mod source;
#[cfg(test)]
mod tests;
mod text;
pub mod upload;

use manifest::{MANIFEST_FILE, Manifest};

/// A column: a tensor for every item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Data type and shape of one item.
    pub item: Descriptor,
    /// Names of the classes where the field is a class number, else empty.
    pub classes: Vec<String>,
}

/// A named part: a range of items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Its name: `train`.
    pub name: String,
    /// Its items.
    pub items: Range<u64>,
}

/// A dataset version, in memory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dataset(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    fields: Vec<Field>,
    columns: Vec<Arc<[u8]>>,
    splits: Vec<Split>,
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
    pub fields: Vec<Field>,
    /// Its parts.
    pub splits: Vec<Split>,
    /// When it was taken in.
    pub created_ms: Millis,
    /// Its directory.
    pub dir: PathBuf,
}

impl Dataset {
    /// Loads a version's directory into memory, checking every byte.
    ///
    /// # Errors
    /// `NotFound`; `Damaged` naming the file; `Store`.
    pub fn open(dir: &Path) -> Result<Dataset, DatasetError> {
        let manifest = Manifest::read(dir)?;
        let mut columns = Vec::with_capacity(manifest.columns.len());
        for column in &manifest.columns {
            let file = dir.join(&column.file);
            let bytes = match fs::read(&file) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(DatasetError::Damaged { file, problem: Problem::Missing });
                }
                Err(error) => return Err(StoreError::io(&file)(error).into()),
            };
            let (expected, found) = (column.bytes, bytes.len() as u64);
            if found != expected {
                let problem = Problem::WrongSize { expected, found };
                return Err(DatasetError::Damaged { file, problem });
            }
            let (expected, found) = (column.sha256, Digest::of(&bytes));
            if found != expected {
                let problem = Problem::WrongDigest { expected, found };
                return Err(DatasetError::Damaged { file, problem });
            }
            columns.push(bytes.into());
        }
        let digest = manifest.digest();
        let fields = manifest.fields();
        let splits = manifest.splits();
        Ok(Dataset(Arc::new(Loaded { fields, columns, splits, items: manifest.items, digest })))
    }

    /// The columns.
    pub fn fields(&self) -> &[Field] {
        &self.0.fields
    }

    /// The column of this name.
    ///
    /// # Errors
    /// `Unknown`, listing those there are.
    pub fn field(&self, name: &str) -> Result<&Field, DatasetError> {
        Ok(&self.0.fields[self.index(name)?])
    }

    /// The parts.
    pub fn splits(&self) -> &[Split] {
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
            unknown("split", name, known)
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
    pub fn column(&self, field: &str) -> Result<&Arc<[u8]>, DatasetError> {
        Ok(&self.0.columns[self.index(field)?])
    }

    /// One tensor of these items, numbered within the whole dataset: `[items, item...]`.
    ///
    /// # Errors
    /// `Unknown` for a field or an item that there is not.
    pub fn read(&self, field: &str, items: &[u64]) -> Result<Vec<u8>, DatasetError> {
        let mut bytes = Vec::new();
        self.read_into(field, items, &mut bytes)?;
        Ok(bytes)
    }

    /// As `read`, appending to a buffer that the caller uses again.
    ///
    /// # Errors
    /// As `read`; the buffer may have grown then.
    pub fn read_into(&self, field: &str, items: &[u64], bytes: &mut Vec<u8>) -> Result<(), DatasetError> {
        let index = self.index(field)?;
        let size = self.0.fields[index].item.bytes();
        let column = &self.0.columns[index];
        bytes.reserve(size * items.len());
        for &item in items {
            if item >= self.0.items {
                let known = format!("items 0 to {}", self.0.items.saturating_sub(1));
                return Err(DatasetError::Unknown { kind: "item", name: item.to_string(), known });
            }
            let start = item as usize * size;
            bytes.extend_from_slice(&column[start..start + size]);
        }
        Ok(())
    }

    fn index(&self, name: &str) -> Result<usize, DatasetError> {
        let found = self.0.fields.iter().position(|field| field.name == name);
        found.ok_or_else(|| {
            let known = self.0.fields.iter().map(|field| field.name.as_str());
            unknown("field", name, known)
        })
    }
}

fn unknown<'a>(kind: &'static str, name: &str, known: impl Iterator<Item = &'a str>) -> DatasetError {
    let known = known.collect::<Vec<_>>().join(", ");
    DatasetError::Unknown { kind, name: name.to_owned(), known }
}

/// The datasets under one directory.
#[derive(Clone, Debug)]
pub struct Datasets {
    versions: Versions,
}

impl Datasets {
    /// The datasets under `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Datasets {
        Datasets { versions: Versions::new(dir) }
    }

    /// Takes in a folder as the next version of `name`; the same content gives the version that it
    /// has already. A failure leaves nothing behind. May take long.
    ///
    /// # Errors
    /// `BadName`; `Store`; and every error that names a place in a file of the folder.
    pub fn ingest(&self, name: &str, folder: &Path, now_ms: Millis) -> Result<DatasetInfo, DatasetError> {
        self.ingest_from(name, folder, None, now_ms)
    }

    fn ingest_from(
        &self,
        name: &str,
        folder: &Path,
        source: Option<Digest>,
        now_ms: Millis,
    ) -> Result<DatasetInfo, DatasetError> {
        check_name(name)?;
        let draft = ingest::read_folder(folder)?;
        let manifest = draft.manifest(source, now_ms);
        let digest = manifest.digest();
        let text = manifest.encode();
        let same = |versions: &[u64]| {
            let find = |version: &&u64| self.is_whole(name, **version, &digest);
            Ok::<_, DatasetError>(versions.iter().rev().find(find).copied())
        };
        let fill = |dir: &Path| {
            let columns = manifest.columns.iter().map(|column| column.file.as_str());
            let columns = columns.zip(draft.columns.iter().map(|column| column.data.as_slice()));
            for (file, bytes) in columns.chain([(MANIFEST_FILE, text.as_slice())]) {
                let path = dir.join(file);
                durable::write_new(&path, bytes).map_err(StoreError::io(&path))?;
            }
            Ok(())
        };
        let placed = self.versions.publish(name, same, fill)?;
        self.info(name, placed.version)
    }

    fn is_whole(&self, name: &str, version: u64, digest: &Digest) -> bool {
        let dir = self.versions.directory(name, version);
        // The cheap look first: most versions are others.
        Manifest::read(&dir).is_ok_and(|it| it.digest() == *digest) && Dataset::open(&dir).is_ok()
    }

    /// A version, as a listing shows it.
    ///
    /// # Errors
    /// `BadName`; `NotFound`; `Damaged`; `Store`.
    pub fn info(&self, name: &str, version: u64) -> Result<DatasetInfo, DatasetError> {
        check_name(name)?;
        let dir = self.versions.directory(name, version);
        let manifest = Manifest::read(&dir)?;
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
            Some((name, version)) => self.info(name, versions::version_of(version).ok_or_else(missing)?),
            None => {
                check_name(reference)?;
                let newest = self.versions.versions(reference)?.last().copied();
                self.info(reference, newest.ok_or_else(missing)?)
            }
        }
    }

    /// The version made from this upload, if there is one.
    fn version_from(&self, name: &str, source: &Digest) -> Result<Option<u64>, DatasetError> {
        let is_from = |version: &u64| {
            let manifest = Manifest::read(&self.versions.directory(name, *version));
            manifest.is_ok_and(|manifest| manifest.source == Some(*source))
        };
        Ok(self.versions.versions(name)?.into_iter().rev().find(is_from))
    }
}

fn check_name(name: &str) -> Result<(), DatasetError> {
    if versions::is_name(name) {
        return Ok(());
    }
    Err(DatasetError::BadName { name: name.to_owned() })
}
