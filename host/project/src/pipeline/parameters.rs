//! The parameters of a pipeline: values that a run gives, with the types of the defaults.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::limits::{PIPELINE_ITEMS_MAX, PIPELINE_TEXT_BYTES_MAX};
use crate::name::nearest_name;

/// The reason why a run cannot have a parameter.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ParameterError {
    /// The pipeline has no such parameter.
    #[error("there is no parameter {name:?}; {known}")]
    Unknown {
        /// The given name.
        name: String,
        /// The valid names, or a likely one.
        known: String,
    },
    /// The value has another type than the default.
    #[error("parameter {name}: expected {expected}, as its default {default}, got {got}")]
    Type {
        /// The parameter.
        name: String,
        /// The expected type.
        expected: &'static str,
        /// The default value.
        default: String,
        /// The given value.
        got: String,
    },
    /// The value is too large.
    #[error("parameter {name}: at most {PIPELINE_TEXT_BYTES_MAX} bytes of text and {PIPELINE_ITEMS_MAX} items")]
    Size {
        /// The parameter.
        name: String,
    },
}

/// Returns the name of a value's type in messages, or `None` if a parameter cannot have it.
pub(crate) fn parameter_type(value: &Value) -> Option<&'static str> {
    match value {
        Value::Number(_) => Some("a number"),
        Value::String(_) => Some("a text"),
        Value::Bool(_) => Some("true or false"),
        Value::Array(items) => {
            let is_scalar = |item: &Value| matches!(item, Value::Number(_) | Value::String(_) | Value::Bool(_));
            items.iter().all(is_scalar).then_some("a list")
        }
        Value::Null | Value::Object(_) => None,
    }
}

/// Returns whether a value is within the limits of a parameter.
pub(crate) fn is_within_limits(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= PIPELINE_TEXT_BYTES_MAX,
        Value::Array(items) => items.len() <= PIPELINE_ITEMS_MAX && items.iter().all(is_within_limits),
        _ => true,
    }
}

/// Returns the values of all parameters: the given ones, else the defaults.
///
/// # Errors
/// `ParameterError` for the first given value that is not valid.
pub fn bind_parameters(
    defaults: &Map<String, Value>,
    given: &Map<String, Value>,
) -> Result<Map<String, Value>, ParameterError> {
    let mut bound = defaults.clone();
    for (name, value) in given {
        let default = defaults.get(name).ok_or_else(|| unknown_parameter(defaults, name))?;
        if parameter_type(value).is_none() || parameter_type(value) != parameter_type(default) {
            return Err(wrong_type(name, default, value.to_string()));
        }
        if !is_within_limits(value) {
            return Err(ParameterError::Size { name: name.clone() });
        }
        bound.insert(name.clone(), value.clone());
    }
    Ok(bound)
}

/// Parses a value of a parameter as it is written on a command line. A list is JSON, or texts separated by commas.
///
/// # Errors
/// `Unknown`; `Type`.
pub fn parse_parameter_text(defaults: &Map<String, Value>, name: &str, text: &str) -> Result<Value, ParameterError> {
    let default = defaults.get(name).ok_or_else(|| unknown_parameter(defaults, name))?;
    let json = || serde_json::from_str::<Value>(text).ok();
    let value = match default {
        Value::String(_) => Some(Value::String(text.to_owned())),
        Value::Array(items) => json().filter(Value::is_array).or_else(|| Some(split_list(items, text))),
        Value::Number(_) => json().filter(Value::is_number),
        Value::Bool(_) => json().filter(Value::is_boolean),
        Value::Null | Value::Object(_) => None,
    };
    value.ok_or_else(|| wrong_type(name, default, format!("{text:?}")))
}

/// Splits a text at commas. Items are numbers if those of the default are.
fn split_list(default: &[Value], text: &str) -> Value {
    let numeric = default.first().is_some_and(Value::is_number);
    let item = |word: &str| match serde_json::from_str::<Value>(word) {
        Ok(value @ Value::Number(_)) if numeric => value,
        _ => Value::String(word.to_owned()),
    };
    Value::Array(text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(item).collect())
}

fn unknown_parameter(defaults: &Map<String, Value>, name: &str) -> ParameterError {
    let names: Vec<&str> = defaults.keys().map(String::as_str).collect();
    let known = match nearest_name(name, names.iter().copied()) {
        Some(near) if names.len() > 8 => format!("did you mean {near}?"),
        _ if names.is_empty() => "the pipeline has none".to_owned(),
        _ => format!("the parameters are {}", names.join(", ")),
    };
    ParameterError::Unknown { name: name.chars().take(80).collect(), known }
}

fn wrong_type(name: &str, default: &Value, got: String) -> ParameterError {
    ParameterError::Type {
        name: name.to_owned(),
        expected: parameter_type(default).unwrap_or("another default"),
        default: default.to_string().chars().take(80).collect(),
        got: got.chars().take(80).collect(),
    }
}
