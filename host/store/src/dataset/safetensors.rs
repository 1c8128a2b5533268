//! Imports `.safetensors` files: each tensor is a field, with items along its first axis.
//!
//! Several files are splits by their names. The tensors of a single file are split by their names, as the arrays of an
//! `.npz` file are. Headers are parsed by the strict parser of weights.

use std::path::Path;

use saggar_tensor::Descriptor;

use super::arrays::{self, ArraysBySplit, StagedArray};
use super::draft::DatasetDraft;
use super::source::{SourceReader, list_files};
use super::staging::StagingArea;
use crate::error::DatasetError;
use crate::limits::DATASET_HEADER_BYTES_MAX;
use crate::safetensors_header as header;

/// Returns whether the folder contains such files.
pub(super) fn detect(folder: &Path) -> Result<bool, DatasetError> {
    Ok(!list_files(folder, "safetensors")?.is_empty())
}

/// Reads the folder's files.
pub(super) fn read(
    staging: &StagingArea<'_>,
    folder: &Path,
    description: String,
) -> Result<DatasetDraft, DatasetError> {
    let mut held = 0;
    let parts = list_files(folder, "safetensors")?;
    let parts = parts.into_iter().map(|(part, path)| Ok((part, read_file(staging, &path, &mut held)?)));
    arrays::build_draft(
        staging,
        arrays::split_by_file(parts.collect::<Result<ArraysBySplit, DatasetError>>()?),
        description,
    )
}

/// Reads a file's tensors in the order of their bytes. The dataset's arrays so far take `held` bytes.
pub(super) fn read_file(
    staging: &StagingArea<'_>,
    path: &Path,
    held: &mut u64,
) -> Result<Vec<StagedArray>, DatasetError> {
    let mut source = SourceReader::open(path)?;
    let name = source.name.clone();
    let malformed = |reason: String| DatasetError::Malformed { file: name.clone(), reason };
    let length = header::header_length(&source.take_up_to(header::LENGTH_BYTES as u64)?).map_err(malformed)?;
    if length > DATASET_HEADER_BYTES_MAX {
        let max = DATASET_HEADER_BYTES_MAX;
        return Err(malformed(format!(
            "its header would have {length} bytes, and at most {max} are read of a dataset"
        )));
    }
    let text = source.take_up_to(length as u64)?;
    if text.len() < length {
        return Err(malformed(header::truncated_header_message(length, text.len())));
    }
    // The size of the data is known only after reading it, because the file can be compressed.
    let entries = header::tensors(&text, usize::MAX).map_err(malformed)?;
    let mut arrays = Vec::with_capacity(entries.len());
    for entry in entries {
        let (items, item) = item_layout(&name, &entry)?;
        let file = format!("{name}/{}", entry.name);
        let bytes = entry.byte_range.len() as u64;
        *held = staging.check_size(&file, held.checked_add(bytes))?;
        let mut data = staging.writer(1)?;
        match source.copy_to_column(bytes, bytes, &mut data, |_, _| Ok(())) {
            Err(DatasetError::Truncated { found, .. }) => {
                let first = (header::LENGTH_BYTES + length) as u64;
                return Err(malformed(header::truncated_data_message(&entry, found.saturating_sub(first) as usize)));
            }
            copied => copied?,
        }
        arrays.push(StagedArray { file, name: entry.name, items, item, data: data.finish()? });
    }
    match source.skip_to_end()? {
        0 if arrays.is_empty() => Err(DatasetError::Empty { file: name }),
        0 => Ok(arrays),
        bytes => Err(malformed(header::trailing_bytes_message(bytes))),
    }
}

/// Returns the number of items of a tensor, and the descriptor of one item.
fn item_layout(file: &str, entry: &header::TensorEntry) -> Result<(u64, Descriptor), DatasetError> {
    let dims: Vec<u64> = entry.descriptor.shape.dims().iter().map(|dim| *dim as u64).collect();
    arrays::item_layout(&format!("{file}/{}", entry.name), entry.descriptor.dtype, &dims)
}
