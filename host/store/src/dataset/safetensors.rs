//! `.safetensors` files: each tensor is a field, with items along its first axis.
//!
//! Several files are parts by their names; tensors of an only one are told apart as the arrays of an `.npz` file are.
//! Headers are read by the reader of weights, which is strict.

use std::path::Path;

use saggar_tensor::Descriptor;

use super::arrays::{self, Array, Parts};
use super::ingest::{Draft, check_size};
use super::source::{Source, named};
use crate::error::DatasetError;
use crate::models::weights::header;

/// Whether the folder has such files.
pub(super) fn is_there(folder: &Path) -> Result<bool, DatasetError> {
    Ok(!named(folder, "safetensors")?.is_empty())
}

/// Reads the folder's files.
pub(super) fn read(folder: &Path, description: String) -> Result<Draft, DatasetError> {
    let mut held = 0;
    let parts = named(folder, "safetensors")?.into_iter().map(|(part, path)| Ok((part, read_file(&path, &mut held)?)));
    arrays::draft(arrays::of_files(parts.collect::<Result<Parts, DatasetError>>()?), description)
}

/// Reads a file's tensors one after the other, as they lie in it. All arrays of the dataset so far take `held` bytes.
pub(super) fn read_file(path: &Path, held: &mut u64) -> Result<Vec<Array>, DatasetError> {
    let mut source = Source::open(path)?;
    let name = source.name.clone();
    let malformed = |reason: String| DatasetError::Malformed { file: name.clone(), reason };
    let length = header::length(&source.up_to(header::LENGTH_BYTES as u64)?).map_err(malformed)?;
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
        *held = check_size(&file, held.checked_add(bytes))?;
        let data = source.up_to(bytes)?;
        if (data.len() as u64) < bytes {
            return Err(malformed(header::ends_early(&entry, entry.place.start + data.len())));
        }
        arrays.push(Array { file, name: entry.name, items, item, data });
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
