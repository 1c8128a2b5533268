//! Parses the JSON of an inference request: elements are written directly to dense bytes of their input's type.
//!
//! An input's elements can be read only once its name is known. If "data" comes before "name", the data is skipped and
//! read after the other members of its input.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use saggar_plugin::{ModelPort, ModelSignature};
use saggar_serving::json_text;
use saggar_serving::limits::DEADLINE_MAX;
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use super::datatype::OipDatatype;
use super::error::InferError;
use super::parameter::{ParameterValue, unsupported_parameter};
use super::tensor_data::TensorElements;
use crate::json_body;
use crate::limits::JSON_DEPTH_MAX;
use crate::predict::decode;
use crate::tensor_json::{JsonSyntaxError, JsonToken, JsonTokenizer};

/// A parsed input, not yet checked against its shape.
#[derive(Debug)]
pub(super) struct ParsedInput<'s> {
    pub(super) port: &'s ModelPort,
    pub(super) shape: Vec<u64>,
    pub(super) data: Option<TensorElements>,
    pub(super) binary_bytes: Option<u64>,
}

/// The parts of a request.
#[derive(Debug, Default)]
pub(super) struct ParsedInferRequest<'s> {
    pub(super) id: Option<String>,
    pub(super) inputs: Vec<ParsedInput<'s>>,
    /// The requested outputs: each output's index in the signature, and its `binary_data` parameter if given. `None` if
    /// the request has no list of outputs.
    pub(super) outputs: Option<Vec<(usize, Option<bool>)>>,
    /// Whether outputs without `binary_data` are returned as binary data.
    pub(super) binary_output: bool,
    pub(super) limit: Option<Duration>,
}

/// Parses the JSON. `NaN` and `Infinity` are numbers, as clients send them.
///
/// # Errors
/// Returns the first syntax or signature error. Does not check that data, shapes and the body's binary part are
/// consistent.
pub(super) fn parse_request<'s>(
    signature: &'s ModelSignature,
    json: &[u8],
) -> Result<ParsedInferRequest<'s>, InferError> {
    let request = ParsedInferRequest::default();
    let mut parser = RequestParser { signature, text: json, json: JsonTokenizer::new(json), request };
    parser.parse()?;
    Ok(parser.request)
}

/// The state of parsing a request.
struct RequestParser<'s, 'b> {
    signature: &'s ModelSignature,
    text: &'b [u8],
    json: JsonTokenizer<'b>,
    request: ParsedInferRequest<'s>,
}

impl<'b> RequestParser<'_, 'b> {
    fn parse(&mut self) -> Result<(), InferError> {
        let mut has_inputs = false;
        self.open_object("an object with \"inputs\"")?;
        while let Some(key) = self.next_key()? {
            match key.as_ref() {
                "id" => self.request.id = self.parse_value()?,
                "parameters" => {
                    self.parse_parameters(|parser, name, value| parser.request.set_parameter(name, &value))?;
                }
                "inputs" => {
                    has_inputs = true;
                    self.parse_tensors(RequestParser::parse_input)?;
                }
                "outputs" => {
                    self.request.outputs.get_or_insert_default();
                    self.parse_tensors(RequestParser::parse_output)?;
                }
                _ => drop(self.skip_value()?),
            }
        }
        let end = self.json.expect_end();
        end.map_err(|error| self.syntax_error(error))?;
        if has_inputs { Ok(()) } else { Err(InferError::Missing { place: "request".to_owned(), key: "inputs" }) }
    }

    fn syntax_error(&self, error: JsonSyntaxError) -> InferError {
        InferError::Syntax { reason: json_body::describe_syntax_error(self.text, error) }
    }

    fn next_key(&mut self) -> Result<Option<Cow<'b, str>>, InferError> {
        let key = self.json.next_key();
        key.map_err(|error| self.syntax_error(error))
    }

    fn skip_value(&mut self) -> Result<&'b [u8], InferError> {
        let value = self.json.skip_value();
        value.map_err(|error| self.syntax_error(error))
    }

    /// Parses a value other than the elements of a tensor.
    fn parse_value<T: Deserialize<'b>>(&mut self) -> Result<T, InferError> {
        let value = self.skip_value()?;
        let parsed = serde_json::from_slice(value);
        parsed.map_err(|error| InferError::Syntax { reason: json_text::describe_json_error(&error, value) })
    }

    /// Reads the start of an object.
    fn open_object(&mut self, expected: &'static str) -> Result<(), InferError> {
        match self.json.peek() {
            Some(b'{') => self.next_token().map(drop),
            _ => Err(self.unexpected(expected)),
        }
    }

    fn next_token(&mut self) -> Result<JsonToken<'b>, InferError> {
        let token = self.json.next_token();
        token.map_err(|error| self.syntax_error(error))
    }

    /// Returns the error for a value that is not what is expected.
    fn unexpected(&mut self, expected: &str) -> InferError {
        let got = match self.next_token() {
            Ok(JsonToken::Object) => "an object".to_owned(),
            Ok(JsonToken::Array) => "a list".to_owned(),
            Ok(JsonToken::String(text)) => format!("{:?}", text.chars().take(40).collect::<String>()),
            Ok(JsonToken::Number(number)) => number.to_string(),
            Ok(JsonToken::Bool(truth)) => truth.to_string(),
            Ok(JsonToken::Null) => "null".to_owned(),
            Err(error) => return error,
        };
        InferError::Syntax { reason: format!("expected {expected}, got {got}") }
    }

    /// Parses a map of parameters, or null. Each parameter is passed to `take`.
    fn parse_parameters(
        &mut self,
        mut take: impl FnMut(&mut Self, &str, ParameterValue) -> Result<(), InferError>,
    ) -> Result<(), InferError> {
        if self.json.peek() == Some(b'n') {
            return self.next_token().map(drop);
        }
        self.open_object("an object of parameters")?;
        while let Some(name) = self.next_key()? {
            let value = self.parse_value()?;
            take(self, &name, value)?;
        }
        Ok(())
    }

    /// Parses a list of tensors, or null.
    fn parse_tensors(&mut self, parse: fn(&mut Self) -> Result<(), InferError>) -> Result<(), InferError> {
        match self.json.peek() {
            Some(b'n') => return self.next_token().map(drop),
            Some(b'[') => self.next_token().map(drop)?,
            _ => return Err(self.unexpected("an array of tensors")),
        }
        loop {
            let has_element = self.json.next_element();
            if !has_element.map_err(|error| self.syntax_error(error))? {
                return Ok(());
            }
            self.open_object("an object with \"name\"")?;
            parse(self)?;
        }
    }

    fn parse_input(&mut self) -> Result<(), InferError> {
        let (mut port, mut shape, mut datatype, mut binary_bytes) = (None, None, None, None);
        // The data, if it came before the name.
        let mut early_data = None;
        let mut data = None;
        while let Some(key) = self.next_key()? {
            match key.as_ref() {
                "name" => {
                    let name: String = self.parse_value()?;
                    port = Some(decode::find_input(self.signature, &name)?);
                }
                "shape" => shape = Some(self.parse_value::<ShapeDims>()?.0),
                "datatype" => datatype = Some(self.parse_value::<String>()?),
                "data" => match port {
                    Some(port) => data = Some(read_data(port, shape.as_deref(), &mut self.json, self.text)?),
                    None => {
                        early_data = Some(self.json);
                        self.skip_value()?;
                    }
                },
                "parameters" => {
                    self.parse_parameters(|_, name, value| set_input_parameter(name, &value, &mut binary_bytes))?
                }
                _ => drop(self.skip_value()?),
            }
        }
        let place = format!("inputs[{}]", self.request.inputs.len());
        let missing = |key| InferError::Missing { place: place.clone(), key };
        let port = port.ok_or_else(|| missing("name"))?;
        let shape = shape.ok_or_else(|| missing("shape"))?;
        let datatype = datatype.ok_or_else(|| missing("datatype"))?;
        check_datatype(port, &datatype)?;
        if let (None, Some(mut early)) = (&data, early_data) {
            data = Some(read_data(port, Some(&shape), &mut early, self.text)?);
        }
        self.request.inputs.push(ParsedInput { port, shape, data, binary_bytes });
        Ok(())
    }

    fn parse_output(&mut self) -> Result<(), InferError> {
        let (mut port, mut is_binary) = (None, None);
        while let Some(key) = self.next_key()? {
            match key.as_ref() {
                "name" => {
                    let name: String = self.parse_value()?;
                    port = Some(find_output(self.signature, &name)?);
                }
                "parameters" => {
                    self.parse_parameters(|_, name, value| set_output_parameter(name, &value, &mut is_binary))?
                }
                _ => drop(self.skip_value()?),
            }
        }
        let outputs = self.request.outputs.get_or_insert_default();
        let place = format!("outputs[{}]", outputs.len());
        let port = port.ok_or(InferError::Missing { place, key: "name" })?;
        if outputs.iter().any(|(other, _)| *other == port) {
            return Err(InferError::OutputTwice { name: self.signature.outputs[port].name.clone() });
        }
        outputs.push((port, is_binary));
        Ok(())
    }
}

/// Checks that an input accepts data that is declared as `datatype`.
///
/// # Errors
/// Returns `Datatype` if it does not.
pub(super) fn check_datatype(port: &ModelPort, datatype: &str) -> Result<(), InferError> {
    let expected = OipDatatype::from_port(port);
    if expected.accepts(datatype) {
        return Ok(());
    }
    let got = datatype.chars().take(40).collect();
    Err(InferError::Datatype { name: port.name.clone(), expected: expected.name(), got })
}

/// Returns the index of the output of this name.
///
/// # Errors
/// Returns `UnknownOutput`.
pub(super) fn find_output(signature: &ModelSignature, name: &str) -> Result<usize, InferError> {
    let found = signature.outputs.iter().position(|port| port.name == name);
    found.ok_or_else(|| {
        let known: Vec<&str> = signature.outputs.iter().map(|port| port.name.as_str()).collect();
        InferError::UnknownOutput { name: name.chars().take(80).collect(), known: known.join(", ") }
    })
}

fn read_data(
    port: &ModelPort,
    shape: Option<&[u64]>,
    json: &mut JsonTokenizer<'_>,
    text: &[u8],
) -> Result<TensorElements, InferError> {
    // Only a hint, and capped: a shape that overstates the data wastes little memory.
    let hint = shape.map_or(0, |shape| shape.iter().fold(1, |count: u64, &dim| count.saturating_mul(dim)));
    let items = port.item.shape.elements().max(1);
    let count = usize::try_from(hint).unwrap_or(usize::MAX).min(items.saturating_mul(ITEMS_EXPECTED_MAX));
    TensorElements::read(port, count, json, text)
}

impl ParsedInferRequest<'_> {
    /// Applies a parameter of the request.
    ///
    /// # Errors
    /// Returns `Parameter` for an invalid value, and `Refused` for a name that is reserved.
    pub(super) fn set_parameter(&mut self, name: &str, value: &ParameterValue) -> Result<(), InferError> {
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

/// The maximum number of items for which memory is allocated before any data has arrived.
const ITEMS_EXPECTED_MAX: usize = 64;

const SHARED_MEMORY: &str = "shared memory is not offered";

/// Applies a parameter of an input.
///
/// # Errors
/// Returns `Parameter` for an invalid value, and `Refused` for a feature that is not offered.
pub(super) fn set_input_parameter(
    name: &str,
    value: &ParameterValue,
    binary_bytes: &mut Option<u64>,
) -> Result<(), InferError> {
    match name {
        "binary_data_size" => *binary_bytes = Some(value.as_u64("inputs", name)?),
        "shared_memory_region" => return Err(unsupported_parameter("inputs", name, SHARED_MEMORY)),
        _ => {}
    }
    Ok(())
}

/// Applies a parameter of a requested output.
///
/// # Errors
/// Returns `Parameter` for an invalid value, and `Refused` for a feature that is not offered.
pub(super) fn set_output_parameter(
    name: &str,
    value: &ParameterValue,
    is_binary: &mut Option<bool>,
) -> Result<(), InferError> {
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
