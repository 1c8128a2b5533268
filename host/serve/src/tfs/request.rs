//! Parses the body of `:predict`: `instances`, a list of rows, or `inputs`, a column for each input.

use std::borrow::Cow;

use saggar_plugin::ModelSignature;
use saggar_serving::PredictionInputs;

use super::error::TfsError;
use super::tensor::InputValues;
use crate::error::ApiError;
use crate::predict::decode::{DecodeError, PredictionInput, assemble_inputs};
use crate::tensor_json::{JsonToken, JsonTokenizer, is_base64_object};

/// The only signature name of models here; TensorFlow's default.
pub(super) const SIGNATURE: &str = "serving_default";

/// The format of a request, which its response shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PredictFormat {
    /// `instances`; the response has `predictions`.
    Rows,
    /// `inputs`; the response has `outputs`.
    Columns,
}

/// Parses a body. Anything after its first JSON value is ignored.
///
/// # Errors
/// Returns [`TfsError`] if the body has the wrong form, or `DecodeError` if its values do not fit the model.
pub(super) fn read_predict_request(
    signature: &ModelSignature,
    body: &[u8],
) -> Result<(PredictionInputs, PredictFormat), ApiError> {
    let mut json = open_object(body)?;
    let mut found: Option<(PredictionInputs, PredictFormat)> = None;
    while let Some(key) = json.next_key().map_err(TfsError::from)? {
        let form = match key.as_ref() {
            "signature_name" => {
                read_signature_name(&mut json, body, &[SIGNATURE])?;
                continue;
            }
            "instances" => PredictFormat::Rows,
            "inputs" => PredictFormat::Columns,
            _ => {
                json.skip_value().map_err(TfsError::from)?;
                continue;
            }
        };
        match &found {
            // If a key is repeated, the first one counts.
            Some((_, first)) if *first == form => {
                json.skip_value().map_err(TfsError::from)?;
            }
            Some(_) => {
                let reason = "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist ";
                return Err(TfsError::bad_form(body, reason).into());
            }
            None if form == PredictFormat::Rows => found = Some((read_rows(signature, &mut json, body)?, form)),
            None => found = Some((read_columns(signature, &mut json)?, form)),
        }
    }
    found.ok_or_else(|| TfsError::NoInputs.into())
}

/// Returns a tokenizer positioned after the opening brace of the body, which must be an object.
pub(super) fn open_object(body: &[u8]) -> Result<JsonTokenizer<'_>, TfsError> {
    let mut json = JsonTokenizer::new(body);
    if json.peek().is_none() {
        return Err(TfsError::Empty);
    }
    let mut opened = json;
    match opened.next_token()? {
        JsonToken::Object => Ok(opened),
        _ => Err(TfsError::bad_form(json.skip_value()?, "Is not object")),
    }
}

/// Reads the name of a signature, which must be one of `known`.
pub(super) fn read_signature_name(json: &mut JsonTokenizer<'_>, body: &[u8], known: &[&str]) -> Result<(), TfsError> {
    match json.next_token()? {
        JsonToken::String(name) if name.is_empty() || known.contains(&name.as_ref()) => Ok(()),
        JsonToken::String(name) => Err(TfsError::Signature { name: name.chars().take(80).collect() }),
        _ => Err(TfsError::bad_form(body, "not formatted correctly. 'signature_name' key must be a string value.")),
    }
}

/// Returns whether the next value is an object other than one that encodes bytes as base64.
fn is_object(json: &mut JsonTokenizer<'_>) -> bool {
    json.peek() == Some(b'{') && !is_base64_object(json)
}

fn read_rows(
    signature: &ModelSignature,
    json: &mut JsonTokenizer<'_>,
    body: &[u8],
) -> Result<PredictionInputs, ApiError> {
    if json.peek() != Some(b'[') {
        json.skip_value().map_err(TfsError::from)?;
        return Err(TfsError::bad_form(body, "Excepting 'instances' to be an list/array").into());
    }
    json.next_token().map_err(TfsError::from)?;
    let mut values: Vec<InputValues<'_>> = signature.inputs.iter().map(InputValues::new).collect();
    let (mut element, mut objects) = (0, false);
    while json.next_element().map_err(TfsError::from)? {
        let object = is_object(json);
        if element == 0 {
            objects = object;
        } else if objects != object {
            let (expected, got) = if objects { ("object", "list") } else { ("value/list", "object") };
            return Err(TfsError::Mixed { expected, got, item: element }.into());
        }
        if objects {
            read_named_row(signature, &mut values, json, element)?;
        } else {
            let Some(only) = single_input(signature) else {
                let (given, expected) = ("list", "list of objects");
                return Err(TfsError::Plain { key: "instances", given, expected }.into());
            };
            values[only].read_row(json).map_err(|error| at_element(error, element, ""))?;
        }
        element += 1;
    }
    if element == 0 {
        return Err(TfsError::bad_form(body, "No values in 'instances' array").into());
    }
    let given = values.into_iter().filter(|values| values.rows > 0);
    let inputs = given.map(|values| stack_rows(values, element)).collect::<Result<_, ApiError>>()?;
    Ok(assemble_inputs(signature, inputs)?)
}

/// Returns the index of the input that unnamed values are for, if the model has only one.
fn single_input(signature: &ModelSignature) -> Option<usize> {
    let only = signature.only_input()?;
    signature.inputs.iter().position(|port| port.name == only.name)
}

/// Reads an object with a value for each input; inputs with a default can be omitted.
fn read_named_row(
    signature: &ModelSignature,
    values: &mut [InputValues<'_>],
    json: &mut JsonTokenizer<'_>,
    element: usize,
) -> Result<(), ApiError> {
    let start = *json;
    json.next_token().map_err(TfsError::from)?;
    let keys = |start: &JsonTokenizer<'_>| {
        let mut names: Vec<&str> = signature.inputs.iter().map(|port| port.name.as_str()).collect();
        names.sort_unstable();
        let value = start.clone().skip_value().map(super::error::excerpt).unwrap_or_default();
        TfsError::Keys { element, value, names: names.join(",") }
    };
    while let Some(name) = json.next_key().map_err(TfsError::from)? {
        let Some(values) = values.iter_mut().find(|values| values.port.name == name) else {
            let error = TfsError::NoNamed { name: name.chars().take(80).collect() };
            return Err(at_element(error.into(), element, &name));
        };
        if values.rows != element {
            return Err(keys(&start).into());
        }
        values.read_row(json).map_err(|error| at_element(error, element, &name))?;
    }
    let complete =
        |values: &InputValues<'_>| values.rows == element + 1 || values.rows == 0 && values.port.default.is_some();
    if values.iter().all(complete) { Ok(()) } else { Err(keys(&start).into()) }
}

/// Adds the element's index to an error.
fn at_element(error: ApiError, element: usize, key: &str) -> ApiError {
    let ApiError::Protocol(inner) = &error else { return error };
    let inner: &dyn std::error::Error = &**inner;
    let Some(
        inner @ (TfsError::Type { .. }
        | TfsError::Nesting(_)
        | TfsError::Row { .. }
        | TfsError::Base64
        | TfsError::NoNamed { .. }),
    ) = inner.downcast_ref()
    else {
        return error;
    };
    let shorter: Cow<'_, str> = key.chars().take(80).collect();
    let key = if shorter.is_empty() { String::new() } else { format!(" key: {shorter}") };
    TfsError::Element { element, key, error: Box::new(inner.clone()) }.into()
}

/// Joins rows to a batch.
fn stack_rows(values: InputValues<'_>, rows: usize) -> Result<PredictionInput, ApiError> {
    let (port, row) = (values.port, values.row_shape().unwrap_or_default().to_vec());
    if row != port.item.shape.dims() {
        return Err(DecodeError::Row { name: port.name.clone(), item: port.item.shape.clone(), got: row }.into());
    }
    Ok(PredictionInput::new(port, &[&[rows], row.as_slice()].concat(), values.into_bytes())?)
}

/// Reads a whole tensor for each input: `[batch, item...]`, or `[item...]` for one item without a batch.
fn read_columns(signature: &ModelSignature, json: &mut JsonTokenizer<'_>) -> Result<PredictionInputs, ApiError> {
    let mut inputs: Vec<PredictionInput> = Vec::with_capacity(signature.inputs.len());
    let read = |at: usize, json: &mut JsonTokenizer<'_>| -> Result<PredictionInput, ApiError> {
        let mut values = InputValues::new(&signature.inputs[at]);
        let dims = values.read(json)?;
        Ok(PredictionInput::new(values.port, &dims, values.into_bytes())?)
    };
    if !is_object(json) {
        let Some(only) = single_input(signature) else {
            let (given, expected) = ("value/list", "an object");
            return Err(TfsError::Plain { key: "inputs", given, expected }.into());
        };
        let input = read(only, json)?;
        return Ok(assemble_inputs(signature, vec![input])?);
    }
    let mut given = vec![false; signature.inputs.len()];
    json.next_token().map_err(TfsError::from)?;
    while let Some(name) = json.next_key().map_err(TfsError::from)? {
        match signature.inputs.iter().position(|port| port.name == name) {
            Some(at) if !std::mem::replace(&mut given[at], true) => inputs.push(read(at, json)?),
            _ => {
                json.skip_value().map_err(TfsError::from)?;
            }
        }
    }
    let missing = signature.inputs.iter().zip(&given).find(|(port, given)| !**given && port.default.is_none());
    if let Some((port, _)) = missing {
        return Err(TfsError::NoColumn { name: port.name.clone() }.into());
    }
    Ok(assemble_inputs(signature, inputs)?)
}
