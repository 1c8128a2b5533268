//! Parameters: flat maps beside requests and tensors. What is not known is ignored, as the protocol has it.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use super::error::InferError;

/// A parameter's value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Truth(bool),
    /// A whole number that is not negative.
    Whole(u64),
    Text(String),
    /// Another number.
    Other,
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl Visitor<'_> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a parameter: a string, a number or a truth value")
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Truth(truth))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Whole(number))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }
}

impl Value {
    /// # Errors
    /// `Parameter` where it is no truth value.
    pub(super) fn truth(&self, place: &str, name: &str) -> Result<bool, InferError> {
        match self {
            Value::Truth(truth) => Ok(*truth),
            Value::Whole(_) | Value::Text(_) | Value::Other => Err(unfit(place, name, "true or false")),
        }
    }

    /// # Errors
    /// `Parameter` where it is no whole number from 0 on.
    pub(super) fn whole(&self, place: &str, name: &str) -> Result<u64, InferError> {
        match self {
            Value::Whole(number) => Ok(*number),
            Value::Truth(_) | Value::Text(_) | Value::Other => Err(unfit(place, name, "a whole number from 0 on")),
        }
    }
}

/// The refusal of a parameter's value.
pub(super) fn unfit(place: &str, name: &str, expected: &'static str) -> InferError {
    InferError::Parameter { place: place.to_owned(), name: name.chars().take(80).collect(), expected }
}

/// The refusal of a parameter, whatever its value.
pub(super) fn refused(place: &str, name: &str, reason: &'static str) -> InferError {
    InferError::Refused { place: place.to_owned(), name: name.chars().take(80).collect(), reason }
}
