//! Converts an inference request to a model's inputs and the requested outputs.
//!
//! [`request_parser`](super::request_parser) parses the JSON; this module checks its parts, and the binary data after
//! it, against the signature and each other.

use std::time::Duration;

use saggar_plugin::{ModelPort, ModelSignature};
use saggar_serving::PredictionInputs;

use super::binary::{self, BinaryInputReader};
use super::datatype::{OipDatatype, item_dims};
use super::error::InferError;
use super::request_parser::{self, ParsedInferRequest, ParsedInput};
use super::tensor_data::TensorElements;
use crate::limits::INFER_BYTES_MAX;
use crate::predict::decode::{PredictionInput, assemble_inputs};

/// A requested output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestedOutput {
    /// Its index in the signature.
    pub(super) port: usize,
    /// Whether to return it as binary data.
    pub(super) is_binary: bool,
}

/// A parsed and checked inference request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InferRequest {
    pub(super) inputs: PredictionInputs,
    /// The outputs, in the order of the response.
    pub(super) outputs: Vec<RequestedOutput>,
    /// The client's identifier for the request.
    pub(super) id: Option<String>,
    /// The time limit.
    pub(super) limit: Option<Duration>,
}

/// Reads a body whose first `json_bytes` bytes are JSON; `None` means all of it. With `Some(0)`, the body is one item
/// of the only input, and the outputs are returned as binary data.
///
/// # Errors
/// Returns an error if the request is inconsistent or does not fit the model.
pub(super) fn read_request(
    signature: &ModelSignature,
    body: &[u8],
    json_bytes: Option<usize>,
) -> Result<InferRequest, InferError> {
    let (json, rest) = match json_bytes {
        Some(0) => return read_raw_request(signature, body),
        Some(length) => (&body[..length], Some(&body[length..])),
        None => (body, None),
    };
    let ParsedInferRequest { id, inputs, outputs, binary_output, limit } =
        request_parser::parse_request(signature, json)?;
    let mut rest = BinaryInputReader::new(rest);
    let inputs: Vec<PredictionInput> =
        inputs.into_iter().map(|given| check_input(signature, given, &mut rest)).collect::<Result<_, InferError>>()?;
    rest.expect_end()?;
    let inputs = assemble_inputs(signature, inputs)?;
    let wanted = |(port, is_binary): (usize, Option<bool>)| RequestedOutput {
        port,
        is_binary: is_binary.unwrap_or(binary_output),
    };
    let outputs: Vec<RequestedOutput> = match outputs {
        Some(outputs) => outputs.into_iter().map(wanted).collect(),
        None => (0..signature.outputs.len()).map(|port| wanted((port, None))).collect(),
    };
    for output in outputs.iter().filter(|output| !output.is_binary) {
        check_json_datatype(&signature.outputs[output.port])?;
    }
    Ok(InferRequest { inputs, outputs, id, limit })
}

fn read_raw_request(signature: &ModelSignature, body: &[u8]) -> Result<InferRequest, InferError> {
    let (port, elements) = binary::read_raw_body(&signature.inputs, body)?;
    let dims =
        if is_batched(signature) { [&[1], port.item.shape.dims()].concat() } else { port.item.shape.dims().to_vec() };
    let input = PredictionInput::new(port, &dims, elements.bytes)?;
    let outputs = (0..signature.outputs.len()).map(|port| RequestedOutput { port, is_binary: true }).collect();
    Ok(InferRequest { inputs: assemble_inputs(signature, vec![input])?, outputs, id: None, limit: None })
}

/// Returns whether the model has batches, so that every tensor's first dimension is the number of items.
pub(super) fn is_batched(signature: &ModelSignature) -> bool {
    !signature.batch_sizes.is_empty()
}

/// Checks that the port's data type can be exchanged as JSON.
///
/// # Errors
/// Returns `NoJson` if it cannot.
fn check_json_datatype(port: &ModelPort) -> Result<(), InferError> {
    let datatype = OipDatatype::from_port(port);
    if datatype.has_json() {
        return Ok(());
    }
    Err(InferError::NoJson { name: port.name.clone(), datatype: datatype.name() })
}

fn check_input(
    signature: &ModelSignature,
    given: ParsedInput<'_>,
    rest: &mut BinaryInputReader<'_>,
) -> Result<PredictionInput, InferError> {
    let ParsedInput { port, shape, data, binary_bytes } = given;
    let size = InputSize::new(signature, port, &shape)?;
    let elements = match (data, binary_bytes) {
        (Some(data), None) => {
            check_json_datatype(port)?;
            data
        }
        (None, Some(bytes)) => binary::read_elements(port, size.elements, rest.take_input(&port.name, bytes)?)?,
        _ => return Err(InferError::Data { name: port.name.clone() }),
    };
    size.input(port, shape, elements)
}

/// The size of an input whose shape fits the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputSize {
    /// The number of items, or `None` for a model without batches.
    items: Option<usize>,
    /// The number of elements, where a text is one.
    pub(super) elements: usize,
}

impl InputSize {
    /// Checks the shape of an input.
    ///
    /// # Errors
    /// Returns `Shape` if it is not the model's, or `TooLarge`.
    pub(super) fn new(signature: &ModelSignature, port: &ModelPort, shape: &[u64]) -> Result<InputSize, InferError> {
        let items = batch_items(signature, port, shape)?;
        let count = items.unwrap_or(1).checked_mul(item_dims(port).iter().product());
        // A text occupies more memory here than its one element.
        let bytes = items.unwrap_or(1).checked_mul(port.item.bytes());
        let (Some(elements), Some(0..=INFER_BYTES_MAX)) = (count, bytes) else {
            return Err(InferError::TooLarge { name: port.name.clone() });
        };
        Ok(InputSize { items, elements })
    }

    /// Returns the input with these elements.
    ///
    /// # Errors
    /// Returns `Elements` if their number differs from that of the shape.
    pub(super) fn input(
        self,
        port: &ModelPort,
        shape: Vec<u64>,
        elements: TensorElements,
    ) -> Result<PredictionInput, InferError> {
        let TensorElements { bytes, count } = elements;
        if count != self.elements {
            let (name, expected) = (port.name.clone(), self.elements);
            return Err(InferError::Elements { name, shape, expected, got: count });
        }
        Ok(PredictionInput::new(port, &[self.items.as_slice(), port.item.shape.dims()].concat(), bytes)?)
    }
}

/// Returns the number of items in a tensor of this shape, or `None` for a model without batches.
fn batch_items(signature: &ModelSignature, port: &ModelPort, shape: &[u64]) -> Result<Option<usize>, InferError> {
    let item = item_dims(port);
    let is_item =
        |dims: &[u64]| dims.iter().map(|&dim| usize::try_from(dim).ok()).eq(item.iter().map(|&dim| Some(dim)));
    // A text can be sent as a scalar or as a vector of one element.
    let fits = |dims: &[u64]| is_item(dims) || port.text_bytes_max().is_some() && dims.is_empty();
    let refuse =
        || InferError::Shape { name: port.name.clone(), expected: shape_text(signature, port), got: shape.to_vec() };
    if !is_batched(signature) {
        return if fits(shape) { Ok(None) } else { Err(refuse()) };
    }
    let (&items, dims) = shape.split_first().ok_or_else(refuse)?;
    if !fits(dims) {
        return Err(refuse());
    }
    usize::try_from(items).map(Some).map_err(|_| InferError::TooLarge { name: port.name.clone() })
}

/// Returns the shape as in the model's metadata.
fn shape_text(signature: &ModelSignature, port: &ModelPort) -> String {
    let batch = is_batched(signature).then(|| "-1".to_owned());
    let dims: Vec<String> = batch.into_iter().chain(item_dims(port).iter().map(usize::to_string)).collect();
    format!("[{}]", dims.join(", "))
}

#[cfg(test)]
mod tests;
