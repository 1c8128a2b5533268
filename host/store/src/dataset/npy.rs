//! Imports NumPy's `.npy` files: one array each, with items along the first axis.
//!
//! A file consists of the magic bytes, a version, the length of the header, the header, which is the text of a Python
//! dictionary, and the elements. Source: NumPy, `numpy.lib.format`, versions 1.0 to 3.0. Big-endian elements and
//! Fortran order are converted to little-endian and row-major. Types that no column can have, above all objects, are
//! refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use saggar_tensor::{DType, Descriptor};

use super::arrays::{self, ArraysBySplit, StagedArray};
use super::description::{ArrayFilesDescription, check_field_names};
use super::draft::{DatasetDraft, DraftColumn};
use super::source::{SourceReader, list_files};
use super::staging::{StagedColumn, StagingArea};
use super::upload::is_relative_file_path;
use crate::error::{DatasetError, StoreError};
use crate::limits::NPY_HEADER_BYTES_MAX;

mod header;
pub(super) mod labels;

use header::NpyHeader;

const MAGIC: [u8; 6] = *b"\x93NUMPY";
/// Bytes of magic and version.
const BEGIN: u64 = 8;

/// Returns whether the folder contains such files, or folders of them.
pub(super) fn detect(folder: &Path) -> Result<bool, DatasetError> {
    Ok(!list_files(folder, "npy")?.is_empty() || !list_split_folders(folder)?.is_empty())
}

/// Reads a folder without a description: one field per file. If it has no files but folders of files, these are splits.
pub(super) fn read(staging: &StagingArea<'_>, folder: &Path) -> Result<DatasetDraft, DatasetError> {
    let files = list_files(folder, "npy")?;
    if !files.is_empty() {
        return arrays::build_draft(
            staging,
            arrays::split_by_array_name(read_fields(staging, "", files, &mut 0)?),
            String::new(),
        );
    }
    let mut held = 0;
    let parts = list_split_folders(folder)?.into_iter().map(|(part, files)| {
        let arrays = read_fields(staging, &format!("{part}/"), files, &mut held)?;
        Ok((part, arrays))
    });
    arrays::build_draft(staging, parts.collect::<Result<ArraysBySplit, DatasetError>>()?, String::new())
}

/// Reads the files that a description names.
pub(super) fn read_described(
    staging: &StagingArea<'_>,
    folder: &Path,
    description: &ArrayFilesDescription,
) -> Result<DatasetDraft, DatasetError> {
    check_field_names(description.fields.iter().map(|field| field.name.as_str()))?;
    let (mut columns, mut held) = (Vec::new(), 0);
    let mut first: Option<(String, u64)> = None;
    for field in &description.fields {
        if !is_relative_file_path(&field.file) {
            return Err(DatasetError::BadPath { path: field.file.clone() });
        }
        let path = folder.join(&field.file);
        if !path.is_file() {
            let (file, needed_by) = (field.file.clone(), "dataset.json".to_owned());
            return Err(DatasetError::MissingFile { file, needed_by });
        }
        let mut source = SourceReader::open(&path)?;
        source.name.clone_from(&field.file);
        let array = read_array(staging, &mut source, field.name.clone(), &mut held)?;
        let (other, expected) = first.get_or_insert_with(|| (array.file.clone(), array.items)).clone();
        if array.items != expected {
            return Err(DatasetError::CountMismatch { file: array.file, found: array.items, other, expected });
        }
        labels::check_class_indices(&array, &field.classes)?;
        let (name, classes) = (array.name, field.classes.clone());
        columns.push(DraftColumn { name, item: array.item, classes, data: array.data });
    }
    let items = first.map_or(0, |(_, items)| items);
    let splits = description.split_ranges(items)?;
    Ok(DatasetDraft { columns, splits, items, description: description.description.clone(), notes: Vec::new() })
}

/// Returns its subfolders that contain such files.
fn list_split_folders(folder: &Path) -> Result<BTreeMap<String, BTreeMap<String, PathBuf>>, DatasetError> {
    let mut parts = BTreeMap::new();
    for entry in folder.read_dir().map_err(StoreError::io(folder))? {
        let entry = entry.map_err(StoreError::io(folder))?;
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy();
        if name.starts_with('.') || !path.is_dir() {
            continue;
        }
        let files = list_files(&path, "npy")?;
        if !files.is_empty() && parts.insert(name.into_owned(), files).is_some() {
            let reason = "another folder has the same name except for invalid UTF-8".to_owned();
            return Err(DatasetError::Malformed { file: path.display().to_string(), reason });
        }
    }
    Ok(parts)
}

fn read_fields(
    staging: &StagingArea<'_>,
    prefix: &str,
    files: BTreeMap<String, PathBuf>,
    held: &mut u64,
) -> Result<Vec<StagedArray>, DatasetError> {
    let field = |(name, path): (String, PathBuf)| {
        let mut source = SourceReader::open(&path)?;
        source.name = format!("{prefix}{}", source.name);
        read_array(staging, &mut source, name, held)
    };
    files.into_iter().map(field).collect()
}

/// Reads a file's array and checks that the file ends after it. The dataset's arrays so far take `held` bytes, to which
/// this one is added; an array that exceeds the limit in total is refused before it is read.
pub(super) fn read_array(
    staging: &StagingArea<'_>,
    source: &mut SourceReader<'_>,
    name: String,
    held: &mut u64,
) -> Result<StagedArray, DatasetError> {
    let begin = source.take_bytes(BEGIN, BEGIN)?;
    let file = source.name.clone();
    let refuse = |offset, reason| DatasetError::Unreadable { file: file.clone(), offset, reason };
    if begin[..MAGIC.len()] != MAGIC {
        return Err(refuse(0, "no array of NumPy's: it does not begin with \\x93NUMPY".to_owned()));
    }
    let length_bytes = match begin[MAGIC.len()] {
        1 => 2,
        2 | 3 => 4,
        version => return Err(refuse(6, format!("version {version} of the format; 1 to 3 are read"))),
    };
    let length = source.take_bytes(length_bytes, BEGIN + length_bytes)?;
    let length = length.iter().rev().fold(0u64, |length, byte| length << 8 | u64::from(*byte));
    let first = BEGIN + length_bytes;
    if length > NPY_HEADER_BYTES_MAX {
        let reason = format!("its header would have {length} bytes, and at most {NPY_HEADER_BYTES_MAX} are read");
        return Err(refuse(BEGIN, reason));
    }
    let text = source.take_bytes(length, first + length)?;
    let header = NpyHeader::parse(&text).map_err(|reason| refuse(first, reason))?;
    let (items, item) = arrays::item_layout(&file, header.dtype, &header.dims)?;
    // The product does not overflow, because `item_layout` has checked it.
    let bytes = items * item.bytes() as u64;
    *held = staging.check_size(&file, held.checked_add(bytes))?;
    let size = header.dtype.bytes();
    let mut data = staging.writer(1)?;
    source.copy_to_column(bytes, first + length + bytes, &mut data, |piece, _| {
        if header.big_endian {
            piece.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        Ok(())
    })?;
    source.expect_end()?;
    let mut data = data.finish()?;
    if header.fortran {
        data = to_row_major(staging, data, size, &header.dims)?;
    }
    Ok(StagedArray { file, name, items, item, data })
}

/// Converts elements of `size` bytes from Fortran order to row-major order.
fn to_row_major(
    staging: &StagingArea<'_>,
    data: StagedColumn,
    size: usize,
    dims: &[u64],
) -> Result<StagedColumn, DatasetError> {
    let mapped = data.map()?;
    let mut out = staging.writer(1)?;
    let mut strides = Vec::with_capacity(dims.len());
    let mut stride = size;
    for dim in dims {
        strides.push(stride);
        stride *= *dim as usize;
    }
    let mut index = vec![0u64; dims.len()];
    let mut at = 0usize;
    while out.bytes() < data.bytes() {
        out.push(&mapped[at..at + size])?;
        for axis in (0..dims.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < dims[axis] {
                break;
            }
            at -= strides[axis] * index[axis] as usize;
            index[axis] = 0;
        }
    }
    drop(mapped);
    staging.remove(data)?;
    out.finish()
}

/// Returns the bytes before the elements of an array of `items` items, little-endian and row-major.
pub(super) fn encode_header(items: u64, item: &Descriptor) -> Vec<u8> {
    let dims: String = item.shape.dims().iter().map(|dim| format!(" {dim},")).collect();
    // In Python, a tuple of one number ends with a comma.
    let shape = if dims.is_empty() { format!("{items},") } else { format!("{items},{}", dims.trim_end_matches(',')) };
    let mut text =
        format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({shape}), }}", header::dtype_name(item.dtype))
            .into_bytes();
    // The elements begin at a multiple of 64 bytes, and the header ends with a line feed.
    let first = BEGIN as usize + 2;
    text.resize((first + text.len() + 1).next_multiple_of(64) - first - 1, b' ');
    text.push(b'\n');
    let length = u16::try_from(text.len()).expect("a tensor has few axes");
    [&MAGIC[..], &[1, 0], &length.to_le_bytes(), &text].concat()
}

/// Names of data types in NumPy.
const NAMES: [(DType, &str); 8] = [
    (DType::F32, "f4"),
    (DType::F16, "f2"),
    (DType::I64, "i8"),
    (DType::U64, "u8"),
    (DType::I32, "i4"),
    (DType::U32, "u4"),
    (DType::I8, "i1"),
    (DType::U8, "u1"),
];
