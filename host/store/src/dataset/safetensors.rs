//! `.safetensors` files: each tensor is a field, with items along its first axis.
//!
//! Several files are parts by their names; tensors of an only one are told apart as the arrays of an `.npz` file are.
//! Headers are read by the reader of weights, which is strict.

use std::path::Path;

use saggar_tensor::Descriptor;

use super::arrays::{self, Array, Parts};
use super::ingest::Draft;
use super::source::{Source, named};
use super::staging::Staging;
use crate::error::DatasetError;
use crate::limits::DATASET_HEADER_BYTES_MAX;
use crate::models::weights::header;

/// Whether the folder has such files.
pub(super) fn is_there(folder: &Path) -> Result<bool, DatasetError> {
    Ok(!named(folder, "safetensors")?.is_empty())
}

/// Reads the folder's files.
pub(super) fn read(staging: &Staging<'_>, folder: &Path, description: String) -> Result<Draft, DatasetError> {
    let mut held = 0;
    let parts = named(folder, "safetensors")?;
    let parts = parts.into_iter().map(|(part, path)| Ok((part, read_file(staging, &path, &mut held)?)));
    arrays::draft(staging, arrays::of_files(parts.collect::<Result<Parts, DatasetError>>()?), description)
}

/// Reads a file's tensors one after the other, as they lie in it. All arrays of the dataset so far take `held` bytes.
pub(super) fn read_file(staging: &Staging<'_>, path: &Path, held: &mut u64) -> Result<Vec<Array>, DatasetError> {
    let mut source = Source::open(path)?;
    let name = source.name.clone();
    let malformed = |reason: String| DatasetError::Malformed { file: name.clone(), reason };
    let length = header::length(&source.up_to(header::LENGTH_BYTES as u64)?).map_err(malformed)?;
    if length > DATASET_HEADER_BYTES_MAX {
        let max = DATASET_HEADER_BYTES_MAX;
        return Err(malformed(format!(
            "its header would have {length} bytes, and at most {max} are read of a dataset"
        )));
    }
    let text = source.up_to(length as u64)?;
    if text.len() < length {
        return Err(malformed(header::cut_short(length, text.len())));
    }
    // How many bytes follow is known when they are read: the file may be compressed.
    let entries = header::tensors(&text, usize::MAX).map_err(malformed)?;
    let mut arrays = Vec::with_capacity(entries.len());
    for entry in entries {
        let (items, item) = items(&name, &entry)?;
        let file = format!("{name}/{}", entry.name);
        let bytes = entry.place.len() as u64;
        *held = staging.check_size(&file, held.checked_add(bytes))?;
        let mut data = staging.writer(1)?;
        match source.copy(bytes, bytes, &mut data, |_, _| Ok(())) {
            Err(DatasetError::Truncated { found, .. }) => {
                let first = (header::LENGTH_BYTES + length) as u64;
                return Err(malformed(header::ends_early(&entry, found.saturating_sub(first) as usize)));
            }
            copied => copied?,
        }
        arrays.push(Array { file, name: entry.name, items, item, data: data.finish()? });
    }
    match source.skip()? {
        0 if arrays.is_empty() => Err(DatasetError::Empty { file: name }),
        0 => Ok(arrays),
        bytes => Err(malformed(header::goes_on(bytes))),
    }
}

/// The items of a tensor, and the descriptor of one.
fn items(file: &str, entry: &header::Entry) -> Result<(u64, Descriptor), DatasetError> {
    let dims: Vec<u64> = entry.descriptor.shape.dims().iter().map(|dim| *dim as u64).collect();
    arrays::items(&format!("{file}/{}", entry.name), entry.descriptor.dtype, &dims)
}
