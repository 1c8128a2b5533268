//! Decodes JSON into a model's inputs: an object keyed by input, or a bare value if a single input is required.
//!
//! A string is the bytes of a text, or the name of a class. `true` and `false` are numbers within arrays. Elements are
//! read by [`tensor_json`](crate::tensor_json).

use saggar_plugin::{ModelPort, ModelSignature};
use saggar_serving::PredictionInputs;

use super::decode::{self, DecodeError, PredictionInput, assemble_inputs};
use super::text_codec;
use crate::json_body;
use crate::limits::INPUT_BYTES_MAX;
use crate::tensor_json::{
    ArrayNesting, ElementRules, JsonSyntaxError, JsonToken, JsonTokenizer, NumberRules, TensorErrorKind,
    TensorJsonError, TensorReader, TextNotation, expected_range,
};

/// Decodes the inputs in a JSON body.
///
/// # Errors
/// Returns [`DecodeError`] with the position, the expected and the actual value.
pub fn decode_json(signature: &ModelSignature, body: &[u8]) -> Result<PredictionInputs, DecodeError> {
    let mut json = JsonTokenizer::standard(body);
    let inputs = read_inputs(signature, &mut json, body)?;
    json.expect_end().map_err(|error| syntax_error(body, "body", error))?;
    assemble_inputs(signature, inputs)
}

/// Decodes the value of one input.
///
/// # Errors
/// Returns the errors of [`decode_json`].
pub(super) fn decode_json_input(port: &ModelPort, text: &[u8]) -> Result<PredictionInput, DecodeError> {
    let mut json = JsonTokenizer::standard(text);
    let input = read_input(port, &mut json, text)?;
    json.expect_end().map_err(|error| syntax_error(text, &port.name, error))?;
    Ok(input)
}

fn read_inputs(
    signature: &ModelSignature,
    json: &mut JsonTokenizer<'_>,
    body: &[u8],
) -> Result<Vec<PredictionInput>, DecodeError> {
    let syntax = |error| syntax_error(body, "body", error);
    let mut opened = *json;
    let (got, is_input) = match opened.next_token().map_err(syntax)? {
        JsonToken::Object => ("an object", false),
        JsonToken::Array => ("an array", true),
        JsonToken::Number(number) if number.is_beyond_f64() => return Err(out_of_range("body")),
        JsonToken::Number(_) => ("a number", true),
        JsonToken::String(_) => {
            ("a string", signature.only_input().is_some_and(|port| port.text_bytes_max().is_some()))
        }
        JsonToken::Bool(_) => ("a truth value", false),
        JsonToken::Null => ("null", false),
    };
    if got != "an object" {
        let Some(port) = signature.only_input().filter(|_| is_input) else {
            let names: Vec<&str> = signature.inputs.iter().map(|port| port.name.as_str()).collect();
            return Err(unexpected("body", format!("an object with {}", names.join(", ")), got));
        };
        return Ok(vec![read_input(port, json, body)?]);
    }
    *json = opened;
    let mut inputs: Vec<PredictionInput> = Vec::with_capacity(signature.inputs.len());
    while let Some(name) = json.next_key().map_err(syntax)? {
        let port = decode::find_input(signature, &name)?;
        if inputs.iter().any(|input| input.name() == name) {
            return Err(DecodeError::Twice { name: name.into_owned() });
        }
        inputs.push(read_input(port, json, body)?);
    }
    Ok(inputs)
}

/// Reads the value of `port`. `text` is all of the tokenizer's text.
fn read_input(port: &ModelPort, json: &mut JsonTokenizer<'_>, text: &[u8]) -> Result<PredictionInput, DecodeError> {
    let mut reader = TensorReader::new(element_rules(port), port.item.bytes());
    reader.read(json).map_err(|error| decode_error(port, json, text, &error))?;
    let dims: Vec<usize> = reader.dims().collect();
    match (PredictionInput::new(port, &dims, reader.into_bytes()), port.text_bytes_max()) {
        (Err(DecodeError::Shape { name, got, .. }), Some(bytes_max)) => {
            let expected = format!("a string of at most {bytes_max} bytes, or an array of strings for a batch");
            let got = if got.is_empty() { "a number; put it in quotes".to_owned() } else { format!("shape {got:?}") };
            Err(DecodeError::Unexpected { place: name, expected, got })
        }
        (input, _) => input,
    }
}

fn element_rules(port: &ModelPort) -> ElementRules<'_> {
    let is_class = port.semantics.as_deref() == Some("class");
    ElementRules {
        dtype: port.item.dtype,
        text: port.text_bytes_max().map(|bytes| (TextNotation::StringOrNumbers, bytes)),
        classes: if is_class { &port.classes } else { &[] },
        numbers: NumberRules { whole_floats: true, overflow_is_infinite: false },
        booleans: true,
        nesting: ArrayNesting::Rectangular,
        bytes_max: INPUT_BYTES_MAX,
    }
}

fn decode_error(port: &ModelPort, json: &JsonTokenizer<'_>, text: &[u8], error: &TensorJsonError) -> DecodeError {
    let indices: String = error.path.iter().map(|index| format!("[{index}]")).collect();
    let place = format!("{}{indices}", port.name);
    let got = || error.describe_value(json);
    match error.kind {
        TensorErrorKind::Syntax(syntax) => syntax_error(text, &place, syntax),
        TensorErrorKind::NumberOutOfRange => out_of_range(&place),
        TensorErrorKind::Element | TensorErrorKind::ElementAmongArrays { .. } => {
            let expected = match (json.at_value(error.offset).next_token(), error.kind) {
                (Ok(JsonToken::Object), _) => "a number or an array of numbers",
                (Ok(JsonToken::Null), _) => "a number",
                (Ok(JsonToken::String(text)), _) if !is_text_or_class(port, &text) => "a number",
                (_, TensorErrorKind::ElementAmongArrays { .. }) => "an array, as beside it",
                _ => expected_range(port.item.dtype),
            };
            unexpected(&place, expected, got())
        }
        TensorErrorKind::ArrayAmongElements { .. } => {
            let got = got();
            let got = if got == "an array" { "an array" } else { "a string" };
            unexpected(&place, "a number, as beside it", got)
        }
        TensorErrorKind::Ragged { expected, got, .. } => DecodeError::Ragged { place, expected, got },
        TensorErrorKind::TooDeep => DecodeError::TooDeep { place },
        TensorErrorKind::TooLarge => DecodeError::TooLarge { name: port.name.clone() },
        TensorErrorKind::Text(error) => text_codec::text_error(place, error),
        TensorErrorKind::Base64 | TensorErrorKind::NotUtf8 { .. } => unexpected(&place, "a text in UTF-8", got()),
    }
}

fn is_text_or_class(port: &ModelPort, text: &str) -> bool {
    let is_class = port.semantics.as_deref() == Some("class");
    port.text_bytes_max().is_some() || is_class && port.classes.iter().any(|class| class == text)
}

fn unexpected(place: &str, expected: impl Into<String>, got: impl Into<String>) -> DecodeError {
    DecodeError::Unexpected { place: place.to_owned(), expected: expected.into(), got: got.into() }
}

fn out_of_range(place: &str) -> DecodeError {
    DecodeError::Syntax { place: place.to_owned(), reason: "number out of range".to_owned() }
}

fn syntax_error(text: &[u8], place: &str, error: JsonSyntaxError) -> DecodeError {
    DecodeError::Syntax { place: place.to_owned(), reason: json_body::describe_syntax_error(text, error) }
}

#[cfg(test)]
mod tests;
