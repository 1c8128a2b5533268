//! A folder of files, as columns in memory.

use std::path::Path;

use saggar_tensor::Descriptor;

use super::describe::{Description, ParquetFiles};
use super::manifest::{Column, FORMAT, Manifest, Range, file_name};
use super::{cifar, csv, describe, idx, images, npy, npz, parquet, safetensors, text};
use crate::clock::Millis;
use crate::digest::Digest;
use crate::error::DatasetError;
use crate::limits::DATASET_BYTES_MAX;

/// A column as read.
pub(super) struct DraftColumn {
    pub(super) name: String,
    pub(super) item: Descriptor,
    pub(super) classes: Vec<String>,
    pub(super) data: Vec<u8>,
}

/// A dataset as read: columns of the same number of items, splits that cover them in order.
pub(super) struct Draft {
    pub(super) columns: Vec<DraftColumn>,
    pub(super) splits: Vec<Range>,
    pub(super) items: u64,
    pub(super) description: String,
}

impl Draft {
    pub(super) fn manifest(&self, source: Option<Digest>, created_ms: Millis) -> Manifest {
        let column = |it: &DraftColumn| Column {
            name: it.name.clone(),
            item: it.item.clone(),
            classes: it.classes.clone(),
            file: file_name(&it.name),
            bytes: it.data.len() as u64,
            sha256: Digest::of(&it.data),
        };
        Manifest {
            format: FORMAT,
            items: self.items,
            columns: self.columns.iter().map(column).collect(),
            splits: self.splits.clone(),
            description: self.description.clone(),
            created_ms,
            source,
        }
    }
}

/// Reads a folder: as its `dataset.json` says, or by the names of its files.
pub(super) fn read_folder(folder: &Path) -> Result<Draft, DatasetError> {
    match describe::read(folder)? {
        Some(Description::Csv(description)) => csv::read(folder, &description),
        Some(Description::Idx(description)) => idx::read(folder, description.description),
        Some(Description::Cifar10(description)) => cifar::read(folder, description.description),
        Some(Description::Text(description)) => text::read_described(folder, &description),
        Some(Description::Npy(description)) => npy::read_described(folder, &description),
        Some(Description::Npz(description)) => npz::read(folder, description.description),
        Some(Description::Safetensors(description)) => safetensors::read(folder, description.description),
        Some(Description::Images(description)) => images::read(folder, description.description),
        Some(Description::Parquet(description)) => parquet::read(folder, &description),
        None if idx::is_there(folder) => idx::read(folder, String::new()),
        None if cifar::is_there(folder) => cifar::read(folder, String::new()),
        None if npy::is_there(folder)? => npy::read(folder),
        None if npz::is_there(folder)? => npz::read(folder, String::new()),
        None if safetensors::is_there(folder)? => safetensors::read(folder, String::new()),
        None if parquet::is_there(folder)? => parquet::read(folder, &ParquetFiles::default()),
        None if images::is_there(folder) => images::read(folder, String::new()),
        None if text::is_there(folder)? => text::read(folder),
        None => {
            let folder = folder.file_name().unwrap_or(folder.as_os_str());
            let folder = folder.to_string_lossy().into_owned();
            Err(DatasetError::UnknownFormat { folder })
        }
    }
}

/// Refuses columns that would not fit into memory.
pub(super) fn check_size(what: &str, bytes: Option<u64>) -> Result<u64, DatasetError> {
    bytes.filter(|bytes| *bytes <= DATASET_BYTES_MAX).ok_or_else(|| DatasetError::TooLarge {
        what: what.to_owned(),
        max: DATASET_BYTES_MAX,
        unit: "bytes",
    })
}
