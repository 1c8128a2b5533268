//! Imports NumPy's `.npz` files: ZIP archives of arrays.
//!
//! Several files are splits by their names. The arrays of a single file, if named `x_train`, `x_test` and so on, are
//! split by these names. Sizes in the archive's metadata are not trusted: no more is decompressed than an array's
//! header says, and that is limited before.

use std::path::Path;

use super::arrays::{self, ArraysBySplit, StagedArray};
use super::draft::DatasetDraft;
use super::npy::read_array;
use super::source::{SourceReader, list_files};
use super::staging::StagingArea;
use crate::error::{DatasetError, StoreError};
use crate::limits::DATASET_NAMES_MAX;
use crate::{regular_file, zip_directory};

/// Returns whether the folder contains such files.
pub(super) fn detect(folder: &Path) -> Result<bool, DatasetError> {
    Ok(!list_files(folder, "npz")?.is_empty())
}

/// Reads the folder's archives.
pub(super) fn read(
    staging: &StagingArea<'_>,
    folder: &Path,
    description: String,
) -> Result<DatasetDraft, DatasetError> {
    let mut held = 0;
    let parts =
        list_files(folder, "npz")?.into_iter().map(|(part, path)| Ok((part, read_archive(staging, &path, &mut held)?)));
    arrays::build_draft(
        staging,
        arrays::split_by_file(parts.collect::<Result<ArraysBySplit, DatasetError>>()?),
        description,
    )
}

/// Reads an archive's arrays. The dataset's arrays so far take `held` bytes.
fn read_archive(staging: &StagingArea<'_>, path: &Path, held: &mut u64) -> Result<Vec<StagedArray>, DatasetError> {
    let archive = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let malformed = |reason: String| DatasetError::Malformed { file: archive.clone(), reason };
    let file = regular_file::open(path).map_err(StoreError::io(path))?;
    let mut zip = zip_directory::open(file).map_err(|error| malformed(format!("not a ZIP archive: {error}")))?;
    if zip.is_empty() {
        return Err(DatasetError::Empty { file: archive });
    }
    if zip.len() > DATASET_NAMES_MAX {
        let max = DATASET_NAMES_MAX as u64;
        return Err(DatasetError::TooLarge { what: archive, max, unit: "arrays" });
    }
    let mut arrays = Vec::with_capacity(zip.len());
    for at in 0..zip.len() {
        let entry = zip.by_index(at).map_err(|error| malformed(format!("entry {}: {error}", at + 1)))?;
        let name = entry.name().map_err(|error| malformed(format!("entry {}: {error}", at + 1)))?.into_owned();
        let Some(field) = name.strip_suffix(".npy") else {
            return Err(malformed(format!("entry {name} is no array: its name does not end in .npy")));
        };
        let mut source = SourceReader::new(format!("{archive}/{name}"), entry);
        arrays.push(read_array(staging, &mut source, field.to_owned(), held)?);
    }
    Ok(arrays)
}
