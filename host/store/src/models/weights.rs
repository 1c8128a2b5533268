//! Encodes and decodes weights as safetensors files.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Read};

use bytes::Bytes;
use safetensors::serialize;
use safetensors::tensor::TensorView;

use crate::checkpoint::{SavedVariable, VariableKind};
use crate::error::ModelError;
use crate::safetensors_header::{self, METADATA, safetensors_dtype};

#[cfg(test)]
mod tests;

/// Encodes the variables and metadata. The same arguments give the same bytes.
pub(super) fn encode(variables: &[&SavedVariable], metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, ModelError> {
    let refuse = |name: &str, reason: String| ModelError::Weights { reason: format!("variable {name}: {reason}") };
    if let Some(pair) = variables.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(refuse(&pair[0].name, "its name is used twice".to_owned()));
    }
    let mut views = Vec::with_capacity(variables.len());
    for variable in variables {
        if variable.name == METADATA {
            return Err(refuse(&variable.name, "the format reserves this name".to_owned()));
        }
        let dims = variable.descriptor.shape.dims().to_vec();
        let view = TensorView::new(safetensors_dtype(variable.descriptor.dtype), dims, &variable.bytes)
            .map_err(|error| refuse(&variable.name, error.to_string()))?;
        views.push((variable.name.as_str(), view));
    }
    let file = serialize(views, None).map_err(|error| ModelError::Weights { reason: error.to_string() })?;
    Ok(if metadata.is_empty() { file } else { with_metadata(&file, metadata) })
}

/// Returns a file with this metadata as the first entry of its header. The crate `safetensors` would write them in the
/// order of a hash map, which differs from run to run.
fn with_metadata(file: &[u8], metadata: &BTreeMap<String, String>) -> Vec<u8> {
    let data = safetensors_header::LENGTH_BYTES;
    let length = safetensors_header::header_length(file).expect("a file that was just encoded");
    let (header, tensors) = file[data..].split_at(length);
    let metadata = serde_json::to_string(metadata).expect("text can be written");
    let rest = std::str::from_utf8(header).expect("a header is text").trim_end().trim_start_matches('{');
    let comma = if rest == "}" { "" } else { "," };
    let mut header = format!("{{\"{METADATA}\":{metadata}{comma}{rest}").into_bytes();
    // Tensors begin at a multiple of 8 bytes, as the crate aligns them.
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes()[..], &header, tensors].concat()
}

/// Returns the number of tensors and of their elements in a file, or the problem with its header. Reads only the header.
pub(super) fn count_elements(mut file: File) -> io::Result<Result<(u64, u64), String>> {
    let mut length = [0; safetensors_header::LENGTH_BYTES];
    file.read_exact(&mut length)?;
    let length = match safetensors_header::header_length(&length) {
        Ok(length) => length,
        Err(reason) => return Ok(Err(reason)),
    };
    let mut header = vec![0; length];
    file.read_exact(&mut header)?;
    let tensors = safetensors_header::tensors(&header, usize::MAX);
    Ok(tensors.map(|tensors| {
        let elements = tensors.iter().map(|tensor| tensor.descriptor.shape.elements() as u64);
        (tensors.len() as u64, elements.fold(0, u64::saturating_add))
    }))
}

/// Decodes the variables of a file, sorted by name and sharing its bytes, or returns the error.
pub(super) fn decode(file: &Bytes, statistics: &[String]) -> Result<Vec<SavedVariable>, String> {
    let entries = safetensors_header::read_tensors(file)?;
    let statistics: HashSet<&str> = statistics.iter().map(String::as_str).collect();
    let variable = |entry: safetensors_header::TensorEntry| {
        let is_statistic = statistics.contains(entry.name.as_str());
        SavedVariable {
            name: entry.name,
            kind: if is_statistic { VariableKind::Statistic } else { VariableKind::Parameter },
            descriptor: entry.descriptor,
            bytes: file.slice(entry.byte_range),
        }
    };
    let mut variables: Vec<SavedVariable> = entries.into_iter().map(variable).collect();
    variables.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(variables)
}
