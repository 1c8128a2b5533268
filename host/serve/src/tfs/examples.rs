//! `:classify` and `:regress`: a request has a list of examples, each a set of features; the response has one list of
//! classes or one number for each.
//!
//! Features are a model's inputs, as single values or lists. A list holds the input's elements flat in row-major order,
//! or nested like the shape. A context contains features that all examples share.

use std::borrow::Cow;

use saggar_plugin::{ModelPort, ModelSignature};
use saggar_serving::{CompletedPrediction, PredictionInputs};

use super::encode::{OutputColumn, push_string};
use super::error::{TfsError, json_type_name};
use super::request::{SIGNATURE, open_object, read_signature_name};
use super::tensor::InputValues;
use crate::error::ApiError;
use crate::limits::INPUT_BYTES_MAX;
use crate::predict::decode::{DecodeError, PredictionInput, assemble_inputs};
use crate::tensor_json::{JsonToken, JsonTokenizer};

/// The kind of results to compute from the outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExamplesMethod {
    Classify,
    Regress,
}

impl ExamplesMethod {
    pub(super) fn name(self) -> &'static str {
        match self {
            ExamplesMethod::Classify => "classify",
            ExamplesMethod::Regress => "regress",
        }
    }
}

/// The output from which results are computed, with its index in the signature.
#[derive(Clone, Copy, Debug)]
pub(super) enum ExampleOutput {
    /// Scores of all classes.
    Scores(usize),
    /// The number of one class.
    Class(usize),
    /// A single number.
    Number(usize),
}

/// Selects the output of `model` for `method`: for classification the only `probabilities`, else the only `class`; for
/// regression the only output that is a single float.
///
/// # Errors
/// Returns `Method` if there is no such output, or more than one.
pub(super) fn select_output(
    model: &str,
    signature: &ModelSignature,
    method: ExamplesMethod,
) -> Result<ExampleOutput, TfsError> {
    let refuse = |reason: &str| {
        let outputs: Vec<String> =
            signature.outputs.iter().map(|port| format!("{} ({})", port.name, port.item)).collect();
        let reason = format!("{reason} among its outputs {}", outputs.join(", "));
        TfsError::Method { model: model.to_owned(), method: method.name(), reason }
    };
    let find = |fits: &dyn Fn(&ModelPort) -> bool| {
        let mut found = (0..signature.outputs.len()).filter(|&at| fits(&signature.outputs[at]));
        (found.next(), found.next().is_some())
    };
    let semantics = |port: &ModelPort, word: &str| port.semantics.as_deref() == Some(word);
    let one = |port: &ModelPort| port.item.shape.elements() == 1;
    match method {
        ExamplesMethod::Classify => {
            let scores = |port: &ModelPort| {
                semantics(port, "probabilities") && port.item.dtype.is_float() && port.item.shape.dims().len() == 1
            };
            let class = |port: &ModelPort| semantics(port, "class") && !port.item.dtype.is_float() && one(port);
            match (find(&scores), find(&class)) {
                ((Some(at), false), _) => Ok(ExampleOutput::Scores(at)),
                ((None, _), (Some(at), false)) => Ok(ExampleOutput::Class(at)),
                _ => Err(refuse("it does not have exactly one with the semantics `probabilities` or `class`")),
            }
        }
        ExamplesMethod::Regress => {
            match find(&|port| port.semantics.is_none() && port.item.dtype.is_float() && one(port)) {
                (Some(at), false) => Ok(ExampleOutput::Number(at)),
                _ => Err(refuse("it does not have exactly one that is a single float")),
            }
        }
    }
}

/// Parses a body.
///
/// # Errors
/// Returns [`TfsError`] if the body has the wrong form, or `DecodeError` if its values do not fit the model.
pub(super) fn read_examples(
    signature: &ModelSignature,
    body: &[u8],
    method: ExamplesMethod,
) -> Result<PredictionInputs, ApiError> {
    let mut json = open_object(body)?;
    let mut context: Vec<InputValues<'_>> = signature.inputs.iter().map(InputValues::new).collect();
    let mut examples: Vec<InputValues<'_>> = signature.inputs.iter().map(InputValues::new).collect();
    let mut count = None;
    while let Some(key) = json.next_key().map_err(TfsError::from)? {
        match key.as_ref() {
            "signature_name" => {
                read_signature_name(&mut json, body, &[SIGNATURE, method.name()])?;
            }
            "context" => read_features(&mut json, &mut context, 0)?,
            "examples" if count.is_none() => count = Some(read_all_examples(&mut json, body, &mut examples)?),
            _ => {
                json.skip_value().map_err(TfsError::from)?;
            }
        }
    }
    let Some(count) = count else {
        let reason = format!("When method is {}, key 'examples' is expected and was not found", method.name());
        return Err(TfsError::bad_form(body, reason).into());
    };
    let mut inputs = Vec::with_capacity(signature.inputs.len());
    for (values, shared) in examples.into_iter().zip(context) {
        let port = values.port;
        let bytes = match (values.rows, shared.rows) {
            (0, 0) => continue,
            (0, _) => repeat_item(port, &shared.into_bytes(), count)?,
            (rows, 0) if rows == count => values.into_bytes(),
            (_, 0) => return Err(missing_input(port).into()),
            _ => return Err(TfsError::Feature { name: port.name.clone() }.into()),
        };
        let dims = [&[count], port.item.shape.dims()].concat();
        inputs.push(PredictionInput::new(port, &dims, bytes)?);
    }
    Ok(assemble_inputs(signature, inputs)?)
}

/// Returns the item once for each example.
fn repeat_item(port: &ModelPort, item: &[u8], count: usize) -> Result<Vec<u8>, DecodeError> {
    if item.len().saturating_mul(count) > INPUT_BYTES_MAX {
        return Err(DecodeError::TooLarge { name: port.name.clone() });
    }
    Ok(item.repeat(count))
}

fn missing_input(port: &ModelPort) -> DecodeError {
    DecodeError::Missing { name: port.name.clone(), item: port.item.clone() }
}

fn read_all_examples(
    json: &mut JsonTokenizer<'_>,
    body: &[u8],
    values: &mut [InputValues<'_>],
) -> Result<usize, ApiError> {
    if json.peek() != Some(b'[') {
        json.skip_value().map_err(TfsError::from)?;
        return Err(TfsError::bad_form(body, "Expecting 'examples' value to be an list/array").into());
    }
    json.next_token().map_err(TfsError::from)?;
    let mut count = 0;
    while json.next_element().map_err(TfsError::from)? {
        read_features(json, values, count)?;
        count += 1;
    }
    if count == 0 {
        return Err(TfsError::bad_form(body, "'examples' value is an empty array").into());
    }
    Ok(count)
}

/// Reads the features of example number `example`. Features that are not inputs of the model are ignored.
fn read_features(json: &mut JsonTokenizer<'_>, values: &mut [InputValues<'_>], example: usize) -> Result<(), ApiError> {
    json.peek();
    let mut opened = *json;
    if !matches!(opened.next_token().map_err(TfsError::from)?, JsonToken::Object) {
        return Err(TfsError::Example { kind: json_type_name(json.skip_value().map_err(TfsError::from)?) }.into());
    }
    *json = opened;
    while let Some(name) = json.next_key().map_err(TfsError::from)? {
        let Some(values) = values.iter_mut().find(|values| values.port.name == name) else {
            json.skip_value().map_err(TfsError::from)?;
            continue;
        };
        if values.rows > example {
            return Err(TfsError::Feature { name: name.into_owned() }.into());
        }
        if values.rows < example {
            return Err(missing_input(values.port).into());
        }
        let dims = values.read(json)?;
        let item = values.port.item.shape.dims();
        // A text is already a list of bytes, and can be in a list of one element.
        let is_flat = dims.len() <= 1 || values.port.text_bytes_max().is_some() && dims.len() == 2;
        if dims != item && !(is_flat && dims.iter().product::<usize>() == item.iter().product::<usize>()) {
            let (name, item) = (values.port.name.clone(), values.port.item.shape.clone());
            return Err(DecodeError::Row { name, item, got: dims }.into());
        }
        values.rows += 1;
    }
    Ok(())
}

/// Encodes the response: `{"results": [...]}`, with one result for each example.
///
/// # Errors
/// Returns an error if the outputs do not match the signature.
pub(super) fn encode_results(answer: &CompletedPrediction, plan: ExampleOutput) -> Result<String, ApiError> {
    let (ExampleOutput::Scores(at) | ExampleOutput::Class(at) | ExampleOutput::Number(at)) = plan;
    let port = &answer.signature().outputs[at];
    let column = OutputColumn::find(port, &answer.tensors, answer.items)?;
    let mut text = String::from("{\"results\":[");
    for item in 0..answer.items.unwrap_or(1) {
        if item > 0 {
            text.push(',');
        }
        match plan {
            ExampleOutput::Number(_) => column.push_element(&mut text, item, 0),
            ExampleOutput::Class(_) => {
                let mut index = String::new();
                column.push_element(&mut index, item, 0);
                let name = index.parse().ok().and_then(|index: usize| port.classes.get(index));
                text.push_str("[[");
                push_string(&mut text, name.unwrap_or(&index));
                text.push_str(",1.0]]");
            }
            ExampleOutput::Scores(_) => {
                text.push('[');
                for class in 0..port.item.shape.elements() {
                    text.push_str(if class == 0 { "[" } else { ",[" });
                    let name = port.classes.get(class).map_or_else(|| Cow::Owned(class.to_string()), Cow::from);
                    push_string(&mut text, &name);
                    text.push(',');
                    column.push_element(&mut text, item, class);
                    text.push(']');
                }
                text.push(']');
            }
        }
    }
    text.push_str("]}");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use saggar_tensor::{DType, Descriptor, Shape};

    use super::*;

    /// A text of one byte takes the memory of its port in every example.
    #[test]
    fn a_context_repeated_beyond_the_limit_is_refused() {
        let item = Descriptor::new(DType::U8, Shape::new([1 << 20]).unwrap());
        let semantics = Some("text".to_owned());
        let x = ModelPort {
            name: "x".to_owned(),
            item,
            semantics,
            classes: Vec::new(),
            default: None,
            preprocessing: None,
        };
        let signature = ModelSignature {
            inputs: vec![x],
            outputs: Vec::new(),
            batch_sizes: vec![1],
            routes: Vec::new(),
            handlers: Vec::new(),
        };
        let read = |count: usize| {
            let body = format!("{{\"context\": {{\"x\": \"a\"}}, \"examples\": [{}]}}", vec!["{}"; count].join(","));
            let inputs = read_examples(&signature, body.as_bytes(), ExamplesMethod::Classify);
            inputs.map(|inputs| inputs.items).map_err(|error| error.to_string())
        };
        assert_eq!(read(INPUT_BYTES_MAX >> 20), Ok(Some(INPUT_BYTES_MAX >> 20)));
        assert_eq!(read(1_000_000), Err("x: more than 41943040 bytes of elements".to_owned()));
    }
}
