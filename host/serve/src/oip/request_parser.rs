//! Parses the JSON of an inference request in one pass: elements are written directly to dense bytes of their input's
//! type.
//!
//! An input's elements can be parsed only once its name is known. If "data" comes before "name", the data is skipped,
//! and the request is parsed a second time with the names learned in the first pass.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use saggar_plugin::ModelSignature;
use saggar_serving::json_text;
use saggar_serving::limits::DEADLINE_MAX;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::datatype::OipDatatype;
use super::error::InferError;
use super::parameter::{ParameterValue, unsupported_parameter};
use super::tensor_data::{ElementCollector, ElementSeed, TensorElements};
use crate::limits::JSON_DEPTH_MAX;
use crate::predict::{decode, nonfinite};

/// A parsed input, not yet checked against its shape.
#[derive(Debug)]
pub(super) struct ParsedInput {
    /// Its index in the signature.
    pub(super) port: usize,
    pub(super) shape: Vec<u64>,
    pub(super) data: Option<TensorElements>,
    pub(super) binary_bytes: Option<u64>,
}

/// The parts of a request.
#[derive(Debug, Default)]
pub(super) struct ParsedInferRequest {
    pub(super) id: Option<String>,
    pub(super) inputs: Vec<ParsedInput>,
    /// The requested outputs: each output's index in the signature, and its `binary_data` parameter if given. `None` if
    /// the request has no list of outputs.
    pub(super) outputs: Option<Vec<(usize, Option<bool>)>>,
    /// Whether outputs without `binary_data` are returned as binary data.
    pub(super) binary_output: bool,
    pub(super) limit: Option<Duration>,
}

/// Parses the JSON.
///
/// # Errors
/// Returns the first syntax or signature error. Does not check that data, shapes and the body's binary part are
/// consistent.
pub(super) fn parse_request(signature: &ModelSignature, json: &[u8]) -> Result<ParsedInferRequest, InferError> {
    let request = parse_with_known_ports(signature, json, false);
    if let Err(InferError::Syntax { .. }) = request
        && let Some(quoted) = nonfinite::quote_nonfinite(json)
    {
        return parse_with_known_ports(signature, &quoted, true);
    }
    request
}

fn parse_with_known_ports(
    signature: &ModelSignature,
    json: &[u8],
    words: bool,
) -> Result<ParsedInferRequest, InferError> {
    let mut reading = RequestParser::new(signature, Vec::new(), words);
    reading.parse(json)?;
    if reading.is_late {
        let ports = reading.request.inputs.iter().map(|input| input.port).collect();
        reading = RequestParser::new(signature, ports, words);
        reading.parse(json)?;
    }
    Ok(reading.request)
}

/// The state of parsing a request. Errors are kept here, because serde's errors carry text only.
struct RequestParser<'s> {
    signature: &'s ModelSignature,
    /// The indices of the request's inputs, if an earlier pass found them.
    ports: Vec<usize>,
    /// Whether strings such as `"NaN"` are accepted for numbers that JSON cannot represent.
    accepts_nonfinite: bool,
    request: ParsedInferRequest,
    /// Whether data was skipped because its input's name was not known yet.
    is_late: bool,
    has_inputs: bool,
    error: Option<InferError>,
}

impl<'s> RequestParser<'s> {
    fn new(signature: &'s ModelSignature, ports: Vec<usize>, words: bool) -> RequestParser<'s> {
        let request = ParsedInferRequest::default();
        RequestParser {
            signature,
            ports,
            accepts_nonfinite: words,
            request,
            is_late: false,
            has_inputs: false,
            error: None,
        }
    }

    fn parse(&mut self, json: &[u8]) -> Result<(), InferError> {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let read = deserializer.deserialize_map(RequestVisitor(self)).and_then(|()| deserializer.end());
        match (self.error.take(), read) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(InferError::Syntax { reason: json_text::describe_json_error(&error, json) }),
            (None, Ok(())) if !self.has_inputs => {
                Err(InferError::Missing { place: "request".to_owned(), key: "inputs" })
            }
            (None, Ok(())) => Ok(()),
        }
    }

    fn fail<E: Error>(&mut self, error: InferError) -> E {
        self.error.get_or_insert(error);
        E::custom("refused")
    }

    fn record_error<T, E: Error>(&mut self, result: Result<T, InferError>) -> Result<T, E> {
        result.map_err(|error| self.fail(error))
    }
}

/// A string that borrows from the source if it contains no escapes.
#[derive(Deserialize)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum RequestKey {
    Id,
    Parameters,
    Inputs,
    Outputs,
    #[serde(other)]
    Other,
}

struct RequestVisitor<'r, 's>(&'r mut RequestParser<'s>);

impl<'de> Visitor<'de> for RequestVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with \"inputs\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key()? {
            match key {
                RequestKey::Id => self.0.request.id = map.next_value()?,
                RequestKey::Parameters => {
                    let RequestParser { request, error, .. } = &mut *self.0;
                    map.next_value_seed(ParametersSeed {
                        error,
                        take: |name: &str, value| request.set_parameter(name, &value),
                    })?;
                }
                RequestKey::Inputs => {
                    self.0.has_inputs = true;
                    map.next_value_seed(TensorListSeed(self.0, TensorRole::Input))?;
                }
                RequestKey::Outputs => {
                    self.0.request.outputs.get_or_insert_default();
                    map.next_value_seed(TensorListSeed(self.0, TensorRole::Output))?;
                }
                RequestKey::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl ParsedInferRequest {
    /// Applies a parameter of the request.
    fn set_parameter(&mut self, name: &str, value: &ParameterValue) -> Result<(), InferError> {
        const PLACE: &str = "request";
        match name {
            "binary_data_output" => self.binary_output = value.as_bool(PLACE, name)?,
            // Microseconds; 0 means the server's own limit.
            "timeout" => {
                let limit = Duration::from_micros(value.as_u64(PLACE, name)?).min(DEADLINE_MAX);
                self.limit = Some(limit).filter(|limit| !limit.is_zero());
            }
            // Accepted and ignored: all requests have the same priority.
            "priority" => drop(value.as_u64(PLACE, name)?),
            _ if name.starts_with("triton_") => {
                return Err(unsupported_parameter(PLACE, name, "names that begin with triton_ are reserved"));
            }
            _ => {}
        }
        Ok(())
    }
}

/// The kind of tensors in a list.
#[derive(Clone, Copy)]
enum TensorRole {
    Input,
    Output,
}

struct TensorListSeed<'r, 's>(&'r mut RequestParser<'s>, TensorRole);

impl<'de> DeserializeSeed<'de> for TensorListSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TensorListSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of tensors")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(TensorSeed(&mut *self.0, self.1))?.is_some() {}
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

struct TensorSeed<'r, 's>(&'r mut RequestParser<'s>, TensorRole);

impl<'de> DeserializeSeed<'de> for TensorSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TensorSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with \"name\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        match self.1 {
            TensorRole::Input => self.0.parse_input(map),
            TensorRole::Output => self.0.parse_output(map),
        }
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum TensorKey {
    Name,
    Shape,
    Datatype,
    Parameters,
    Data,
    #[serde(other)]
    Other,
}

impl RequestParser<'_> {
    fn parse_input<'de, A: MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
        let at = self.request.inputs.len();
        let mut port = self.ports.get(at).copied();
        let (mut shape, mut datatype, mut data, mut binary_bytes, mut is_late) = (None, None, None, None, false);
        while let Some(key) = map.next_key()? {
            match key {
                TensorKey::Name => {
                    let BorrowedText(name) = map.next_value()?;
                    let found = self.signature.inputs.iter().position(|port| port.name == name);
                    // The error for an unknown name lists the known ones.
                    let unknown = || decode::find_input(self.signature, &name).err().map(InferError::from);
                    if let (None, Some(error)) = (found, unknown()) {
                        return Err(self.fail(error));
                    }
                    port = found;
                }
                TensorKey::Shape => shape = Some(map.next_value::<ShapeDims>()?.0),
                TensorKey::Datatype => datatype = Some(map.next_value::<BorrowedText<'de>>()?.0),
                TensorKey::Data => match port {
                    Some(port) => data = Some(self.parse_data(port, shape.as_deref(), &mut map)?),
                    None => {
                        is_late = true;
                        map.next_value::<IgnoredAny>()?;
                    }
                },
                TensorKey::Parameters => {
                    let take = |name: &str, value: ParameterValue| set_input_parameter(name, &value, &mut binary_bytes);
                    map.next_value_seed(ParametersSeed { error: &mut self.error, take })?;
                }
                TensorKey::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let missing = |key| InferError::Missing { place: format!("inputs[{at}]"), key };
        let port = self.record_error(port.ok_or_else(|| missing("name")))?;
        let shape = self.record_error(shape.ok_or_else(|| missing("shape")))?;
        let datatype = self.record_error(datatype.ok_or_else(|| missing("datatype")))?;
        let expected = OipDatatype::from_port(&self.signature.inputs[port]);
        if !expected.accepts(&datatype) {
            let expected = expected.name();
            let (name, got) = (self.signature.inputs[port].name.clone(), datatype.chars().take(40).collect());
            return Err(self.fail(InferError::Datatype { name, expected, got }));
        }
        self.is_late |= is_late;
        self.request.inputs.push(ParsedInput { port, shape, data, binary_bytes });
        Ok(())
    }

    fn parse_data<'de, A: MapAccess<'de>>(
        &mut self,
        port: usize,
        shape: Option<&[u64]>,
        map: &mut A,
    ) -> Result<TensorElements, A::Error> {
        let port = &self.signature.inputs[port];
        // Only a hint, and capped: a shape that overstates the data wastes little memory.
        let hint = shape.map_or(0, |shape| shape.iter().fold(1, |count: u64, &dim| count.saturating_mul(dim)));
        let items = port.item.shape.elements().max(1);
        let count = usize::try_from(hint).unwrap_or(usize::MAX).min(items.saturating_mul(ITEMS_EXPECTED_MAX));
        let mut flat = ElementCollector::new(port, count, self.accepts_nonfinite);
        match map.next_value_seed(ElementSeed(&mut flat)) {
            Ok(()) => Ok(flat.finish()),
            Err(error) => {
                self.error = flat.take_error();
                Err(error)
            }
        }
    }

    fn parse_output<'de, A: MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
        let (mut port, mut is_binary) = (None, None);
        while let Some(key) = map.next_key()? {
            match key {
                TensorKey::Name => {
                    let BorrowedText(name) = map.next_value()?;
                    let found = self.signature.outputs.iter().position(|port| port.name == name);
                    let known = || self.signature.outputs.iter().map(|port| port.name.as_str()).collect::<Vec<_>>();
                    let unknown = || InferError::UnknownOutput {
                        name: name.chars().take(80).collect(),
                        known: known().join(", "),
                    };
                    let found = found.ok_or_else(unknown);
                    port = Some(self.record_error(found)?);
                }
                TensorKey::Parameters => {
                    let take = |name: &str, value: ParameterValue| set_output_parameter(name, &value, &mut is_binary);
                    map.next_value_seed(ParametersSeed { error: &mut self.error, take })?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let outputs = self.request.outputs.get_or_insert_default();
        let place = format!("outputs[{}]", outputs.len());
        let is_twice = port.is_some_and(|port| outputs.iter().any(|(other, _)| *other == port));
        let port = self.record_error(port.ok_or(InferError::Missing { place, key: "name" }))?;
        if is_twice {
            let name = self.signature.outputs[port].name.clone();
            return Err(self.fail(InferError::OutputTwice { name }));
        }
        self.request.outputs.get_or_insert_default().push((port, is_binary));
        Ok(())
    }
}

/// The maximum number of items for which memory is allocated before any data has arrived.
const ITEMS_EXPECTED_MAX: usize = 64;

const SHARED_MEMORY: &str = "shared memory is not offered";

fn set_input_parameter(name: &str, value: &ParameterValue, binary_bytes: &mut Option<u64>) -> Result<(), InferError> {
    match name {
        "binary_data_size" => *binary_bytes = Some(value.as_u64("inputs", name)?),
        "shared_memory_region" => return Err(unsupported_parameter("inputs", name, SHARED_MEMORY)),
        _ => {}
    }
    Ok(())
}

fn set_output_parameter(name: &str, value: &ParameterValue, is_binary: &mut Option<bool>) -> Result<(), InferError> {
    match name {
        "binary_data" => *is_binary = Some(value.as_bool("outputs", name)?),
        "shared_memory_region" => return Err(unsupported_parameter("outputs", name, SHARED_MEMORY)),
        // Ignoring it would make the client mistake probabilities for labels.
        "classification" => {
            return Err(unsupported_parameter("outputs", name, "the classification extension is not offered"));
        }
        _ => {}
    }
    Ok(())
}

/// A map of parameters; each one is passed to `take`.
struct ParametersSeed<'e, F> {
    error: &'e mut Option<InferError>,
    take: F,
}

impl<'de, F: FnMut(&str, ParameterValue) -> Result<(), InferError>> DeserializeSeed<'de> for ParametersSeed<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(&str, ParameterValue) -> Result<(), InferError>> Visitor<'de> for ParametersSeed<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of parameters")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(BorrowedText(name)) = map.next_key()? {
            let value = map.next_value()?;
            if let Err(error) = (self.take)(&name, value) {
                *self.error = Some(error);
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A shape; parsing stops past the maximum number of dimensions.
struct ShapeDims(Vec<u64>);

impl<'de> Deserialize<'de> for ShapeDims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ShapeDims, D::Error> {
        deserializer.deserialize_seq(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = ShapeDims;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a shape: at most {JSON_DEPTH_MAX} whole numbers from 0 on")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<ShapeDims, A::Error> {
        let mut dims = Vec::new();
        while let Some(dim) = seq.next_element()? {
            if dims.len() == JSON_DEPTH_MAX {
                return Err(A::Error::invalid_length(dims.len() + 1, &self));
            }
            dims.push(dim);
        }
        Ok(ShapeDims(dims))
    }
}
