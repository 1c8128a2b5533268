//! From an inference request to a model's inputs and the outputs that are wanted.
//!
//! [`reading`](super::reading) takes the JSON apart; here its parts, and the binary data behind it, are checked against
//! the signature and each other.

use std::time::Duration;

use saggar_plugin::{ModelPort, Signature};

use super::binary::{self, Rest};
use super::data::Elements;
use super::datatype::{Datatype, item_dims};
use super::error::InferError;
use super::reading::{self, Given, Request};
use crate::limits::INFER_BYTES_MAX;
use crate::predict::decode::{Input, Inputs};

/// An output that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Its place in the signature.
    pub(super) port: usize,
    /// Whether it is wanted as binary data.
    pub(super) is_binary: bool,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) inputs: Inputs,
    /// In the order of the answer.
    pub(super) outputs: Vec<Wanted>,
    /// The client's name for the request.
    pub(super) id: Option<String>,
    /// How long it may take.
    pub(super) limit: Option<Duration>,
}

/// Reads a body whose first `json_bytes` are JSON; none means all of it. None of it means that it is one item of the only
/// input, and that answers are wanted as binary data.
///
/// # Errors
/// Whatever does not fit the model, or itself.
pub(super) fn read(signature: &Signature, body: &[u8], json_bytes: Option<usize>) -> Result<Asked, InferError> {
    let (json, rest) = match json_bytes {
        Some(0) => return raw(signature, body),
        Some(length) => (&body[..length], Some(&body[length..])),
        None => (body, None),
    };
    let Request { id, inputs, outputs, binary_output, limit } = reading::read(signature, json)?;
    let mut rest = Rest::new(rest);
    let inputs: Vec<Input> =
        inputs.into_iter().map(|given| input(signature, given, &mut rest)).collect::<Result<_, InferError>>()?;
    rest.end()?;
    let inputs = Inputs::new(signature, inputs)?;
    let wanted =
        |(port, is_binary): (usize, Option<bool>)| Wanted { port, is_binary: is_binary.unwrap_or(binary_output) };
    let outputs: Vec<Wanted> = match outputs {
        Some(outputs) => outputs.into_iter().map(wanted).collect(),
        None => (0..signature.outputs.len()).map(|port| wanted((port, None))).collect(),
    };
    for output in outputs.iter().filter(|output| !output.is_binary) {
        has_json(&signature.outputs[output.port])?;
    }
    Ok(Asked { inputs, outputs, id, limit })
}

fn raw(signature: &Signature, body: &[u8]) -> Result<Asked, InferError> {
    let (port, elements) = binary::raw(&signature.inputs, body)?;
    let dims =
        if is_batched(signature) { [&[1], port.item.shape.dims()].concat() } else { port.item.shape.dims().to_vec() };
    let input = Input::new(port, &dims, elements.bytes)?;
    let outputs = (0..signature.outputs.len()).map(|port| Wanted { port, is_binary: true }).collect();
    Ok(Asked { inputs: Inputs::new(signature, vec![input])?, outputs, id: None, limit: None })
}

/// Whether the model takes batches, so that every tensor's first dimension counts items.
pub(super) fn is_batched(signature: &Signature) -> bool {
    !signature.batch_sizes.is_empty()
}

/// # Errors
/// `NoJson`.
fn has_json(port: &ModelPort) -> Result<(), InferError> {
    let datatype = Datatype::of(port);
    if datatype.has_json() {
        return Ok(());
    }
    Err(InferError::NoJson { name: port.name.clone(), datatype: datatype.name() })
}

fn input(signature: &Signature, given: Given, rest: &mut Rest<'_>) -> Result<Input, InferError> {
    let port = &signature.inputs[given.port];
    let name = || port.name.clone();
    let Given { shape, data, binary_bytes, .. } = given;
    let items = items(signature, port, &shape)?;
    let count = items.unwrap_or(1).checked_mul(item_dims(port).iter().product());
    // What a text takes here is more than its element.
    let bytes = items.unwrap_or(1).checked_mul(port.item.bytes());
    let (Some(count), Some(0..=INFER_BYTES_MAX)) = (count, bytes) else {
        return Err(InferError::TooLarge { name: name() });
    };
    let elements = match (data, binary_bytes) {
        (Some(data), None) => {
            has_json(port)?;
            data
        }
        (None, Some(bytes)) => binary::elements(port, count, rest.take(&port.name, bytes)?)?,
        _ => return Err(InferError::Data { name: name() }),
    };
    if elements.count != count {
        return Err(InferError::Elements { name: name(), shape, expected: count, got: elements.count });
    }
    let Elements { bytes, .. } = elements;
    Ok(Input::new(port, &[items.as_slice(), port.item.shape.dims()].concat(), bytes)?)
}

/// The number of items in a tensor of this shape; none for a model without batches.
fn items(signature: &Signature, port: &ModelPort, shape: &[u64]) -> Result<Option<usize>, InferError> {
    let item = item_dims(port);
    let is_item =
        |dims: &[u64]| dims.iter().map(|&dim| usize::try_from(dim).ok()).eq(item.iter().map(|&dim| Some(dim)));
    // A text is a scalar as well as a vector of one.
    let fits = |dims: &[u64]| is_item(dims) || port.text_bytes().is_some() && dims.is_empty();
    let refuse =
        || InferError::Shape { name: port.name.clone(), expected: shown(signature, port), got: shape.to_vec() };
    if !is_batched(signature) {
        return if fits(shape) { Ok(None) } else { Err(refuse()) };
    }
    let (&items, dims) = shape.split_first().ok_or_else(refuse)?;
    if !fits(dims) {
        return Err(refuse());
    }
    usize::try_from(items).map(Some).map_err(|_| InferError::TooLarge { name: port.name.clone() })
}

/// The shape that the model's metadata has.
fn shown(signature: &Signature, port: &ModelPort) -> String {
    let batch = is_batched(signature).then(|| "-1".to_owned());
    let dims: Vec<String> = batch.into_iter().chain(item_dims(port).iter().map(usize::to_string)).collect();
    format!("[{}]", dims.join(", "))
}

#[cfg(test)]
mod tests;
