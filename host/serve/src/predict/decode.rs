//! Decodes JSON into a model's inputs: an object keyed by input, or a bare value if a single input is required.
//!
//! A value of the item's shape is one item. With one more leading dimension it is a batch, and then all inputs are
//! batches of the same size. A string is the bytes of a text. Omitted inputs have their default value, if they declare
//! one.

mod error;

use std::fmt;

use saggar_serving::{PredictionInputs, json_text};
use saggar_tensor::{Descriptor, Shape};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

pub use error::DecodeError;

use super::dense_arrays::{DenseArrayReader, DenseValueSeed};
use super::json_fast_path;
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

    /// Parses the value of one input from JSON text.
    ///
    /// # Errors
    /// Returns the errors of [`decode_json`].
    pub fn from_json(port: &Port, text: &[u8]) -> Result<PredictionInput, DecodeError> {
        let mut dense = DenseArrayReader::new(port);
        let mut json = serde_json::Deserializer::from_slice(text);
        let read = DenseValueSeed(&mut dense).deserialize(&mut json).and_then(|()| json.end());
        match (dense.take_error(), read) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(DecodeError::Syntax {
                place: dense.current_place(),
                reason: json_text::describe_json_error(&error, text),
            }),
            (None, Ok(())) => dense.finish(),
        }
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

/// Decodes the inputs in a JSON body.
///
/// # Errors
/// Returns [`DecodeError`] with the position, the expected and the actual value.
pub fn decode_json(signature: &ModelSignature, body: &[u8]) -> Result<PredictionInputs, DecodeError> {
    json_fast_path::decode_plain_json(signature, body).map_or_else(|| decode_json_slow_path(signature, body), Ok)
}

/// Decodes the inputs in a JSON body without the fast path.
pub(super) fn decode_json_slow_path(signature: &ModelSignature, body: &[u8]) -> Result<PredictionInputs, DecodeError> {
    let mut reading = JsonInputReader { signature, inputs: Vec::new(), error: None, place: "body".to_owned() };
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = json.deserialize_any(JsonBodyVisitor(&mut reading)).and_then(|()| json.end());
    match (reading.error, read) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => {
            Err(DecodeError::Syntax { place: reading.place, reason: json_text::describe_json_error(&error, body) })
        }
        (None, Ok(())) => assemble_inputs(signature, reading.inputs),
    }
}

/// A body that is being read. As with [`DenseArrayReader`], the error is stored here.
struct JsonInputReader<'s> {
    signature: &'s ModelSignature,
    inputs: Vec<PredictionInput>,
    error: Option<DecodeError>,
    /// The position at which the parser stopped, for syntax errors.
    place: String,
}

impl<'s> JsonInputReader<'s> {
    fn fail<E: Error>(&mut self, error: DecodeError) -> E {
        self.error.get_or_insert(error);
        E::custom("refused")
    }

    fn unexpected<E: Error>(&mut self, got: impl Into<String>) -> E {
        let names: Vec<&str> = self.signature.inputs.iter().map(|port| port.name.as_str()).collect();
        let expected = format!("an object with {}", names.join(", "));
        self.fail(DecodeError::Unexpected { place: "body".to_owned(), expected, got: got.into() })
    }

    /// Reads the value of `port` with `read`.
    fn read_input<E: Error>(
        &mut self,
        port: &'s Port,
        read: impl FnOnce(DenseValueSeed<'_, 's>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut dense = DenseArrayReader::new(port);
        if let Err(error) = read(DenseValueSeed(&mut dense)) {
            self.place = dense.current_place();
            self.error = dense.take_error();
            return Err(error);
        }
        match dense.finish() {
            Ok(input) => self.inputs.push(input),
            Err(error) => return Err(self.fail(error)),
        }
        Ok(())
    }

    /// Returns the input that a bare value is for.
    fn sole_input<E: Error>(&mut self, got: &str) -> Result<&'s Port, E> {
        match self.signature.only_input() {
            Some(port) => Ok(port),
            None => Err(self.unexpected(got)),
        }
    }
}

struct JsonBodyVisitor<'r, 's>(&'r mut JsonInputReader<'s>);

impl<'de> Visitor<'de> for JsonBodyVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object keyed by input")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            let port = find_input(self.0.signature, &name).map_err(|error| self.0.fail::<A::Error>(error))?;
            if self.0.inputs.iter().any(|input| input.tensor.name == name) {
                return Err(self.0.fail(DecodeError::Twice { name }));
            }
            self.0.read_input(port, |node| map.next_value_seed(node))?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        let port = self.0.sole_input::<A::Error>("an array")?;
        self.0.read_input(port, |node| node.visit_seq(seq))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        let port = self.0.sole_input::<E>("a number")?;
        self.0.read_input(port, |node| node.visit_u64(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        let port = self.0.sole_input::<E>("a number")?;
        self.0.read_input(port, |node| node.visit_i64(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        let port = self.0.sole_input::<E>("a number")?;
        self.0.read_input(port, |node| node.visit_f64(number))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Err(self.0.unexpected("a truth value"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.0.signature.only_input().filter(|port| port.text_bytes_max().is_some()) {
            Some(port) => self.0.read_input(port, |node| node.visit_str(text)),
            None => Err(self.0.unexpected("a string")),
        }
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Err(self.0.unexpected("null"))
    }
}

#[cfg(test)]
mod tests;
