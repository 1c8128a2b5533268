//! Imports a folder of files as columns in a staging directory: chooses the format's module.

use std::path::Path;

use super::description::{
    ColumnFilesDescription, CsvDescription, DatasetDescription, ImageFoldersDescription, JsonLinesDescription,
    WebDatasetDescription,
};
use super::draft::DatasetDraft;
use super::source::list_files;
use super::staging::StagingArea;
use super::{
    arrow, cifar, csv, description, idx, images, json_lines, npy, npz, parquet, safetensors, text, webdataset,
};
use crate::error::DatasetError;
use crate::limits::DATASET_ITEMS_MAX;

/// Reads a folder into a staging directory, as its `dataset.json` says, or by the names of its files.
pub(super) fn read_folder(folder: &Path, staging: &StagingArea<'_>) -> Result<DatasetDraft, DatasetError> {
    let draft = read_format(folder, staging)?;
    if draft.items == 0 {
        let name = folder.file_name().unwrap_or(folder.as_os_str());
        return Err(DatasetError::Empty { file: name.to_string_lossy().into_owned() });
    }
    if draft.items > DATASET_ITEMS_MAX {
        let what = "the dataset".to_owned();
        return Err(DatasetError::TooLarge { what, max: DATASET_ITEMS_MAX, unit: "items" });
    }
    Ok(draft)
}

fn read_format(folder: &Path, staging: &StagingArea<'_>) -> Result<DatasetDraft, DatasetError> {
    match description::read(folder)? {
        Some(DatasetDescription::Csv(description)) => csv::read(staging, folder, &description),
        Some(DatasetDescription::Idx(description)) => idx::read(staging, folder, description.description),
        Some(DatasetDescription::Cifar10(description)) => cifar::read(staging, folder, description.description),
        Some(DatasetDescription::Text(description)) => text::read_described(staging, folder, &description),
        Some(DatasetDescription::Npy(description)) => npy::read_described(staging, folder, &description),
        Some(DatasetDescription::Npz(description)) => npz::read(staging, folder, description.description),
        Some(DatasetDescription::Safetensors(description)) => {
            safetensors::read(staging, folder, description.description)
        }
        Some(DatasetDescription::Images(description)) => images::read(staging, folder, description),
        Some(DatasetDescription::Parquet(description)) => parquet::read(staging, folder, &description),
        Some(DatasetDescription::Arrow(description)) => arrow::read(staging, folder, &description),
        Some(DatasetDescription::JsonLines(description)) => json_lines::read(staging, folder, &description),
        Some(DatasetDescription::WebDataset(description)) => webdataset::read(staging, folder, &description),
        None if idx::detect(folder) => idx::read(staging, folder, String::new()),
        None if cifar::detect(folder) => cifar::read(staging, folder, String::new()),
        None if npy::detect(folder)? => npy::read(staging, folder),
        None if npz::detect(folder)? => npz::read(staging, folder, String::new()),
        None if safetensors::detect(folder)? => safetensors::read(staging, folder, String::new()),
        None if parquet::detect(folder)? => parquet::read(staging, folder, &ColumnFilesDescription::default()),
        None if arrow::detect(folder)? => arrow::read(staging, folder, &ColumnFilesDescription::default()),
        None if json_lines::detect(folder)? => json_lines::read(staging, folder, &JsonLinesDescription::default()),
        None if webdataset::detect(folder)? => webdataset::read(staging, folder, &WebDatasetDescription::default()),
        None if images::detect(folder) => images::read(staging, folder, ImageFoldersDescription::default()),
        None if csv::detect(folder)? => csv::read(staging, folder, &CsvDescription::default()),
        None if text::detect(folder)? => text::read(staging, folder),
        None => {
            let refused = images::unsupported_images_hint(folder) + &unsupported_tables_hint(folder);
            let folder = folder.file_name().unwrap_or(folder.as_os_str());
            let folder = folder.to_string_lossy().into_owned();
            Err(DatasetError::UnknownFormat { folder, refused })
        }
    }
}

/// Endings of tables that are not read.
const UNSUPPORTED_TABLES: [&str; 3] = ["xlsx", "xls", "orc"];

/// Returns a hint for an error about tables in other formats; empty if the folder has no such files.
fn unsupported_tables_hint(folder: &Path) -> String {
    let has = |ending: &&&str| list_files(folder, ending).is_ok_and(|files| !files.is_empty());
    match UNSUPPORTED_TABLES.iter().find(has) {
        Some(ending) => {
            format!(
                "; .{ending} files are not read: write Parquet, for example with pandas: frame.to_parquet(\"data.parquet\")"
            )
        }
        None => String::new(),
    }
}
