//! The body of `:predict`: `instances`, a list of rows, or `inputs`, a column for each input.

use std::borrow::Cow;

use saggar_plugin::Signature;

use super::error::TfsError;
use super::tensor::{Values, base64_object};
use crate::error::ApiError;
use crate::predict::decode::{DecodeError, Input, Inputs};
use crate::predict::scan::{Scanner, Token};

/// The one signature that models have here, as TensorFlow names it where none is named.
pub(super) const SIGNATURE: &str = "serving_default";

/// In which of its two forms a request came, and its answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `instances`, answered by `predictions`.
    Rows,
    /// `inputs`, answered by `outputs`.
    Columns,
}

/// Reads a body. What follows its first JSON value is not looked at.
///
/// # Errors
/// [`TfsError`] for the body's form; `DecodeError` where what it says does not fit the model.
pub(super) fn predict(signature: &Signature, body: &[u8]) -> Result<(Inputs, Form), ApiError> {
    let mut json = object(body)?;
    let mut found: Option<(Inputs, Form)> = None;
    while let Some(key) = json.key().map_err(TfsError::from)? {
        let form = match key.as_ref() {
            "signature_name" => {
                named_signature(&mut json, body, &[SIGNATURE])?;
                continue;
            }
            "instances" => Form::Rows,
            "inputs" => Form::Columns,
            _ => {
                json.skip().map_err(TfsError::from)?;
                continue;
            }
        };
        match &found {
            // The first of a name counts.
            Some((_, first)) if *first == form => {
                json.skip().map_err(TfsError::from)?;
            }
            Some(_) => {
                let reason = "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist ";
                return Err(TfsError::form(body, reason).into());
            }
            None if form == Form::Rows => found = Some((rows(signature, &mut json, body)?, form)),
            None => found = Some((columns(signature, &mut json)?, form)),
        }
    }
    found.ok_or_else(|| TfsError::NoInputs.into())
}

/// The body as an object, opened.
pub(super) fn object(body: &[u8]) -> Result<Scanner<'_>, TfsError> {
    let mut json = Scanner::new(body);
    if json.peek().is_none() {
        return Err(TfsError::Empty);
    }
    let mut opened = json;
    match opened.token()? {
        Token::Object => Ok(opened),
        _ => Err(TfsError::form(json.skip()?, "Is not object")),
    }
}

/// Reads the name of a signature, which must be one of `known`.
pub(super) fn named_signature(json: &mut Scanner<'_>, body: &[u8], known: &[&str]) -> Result<(), TfsError> {
    match json.token()? {
        Token::String(name) if name.is_empty() || known.contains(&name.as_ref()) => Ok(()),
        Token::String(name) => Err(TfsError::Signature { name: name.chars().take(80).collect() }),
        _ => Err(TfsError::form(body, "not formatted correctly. 'signature_name' key must be a string value.")),
    }
}

/// Whether the next value is an object, and not one that stands for bytes.
fn is_object(json: &mut Scanner<'_>) -> bool {
    json.peek() == Some(b'{') && !matches!(base64_object(&mut json.clone()), Ok(Some(_)) | Err(TfsError::Base64))
}

fn rows(signature: &Signature, json: &mut Scanner<'_>, body: &[u8]) -> Result<Inputs, ApiError> {
    if json.peek() != Some(b'[') {
        json.skip().map_err(TfsError::from)?;
        return Err(TfsError::form(body, "Excepting 'instances' to be an list/array").into());
    }
    json.token().map_err(TfsError::from)?;
    let mut values: Vec<Values<'_>> = signature.inputs.iter().map(Values::new).collect();
    let (mut element, mut objects) = (0, false);
    while json.element().map_err(TfsError::from)? {
        let object = is_object(json);
        if element == 0 {
            objects = object;
        } else if objects != object {
            let (expected, got) = if objects { ("object", "list") } else { ("value/list", "object") };
            return Err(TfsError::Mixed { expected, got, item: element }.into());
        }
        if objects {
            named_row(signature, &mut values, json, element)?;
        } else {
            let Some(only) = only(signature) else {
                let (given, expected) = ("list", "list of objects");
                return Err(TfsError::Plain { key: "instances", given, expected }.into());
            };
            values[only].read_row(json).map_err(|error| in_element(error, element, ""))?;
        }
        element += 1;
    }
    if element == 0 {
        return Err(TfsError::form(body, "No values in 'instances' array").into());
    }
    let given = values.into_iter().filter(|values| values.rows > 0);
    let inputs = given.map(|values| stacked(values, element)).collect::<Result<_, ApiError>>()?;
    Ok(Inputs::new(signature, inputs)?)
}

/// The index of the input that is meant where none is named.
fn only(signature: &Signature) -> Option<usize> {
    let only = signature.only_input()?;
    signature.inputs.iter().position(|port| port.name == only.name)
}

/// Reads an object with a value for every input; those with a default may be left out.
fn named_row(
    signature: &Signature,
    values: &mut [Values<'_>],
    json: &mut Scanner<'_>,
    element: usize,
) -> Result<(), ApiError> {
    let start = *json;
    json.token().map_err(TfsError::from)?;
    let keys = |start: &Scanner<'_>| {
        let mut names: Vec<&str> = signature.inputs.iter().map(|port| port.name.as_str()).collect();
        names.sort_unstable();
        let value = start.clone().skip().map(super::error::shown).unwrap_or_default();
        TfsError::Keys { element, value, names: names.join(",") }
    };
    while let Some(name) = json.key().map_err(TfsError::from)? {
        let Some(values) = values.iter_mut().find(|values| values.port.name == name) else {
            let error = TfsError::NoNamed { name: name.chars().take(80).collect() };
            return Err(in_element(error.into(), element, &name));
        };
        if values.rows != element {
            return Err(keys(&start).into());
        }
        values.read_row(json).map_err(|error| in_element(error, element, &name))?;
    }
    let complete =
        |values: &Values<'_>| values.rows == element + 1 || values.rows == 0 && values.port.default.is_some();
    if values.iter().all(complete) { Ok(()) } else { Err(keys(&start).into()) }
}

/// Says which element it was.
fn in_element(error: ApiError, element: usize, key: &str) -> ApiError {
    let ApiError::Tfs(
        error @ (TfsError::Type { .. }
        | TfsError::Nesting(_)
        | TfsError::Row { .. }
        | TfsError::Base64
        | TfsError::NoNamed { .. }),
    ) = error
    else {
        return error;
    };
    let shorter: Cow<'_, str> = key.chars().take(80).collect();
    let key = if shorter.is_empty() { String::new() } else { format!(" key: {shorter}") };
    TfsError::Element { element, key, error: Box::new(error) }.into()
}

/// Rows as a batch.
fn stacked(values: Values<'_>, rows: usize) -> Result<Input, ApiError> {
    let (port, row) = (values.port, values.row().unwrap_or_default().to_vec());
    if row != port.item.shape.dims() {
        return Err(DecodeError::Row { name: port.name.clone(), item: port.item.shape.clone(), got: row }.into());
    }
    Ok(Input::new(port, &[&[rows], row.as_slice()].concat(), values.bytes)?)
}

/// A whole tensor for each input: `[batch, item...]`, or `[item...]` for one item without a batch.
fn columns(signature: &Signature, json: &mut Scanner<'_>) -> Result<Inputs, ApiError> {
    let mut inputs: Vec<Input> = Vec::with_capacity(signature.inputs.len());
    let read = |at: usize, json: &mut Scanner<'_>| -> Result<Input, ApiError> {
        let mut values = Values::new(&signature.inputs[at]);
        let dims = values.read(json)?;
        Ok(Input::new(values.port, &dims, values.bytes)?)
    };
    if !is_object(json) {
        let Some(only) = only(signature) else {
            let (given, expected) = ("value/list", "an object");
            return Err(TfsError::Plain { key: "inputs", given, expected }.into());
        };
        let input = read(only, json)?;
        return Ok(Inputs::new(signature, vec![input])?);
    }
    let mut given = vec![false; signature.inputs.len()];
    json.token().map_err(TfsError::from)?;
    while let Some(name) = json.key().map_err(TfsError::from)? {
        match signature.inputs.iter().position(|port| port.name == name) {
            Some(at) if !std::mem::replace(&mut given[at], true) => inputs.push(read(at, json)?),
            _ => {
                json.skip().map_err(TfsError::from)?;
            }
        }
    }
    let missing = signature.inputs.iter().zip(&given).find(|(port, given)| !**given && port.default.is_none());
    if let Some((port, _)) = missing {
        return Err(TfsError::NoColumn { name: port.name.clone() }.into());
    }
    Ok(Inputs::new(signature, inputs)?)
}
