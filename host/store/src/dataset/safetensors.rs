//! `.safetensors` files: each tensor is a field, with items along its first axis.
//!
//! Several files are parts by their names; tensors of an only one are told apart as the arrays of an `.npz` file are.
//! Headers are read by the reader of weights, which is strict.

use std::path::Path;

use super::arrays::{self, Array, Parts};
use super::ingest::Draft;
use super::source::{Source, named};
use crate::error::DatasetError;
use crate::limits::{DATASET_BYTES_MAX, WEIGHTS_HEADER_BYTES_MAX};
use crate::models::weights::header;

/// Whether the folder has such files.
pub(super) fn is_there(folder: &Path) -> bool {
    !named(folder, "safetensors").is_empty()
}

/// Reads the folder's files.
pub(super) fn read(folder: &Path, description: String) -> Result<Draft, DatasetError> {
    let parts = named(folder, "safetensors").into_iter().map(|(part, path)| Ok((part, read_file(&path)?)));
    arrays::draft(arrays::of_files(parts.collect::<Result<Parts, DatasetError>>()?), description)
}

fn read_file(path: &Path) -> Result<Vec<Array>, DatasetError> {
    let mut source = Source::open(path)?;
    let bytes = source.rest(DATASET_BYTES_MAX + WEIGHTS_HEADER_BYTES_MAX)?;
    let malformed = |reason: String| DatasetError::Malformed { file: source.name.clone(), reason };
    let entries = header::read(&bytes).map_err(malformed)?;
    if entries.is_empty() {
        return Err(DatasetError::Empty { file: source.name });
    }
    let array = |entry: header::Entry| {
        let file = format!("{}/{}", source.name, entry.name);
        let dims: Vec<u64> = entry.descriptor.shape.dims().iter().map(|dim| *dim as u64).collect();
        let (items, item) = arrays::items(&file, entry.descriptor.dtype, &dims)?;
        Ok(Array { file, name: entry.name, items, item, data: bytes[entry.place].to_vec() })
    };
    entries.into_iter().map(array).collect()
}
