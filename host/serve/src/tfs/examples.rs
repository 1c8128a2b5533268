//! `:classify` and `:regress`: examples, each a set of features, and one list of classes or one number for each.
//!
//! Features are a model's inputs, as single values or lists; a list has an input's elements in row-major order, whatever
//! its shape, or is nested as the shape. A context has features that all examples share.

use std::borrow::Cow;

use saggar_plugin::{ModelPort, Signature};

use super::encode::{Column, push_string};
use super::error::{TfsError, kind};
use super::request::{SIGNATURE, named_signature, object};
use super::tensor::Values;
use crate::error::ApiError;
use crate::predict::call::Answer;
use crate::predict::decode::{DecodeError, Input, Inputs};
use crate::predict::scan::{Scanner, Token};

/// What is made of the outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Classify,
    Regress,
}

impl Method {
    pub(super) fn name(self) -> &'static str {
        match self {
            Method::Classify => "classify",
            Method::Regress => "regress",
        }
    }
}

/// Which outputs answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plan {
    /// Scores of all classes.
    Scores(usize),
    /// The number of one class.
    Class(usize),
    /// One number.
    Number(usize),
}

/// Which outputs of `model` answer `method`: of a classification the only `probabilities`, else the only `class`; of a
/// regression the only output that is one float.
///
/// # Errors
/// `Method` where there is no such output, or there are several.
pub(super) fn plan(model: &str, signature: &Signature, method: Method) -> Result<Plan, TfsError> {
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
        Method::Classify => {
            let scores = |port: &ModelPort| {
                semantics(port, "probabilities") && port.item.dtype.is_float() && port.item.shape.dims().len() == 1
            };
            let class = |port: &ModelPort| semantics(port, "class") && !port.item.dtype.is_float() && one(port);
            match (find(&scores), find(&class)) {
                ((Some(at), false), _) => Ok(Plan::Scores(at)),
                ((None, _), (Some(at), false)) => Ok(Plan::Class(at)),
                _ => Err(refuse("it has not exactly one with the semantics `probabilities` or `class`")),
            }
        }
        Method::Regress => match find(&|port| port.semantics.is_none() && port.item.dtype.is_float() && one(port)) {
            (Some(at), false) => Ok(Plan::Number(at)),
            _ => Err(refuse("it has not exactly one that is a single float")),
        },
    }
}

/// Reads a body.
///
/// # Errors
/// [`TfsError`] for the body's form; `DecodeError` where what it says does not fit the model.
pub(super) fn inputs(signature: &Signature, body: &[u8], method: Method) -> Result<Inputs, ApiError> {
    let mut json = object(body)?;
    let mut context: Vec<Values<'_>> = signature.inputs.iter().map(Values::new).collect();
    let mut examples: Vec<Values<'_>> = signature.inputs.iter().map(Values::new).collect();
    let mut count = None;
    while let Some(key) = json.key().map_err(TfsError::from)? {
        match key.as_ref() {
            "signature_name" => {
                named_signature(&mut json, body, &[SIGNATURE, method.name()])?;
            }
            "context" => features(&mut json, &mut context, 0)?,
            "examples" if count.is_none() => count = Some(all(&mut json, body, &mut examples)?),
            _ => {
                json.skip().map_err(TfsError::from)?;
            }
        }
    }
    let Some(count) = count else {
        let reason = format!("When method is {}, key 'examples' is expected and was not found", method.name());
        return Err(TfsError::form(body, reason).into());
    };
    let mut inputs = Vec::with_capacity(signature.inputs.len());
    for (mut values, shared) in examples.into_iter().zip(context) {
        match (values.rows, shared.rows) {
            (0, 0) => continue,
            (0, _) => values.bytes = shared.bytes.repeat(count),
            (rows, 0) if rows == count => {}
            (_, 0) => return Err(missing(values.port).into()),
            _ => return Err(TfsError::Feature { name: values.port.name.clone() }.into()),
        }
        let dims = [&[count], values.port.item.shape.dims()].concat();
        inputs.push(Input::new(values.port, &dims, values.bytes)?);
    }
    Ok(Inputs::new(signature, inputs)?)
}

fn missing(port: &ModelPort) -> DecodeError {
    DecodeError::Missing { name: port.name.clone(), item: port.item.clone() }
}

fn all(json: &mut Scanner<'_>, body: &[u8], values: &mut [Values<'_>]) -> Result<usize, ApiError> {
    if json.peek() != Some(b'[') {
        json.skip().map_err(TfsError::from)?;
        return Err(TfsError::form(body, "Expecting 'examples' value to be an list/array").into());
    }
    json.token().map_err(TfsError::from)?;
    let mut count = 0;
    while json.element().map_err(TfsError::from)? {
        features(json, values, count)?;
        count += 1;
    }
    if count == 0 {
        return Err(TfsError::form(body, "'examples' value is an empty array").into());
    }
    Ok(count)
}

/// Reads the features of example number `example`. Those that are no inputs are not looked at.
fn features(json: &mut Scanner<'_>, values: &mut [Values<'_>], example: usize) -> Result<(), ApiError> {
    json.peek();
    let mut opened = *json;
    if !matches!(opened.token().map_err(TfsError::from)?, Token::Object) {
        return Err(TfsError::Example { kind: kind(json.skip().map_err(TfsError::from)?) }.into());
    }
    *json = opened;
    while let Some(name) = json.key().map_err(TfsError::from)? {
        let Some(values) = values.iter_mut().find(|values| values.port.name == name) else {
            json.skip().map_err(TfsError::from)?;
            continue;
        };
        if values.rows > example {
            return Err(TfsError::Feature { name: name.into_owned() }.into());
        }
        if values.rows < example {
            return Err(missing(values.port).into());
        }
        let dims = values.read(json)?;
        let item = values.port.item.shape.dims();
        // A text is a list of bytes already, and may stand in a list of one.
        let is_flat = dims.len() <= 1 || values.port.text_bytes().is_some() && dims.len() == 2;
        if dims != item && !(is_flat && dims.iter().product::<usize>() == item.iter().product::<usize>()) {
            let (name, item) = (values.port.name.clone(), values.port.item.shape.clone());
            return Err(DecodeError::Row { name, item, got: dims }.into());
        }
        values.rows += 1;
    }
    Ok(())
}

/// The answer: `{"results": [...]}`, one for each example.
///
/// # Errors
/// Where outputs are not as the signature promises.
pub(super) fn json(answer: &Answer, plan: Plan) -> Result<String, ApiError> {
    let (Plan::Scores(at) | Plan::Class(at) | Plan::Number(at)) = plan;
    let port = &answer.signature().outputs[at];
    let column = Column::of(port, &answer.tensors, answer.items)?;
    let mut text = String::from("{\"results\":[");
    for item in 0..answer.items.unwrap_or(1) {
        if item > 0 {
            text.push(',');
        }
        match plan {
            Plan::Number(_) => column.element(&mut text, item, 0),
            Plan::Class(_) => {
                let mut index = String::new();
                column.element(&mut index, item, 0);
                let name = index.parse().ok().and_then(|index: usize| port.classes.get(index));
                text.push_str("[[");
                push_string(&mut text, name.unwrap_or(&index));
                text.push_str(",1.0]]");
            }
            Plan::Scores(_) => {
                text.push('[');
                for class in 0..port.item.shape.elements() {
                    text.push_str(if class == 0 { "[" } else { ",[" });
                    let name = port.classes.get(class).map_or_else(|| Cow::Owned(class.to_string()), Cow::from);
                    push_string(&mut text, &name);
                    text.push(',');
                    column.element(&mut text, item, class);
                    text.push(']');
                }
                text.push(']');
            }
        }
    }
    text.push_str("]}");
    Ok(text)
}
