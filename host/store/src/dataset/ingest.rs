//! A folder of files, as columns in files of a staging directory.

use std::path::Path;

use saggar_tensor::Descriptor;

use super::describe::{Description, ParquetFiles};
use super::manifest::{Column, FORMAT, Manifest, Range, file_name};
use super::staging::{ColumnData, Staging};
use super::{cifar, csv, describe, idx, images, npy, npz, parquet, safetensors, text};
use crate::clock::Millis;
use crate::digest::Digest;
use crate::error::DatasetError;
use crate::limits::DATASET_ITEMS_MAX;

/// A column as read.
pub(super) struct DraftColumn {
    pub(super) name: String,
    pub(super) item: Descriptor,
    pub(super) classes: Vec<String>,
    pub(super) data: ColumnData,
}

/// A dataset as read: columns of the same number of items, splits that cover them in order.
pub(super) struct Draft {
    pub(super) columns: Vec<DraftColumn>,
    pub(super) splits: Vec<Range>,
    pub(super) items: u64,
    pub(super) description: String,
}

impl Draft {
    /// What the version's manifest says. Reads every column for its digest.
    pub(super) fn manifest(&self, source: Option<Digest>, created_ms: Millis) -> Result<Manifest, DatasetError> {
        let mut columns = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let (sha256, bytes) = Digest::of_reader(&column.data.open()?).map_err(column.data.unreadable())?;
            columns.push(Column {
                name: column.name.clone(),
                item: column.item.clone(),
                classes: column.classes.clone(),
                file: file_name(&column.name),
                bytes,
                sha256,
            });
        }
        let (splits, description) = (self.splits.clone(), self.description.clone());
        Ok(Manifest { format: FORMAT, items: self.items, columns, splits, description, created_ms, source })
    }
}

/// Reads a folder into a staging directory: as its `dataset.json` says, or by the names of its files.
pub(super) fn read_folder(folder: &Path, staging: &Staging<'_>) -> Result<Draft, DatasetError> {
    let draft = read_format(folder, staging)?;
    if draft.items > DATASET_ITEMS_MAX {
        let what = "the dataset".to_owned();
        return Err(DatasetError::TooLarge { what, max: DATASET_ITEMS_MAX, unit: "items" });
    }
    Ok(draft)
}

fn read_format(folder: &Path, staging: &Staging<'_>) -> Result<Draft, DatasetError> {
    match describe::read(folder)? {
        Some(Description::Csv(description)) => csv::read(staging, folder, &description),
        Some(Description::Idx(description)) => idx::read(staging, folder, description.description),
        Some(Description::Cifar10(description)) => cifar::read(staging, folder, description.description),
        Some(Description::Text(description)) => text::read_described(staging, folder, &description),
        Some(Description::Npy(description)) => npy::read_described(staging, folder, &description),
        Some(Description::Npz(description)) => npz::read(staging, folder, description.description),
        Some(Description::Safetensors(description)) => safetensors::read(staging, folder, description.description),
        Some(Description::Images(description)) => images::read(staging, folder, description.description),
        Some(Description::Parquet(description)) => parquet::read(staging, folder, &description),
        None if idx::is_there(folder) => idx::read(staging, folder, String::new()),
        None if cifar::is_there(folder) => cifar::read(staging, folder, String::new()),
        None if npy::is_there(folder)? => npy::read(staging, folder),
        None if npz::is_there(folder)? => npz::read(staging, folder, String::new()),
        None if safetensors::is_there(folder)? => safetensors::read(staging, folder, String::new()),
        None if parquet::is_there(folder)? => parquet::read(staging, folder, &ParquetFiles::default()),
        None if images::is_there(folder) => images::read(staging, folder, String::new()),
        None if csv::is_there(folder)? => csv::read_alone(staging, folder),
        None if text::is_there(folder)? => text::read(staging, folder),
        None => {
            let refused = images::refused(folder);
            let folder = folder.file_name().unwrap_or(folder.as_os_str());
            let folder = folder.to_string_lossy().into_owned();
            Err(DatasetError::UnknownFormat { folder, refused })
        }
    }
}
