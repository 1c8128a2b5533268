//! An upper bound for the memory of a prediction, derived from the model's signature before anything is allocated.

use saggar_plugin::{ModelPort, ModelSignature};
use saggar_tensor::DType;

use super::prediction_inputs::PredictionInputs;

/// Returns the most bytes that computing `inputs` and encoding the response takes: inputs and outputs, a second copy of
/// both for merging into a batch and splitting, and the response's text.
pub(crate) fn prediction_bytes_max(signature: &ModelSignature, inputs: &PredictionInputs) -> u64 {
    let items = inputs.items.unwrap_or(1) as u64;
    let given: u64 = inputs.tensors.iter().map(|tensor| tensor.bytes.len() as u64).sum();
    let output = |port: &ModelPort| {
        let dense = port.item.bytes() as u64;
        items.saturating_mul((2 * dense).saturating_add(json_bytes_max(port).max(dense)))
    };
    signature.outputs.iter().map(output).fold(given.saturating_mul(2), u64::saturating_add)
}

/// Returns the most characters of one item as JSON.
fn json_bytes_max(port: &ModelPort) -> u64 {
    if let Some(bytes) = port.text_bytes_max() {
        // A control character is encoded as `\u0001`.
        return 6 * bytes as u64 + 3;
    }
    let number = match port.item.dtype {
        DType::U8 => 4,
        DType::I8 => 5,
        DType::U32 | DType::I32 => 12,
        DType::F16 | DType::F32 => 17,
        DType::U64 | DType::I64 => 21,
    };
    // Each number can be in a separate list.
    (number + 2) * port.item.shape.elements() as u64 + 2
}
