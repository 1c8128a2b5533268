//! The inputs of a request, checked against a model's signature.
//!
//! A value of the item's shape is one item. With one more leading dimension it is a batch, and then all inputs are
//! batches of the same size. Omitted inputs have their default value, if they declare one.

mod error;

use saggar_serving::PredictionInputs;
use saggar_tensor::{Descriptor, Shape};

pub use error::DecodeError;

use super::text_codec;
use crate::limits::INPUT_BYTES_MAX;
use saggar_plugin::{ModelPort as Port, ModelSignature, NamedTensor};

/// One decoded input.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictionInput {
    tensor: NamedTensor,
    /// The number of items, or `None` for one item without a batch dimension.
    items: Option<usize>,
    /// A warning to the client about how it was decoded.
    warning: Option<String>,
}

impl PredictionInput {
    /// Returns an input of shape `dims`.
    ///
    /// # Errors
    /// Returns `Shape`, `Empty` or `TooLarge`.
    pub fn new(port: &Port, dims: &[usize], bytes: Vec<u8>) -> Result<PredictionInput, DecodeError> {
        let item = port.item.shape.dims();
        let items = if dims == item {
            None
        } else if dims.first() == Some(&0) {
            return Err(DecodeError::Empty { name: port.name.clone(), item: port.item.shape.clone() });
        } else if dims.len() == item.len() + 1 && &dims[1..] == item {
            Some(dims[0])
        } else {
            let (name, item) = (port.name.clone(), port.item.shape.clone());
            return Err(DecodeError::Shape { name, item, got: dims.to_vec() });
        };
        let mut shape = vec![items.unwrap_or(1)];
        shape.extend(item);
        let shape = Shape::new(shape).map_err(|_| DecodeError::TooLarge { name: port.name.clone() })?;
        let descriptor = Descriptor::new(port.item.dtype, shape);
        Ok(PredictionInput { tensor: NamedTensor { name: port.name.clone(), descriptor, bytes }, items, warning: None })
    }

    /// Returns an input of one item from its dense bytes.
    ///
    /// # Errors
    /// Returns `Bytes` if their number differs from the item's.
    pub fn from_raw_bytes(port: &Port, bytes: Vec<u8>) -> Result<PredictionInput, DecodeError> {
        let expected = port.item.bytes();
        if bytes.len() != expected {
            let (name, item, got) = (port.name.clone(), port.item.clone(), bytes.len());
            return Err(DecodeError::Bytes { name, item, expected, got });
        }
        PredictionInput::new(port, port.item.shape.dims(), bytes)
    }

    /// Returns an input of one text item, for a port whose texts have at most `bytes_max` bytes.
    ///
    /// # Errors
    /// Returns `Text`, or `Unexpected` if `bytes` is not UTF-8.
    pub fn from_text(port: &Port, bytes_max: usize, bytes: &[u8]) -> Result<PredictionInput, DecodeError> {
        let Ok(text) = std::str::from_utf8(bytes) else {
            let (place, got) = (port.name.clone(), format!("{} bytes that are not", bytes.len()));
            return Err(DecodeError::Unexpected { place, expected: "a text in UTF-8".to_owned(), got });
        };
        PredictionInput::new(port, port.item.shape.dims(), text_codec::encode_text_item(&port.name, bytes_max, text)?)
    }
}

/// Returns the inputs of a request, which can be in any order. Omitted inputs get their default value in every
/// item.
///
/// # Errors
/// Returns `Missing`, `Twice`, `Batch`, `TooLarge`, or `Unexpected` if a boolean is neither 0 nor 1.
pub fn assemble_inputs(
    signature: &ModelSignature,
    inputs: Vec<PredictionInput>,
) -> Result<PredictionInputs, DecodeError> {
    let mut inputs: Vec<Option<PredictionInput>> = inputs.into_iter().map(Some).collect();
    let mut ordered: Vec<Option<PredictionInput>> = Vec::with_capacity(inputs.len());
    for port in &signature.inputs {
        let named = |input: &&mut Option<PredictionInput>| input.as_ref().is_some_and(|i| i.tensor.name == port.name);
        let input = inputs.iter_mut().find(named).and_then(Option::take);
        if input.is_none() && port.default.is_none() {
            return Err(DecodeError::Missing { name: port.name.clone(), item: port.item.clone() });
        }
        check_boolean(port, input.as_ref())?;
        ordered.push(input);
    }
    if let Some(input) = inputs.into_iter().flatten().next() {
        return Err(DecodeError::Twice { name: input.tensor.name });
    }
    let given = || ordered.iter().flatten();
    let items = given().next().and_then(|input| input.items);
    if let (Some(first), Some(odd)) = (given().next(), given().find(|input| input.items != items)) {
        let (name, other) = (odd.tensor.name.clone(), first.tensor.name.clone());
        return Err(DecodeError::Batch { name, other, expected: items, got: odd.items });
    }
    let warnings = given().filter_map(|input| input.warning.clone()).collect();
    let ports = signature.inputs.iter().zip(ordered);
    let input = |(port, input): (&Port, Option<PredictionInput>)| input.map_or_else(|| default_input(port, items), Ok);
    let tensors = ports.map(|both| Ok(input(both)?.tensor)).collect::<Result<_, DecodeError>>()?;
    Ok(PredictionInputs { tensors, items, warnings })
}

/// Returns `inputs`, which are those of `signature` without the given ones, combined with the given ones. A
/// given input is one item, which is repeated for every item of the batch.
///
/// # Errors
/// Returns `Missing` or `TooLarge`.
pub fn add_given_inputs(
    inputs: PredictionInputs,
    signature: &ModelSignature,
    given: &[(String, Vec<u8>)],
) -> Result<PredictionInputs, DecodeError> {
    let PredictionInputs { mut tensors, items, warnings } = inputs;
    for (name, item) in given {
        let port = find_input(signature, name)?;
        let count = items.unwrap_or(1);
        if item.len().saturating_mul(count) > INPUT_BYTES_MAX {
            return Err(DecodeError::TooLarge { name: name.clone() });
        }
        let dims = [items.as_slice(), port.item.shape.dims()].concat();
        tensors.push(PredictionInput::new(port, &dims, item.repeat(count))?.tensor);
    }
    let place = |tensor: &NamedTensor| signature.inputs.iter().position(|port| port.name == tensor.name);
    tensors.sort_by_key(place);
    Ok(PredictionInputs { tensors, items, warnings })
}

impl PredictionInput {
    /// Returns the same input with a warning to the client.
    pub(super) fn with_warning(self, warning: Option<String>) -> PredictionInput {
        PredictionInput { warning, ..self }
    }

    /// Returns the port's name.
    pub(super) fn name(&self) -> &str {
        &self.tensor.name
    }

    /// Returns its elements.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.tensor.bytes
    }
}

/// Refuses a boolean that is neither 0 nor 1, because operators would treat it as a number.
fn check_boolean(port: &Port, input: Option<&PredictionInput>) -> Result<(), DecodeError> {
    let bytes = input.filter(|_| port.is_boolean()).map_or(&[][..], |input| &input.tensor.bytes);
    match bytes.iter().position(|&byte| byte > 1) {
        None => Ok(()),
        Some(at) => {
            let (place, got) = (format!("{}, element {at}", port.name), bytes[at].to_string());
            Err(DecodeError::Unexpected { place, expected: "0 or 1, or true or false".to_owned(), got })
        }
    }
}

/// Returns the default value of `port` for each item, or for one item without a batch dimension.
fn default_input(port: &Port, items: Option<usize>) -> Result<PredictionInput, DecodeError> {
    let item = port.default_item().unwrap_or_default();
    let count = items.unwrap_or(1);
    if item.len().saturating_mul(count) > INPUT_BYTES_MAX {
        return Err(DecodeError::TooLarge { name: port.name.clone() });
    }
    let dims = [items.as_slice(), port.item.shape.dims()].concat();
    PredictionInput::new(port, &dims, item.repeat(count))
}

/// Returns the input of this name.
///
/// # Errors
/// Returns `Unknown`.
pub fn find_input<'s>(signature: &'s ModelSignature, name: &str) -> Result<&'s Port, DecodeError> {
    let found = signature.inputs.iter().find(|port| port.name == name);
    found.ok_or_else(|| {
        let known: Vec<String> = signature.inputs.iter().map(|p| format!("{} ({})", p.name, p.item)).collect();
        DecodeError::Unknown { name: name.chars().take(80).collect(), known: known.join(", ") }
    })
}
