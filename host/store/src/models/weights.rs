//! Encodes and decodes weights as safetensors files.

use std::collections::HashSet;

use bytes::Bytes;
use safetensors::serialize;
use safetensors::tensor::TensorView;

use crate::checkpoint::{SavedVariable, VariableKind};
use crate::error::ModelError;
use crate::safetensors_header::{self, METADATA, safetensors_dtype};

#[cfg(test)]
mod tests;

/// Encodes the variables. The same variables give the same bytes.
pub(super) fn encode(variables: &[&SavedVariable]) -> Result<Vec<u8>, ModelError> {
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
    serialize(views, None).map_err(|error| ModelError::Weights { reason: error.to_string() })
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
