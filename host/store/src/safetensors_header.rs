//! Strict parser of the headers of safetensors files: weights of models, and datasets. The file is untrusted, and errors
//! name the tensor.
//!
//! The file begins with the header's length in eight bytes. The header is a JSON object with an entry for each tensor,
//! and the tensors' bytes follow without holes. Source: the format's description,
//! <https://github.com/huggingface/safetensors>.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use safetensors::tensor::Dtype;
use saggar_tensor::{DType, Descriptor, Shape};
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::limits::WEIGHTS_HEADER_BYTES_MAX;

/// Bytes of the header's length.
pub(crate) const LENGTH_BYTES: usize = 8;
/// The one entry that is not a tensor.
pub(crate) const METADATA: &str = "__metadata__";
/// Maximum characters of a name in messages.
const NAME_SHOWN_MAX: usize = 80;

/// A tensor of the file.
#[derive(Debug)]
pub(crate) struct TensorEntry {
    pub(crate) name: String,
    pub(crate) descriptor: Descriptor,
    /// Its byte range, in the file or after the header.
    pub(crate) byte_range: Range<usize>,
}

/// Returns the tensors in the order of their bytes, which are contiguous, within the file, and of the size of each
/// tensor's descriptor; or the error.
pub(crate) fn read_tensors(file: &[u8]) -> Result<Vec<TensorEntry>, String> {
    let length = header_length(file)?;
    let rest = &file[LENGTH_BYTES..];
    let (header, data) = rest.split_at_checked(length).ok_or_else(|| truncated_header_message(length, rest.len()))?;
    let mut entries = tensors(header, data.len())?;
    let end = entries.last().map_or(0, |entry| entry.byte_range.end);
    if end != data.len() {
        return Err(trailing_bytes_message((data.len() - end) as u64));
    }
    let first = file.len() - data.len();
    for entry in &mut entries {
        entry.byte_range = first + entry.byte_range.start..first + entry.byte_range.end;
    }
    Ok(entries)
}

/// Returns the length of the header of a file that begins with these bytes.
pub(crate) fn header_length(file: &[u8]) -> Result<usize, String> {
    let Some((length, _)) = file.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(format!("it has {} bytes, and the length of its header alone takes {LENGTH_BYTES}", file.len()));
    };
    let length = u64::from_le_bytes(*length);
    if length > WEIGHTS_HEADER_BYTES_MAX {
        return Err(format!("its header would have {length} bytes, and at most {WEIGHTS_HEADER_BYTES_MAX} are read"));
    }
    Ok(length as usize)
}

/// Returns the tensors of a header that is followed by at most `data` bytes, in the order of their bytes. The byte
/// ranges are contiguous and begin after the header.
pub(crate) fn tensors(header: &[u8], data: usize) -> Result<Vec<TensorEntry>, String> {
    let header: SafetensorsHeader = serde_json::from_slice(header).map_err(|error| format!("its header: {error}"))?;
    let mut tensors = header.0;
    tensors.sort_by_key(|(_, tensor)| tensor.data_offsets);
    let mut entries = Vec::with_capacity(tensors.len());
    let mut end = 0;
    for (name, tensor) in tensors {
        let refuse = |reason| tensor_message(&name, reason);
        let (descriptor, place) = check_tensor(&tensor, end, data).map_err(refuse)?;
        end = place.end;
        entries.push(TensorEntry { name, descriptor, byte_range: place });
    }
    Ok(entries)
}

/// Returns the message for a file that ends within its header.
pub(crate) fn truncated_header_message(length: usize, follow: usize) -> String {
    format!("its header would have {length} bytes, and {follow} follow; is the copy finished?")
}

/// Returns the message for a file of which `data` bytes follow the header, and `entry` ends after them.
pub(crate) fn truncated_data_message(entry: &TensorEntry, data: usize) -> String {
    tensor_message(&entry.name, out_of_bounds_message(entry.byte_range.end, data))
}

/// Returns the message for a file with this number of bytes after its last tensor.
pub(crate) fn trailing_bytes_message(bytes: u64) -> String {
    format!("{bytes} bytes follow its last tensor")
}

fn tensor_message(name: &str, reason: String) -> String {
    format!("tensor {}: {reason}", quote_name(name))
}

fn out_of_bounds_message(end: usize, data: usize) -> String {
    format!("it would end at byte {end} of {data}; is the copy finished?")
}

/// Checks a tensor, which must begin at `begin`, and returns its descriptor and byte range in the data.
fn check_tensor(tensor: &TensorHeader, begin: usize, data: usize) -> Result<(Descriptor, Range<usize>), String> {
    let dtype =
        parse_dtype(&tensor.dtype).ok_or_else(|| format!("data type {} is unknown here", quote_name(&tensor.dtype)))?;
    let shape = Shape::new(tensor.shape.clone()).map_err(|error| error.to_string())?;
    let descriptor = Descriptor::new(dtype, shape);
    let [start, end] = tensor.data_offsets;
    if start > end {
        return Err(format!("it would end at byte {end}, before it begins at {start}"));
    }
    if end > data {
        return Err(out_of_bounds_message(end, data));
    }
    if start != begin {
        let what = if start < begin { "overlaps another tensor" } else { "leaves a hole before it" };
        return Err(format!("it begins at byte {start}, not {begin}, and {what}"));
    }
    if end - start != descriptor.bytes() {
        return Err(format!("{descriptor} takes {} bytes, and it has {}", descriptor.bytes(), end - start));
    }
    Ok((descriptor, start..end))
}

/// Returns the format's name of a data type.
pub(crate) fn safetensors_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::I64 => Dtype::I64,
        DType::U64 => Dtype::U64,
        DType::I32 => Dtype::I32,
        DType::U32 => Dtype::U32,
        DType::I8 => Dtype::I8,
        DType::U8 => Dtype::U8,
    }
}

/// Parses the format's name of a data type.
fn parse_dtype(name: &str) -> Option<DType> {
    DType::ALL.into_iter().find(|ours| format!("{:?}", safetensors_dtype(*ours)) == name)
}

/// Returns a name in quotation marks, truncated if it is long.
fn quote_name(name: &str) -> String {
    match name.char_indices().nth(NAME_SHOWN_MAX) {
        Some((end, _)) => format!("{:?}...", &name[..end]),
        None => format!("{name:?}"),
    }
}

/// The JSON of one entry.
#[derive(Debug, Deserialize)]
struct TensorHeader {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

/// The entries of all tensors; names are unique.
struct SafetensorsHeader(Vec<(String, TensorHeader)>);

impl<'de> Deserialize<'de> for SafetensorsHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SafetensorsHeader, D::Error> {
        deserializer.deserialize_map(SafetensorsHeaderVisitor)
    }
}

struct SafetensorsHeaderVisitor;

impl<'de> Visitor<'de> for SafetensorsHeaderVisitor {
    type Value = SafetensorsHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SafetensorsHeader, A::Error> {
        let (mut tensors, mut names) = (Vec::new(), HashSet::new());
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("tensor {} appears twice", quote_name(&name))));
            }
            if name == METADATA {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let tensor =
                map.next_value().map_err(|error| A::Error::custom(format!("tensor {}: {error}", quote_name(&name))))?;
            tensors.push((name, tensor));
        }
        Ok(SafetensorsHeader(tensors))
    }
}
