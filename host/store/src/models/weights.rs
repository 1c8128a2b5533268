//! Encodes and decodes weights as safetensors files.

use std::collections::HashSet;

use bytes::Bytes;
use safetensors::serialize;
use safetensors::tensor::{Dtype, TensorView};
use saggar_tensor::DType;

use crate::checkpoint::{SavedVariable, VariableKind};
use crate::error::ModelError;

pub(crate) mod header;
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
        if variable.name == "__metadata__" {
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
    let entries = header::read_tensors(file)?;
    let statistics: HashSet<&str> = statistics.iter().map(String::as_str).collect();
    let variable = |entry: header::TensorEntry| {
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
