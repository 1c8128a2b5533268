//! Parameters: flat maps in requests and tensors. Unknown ones are ignored, as the protocol requires.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use super::error::InferError;

/// A parameter's value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ParameterValue {
    Truth(bool),
    /// A non-negative integer.
    Whole(u64),
    Text(String),
    /// Any other number.
    Other,
}

impl<'de> Deserialize<'de> for ParameterValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ParameterValue, D::Error> {
        deserializer.deserialize_any(ParameterValueVisitor)
    }
}

struct ParameterValueVisitor;

impl Visitor<'_> for ParameterValueVisitor {
    type Value = ParameterValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a parameter: a string, a number or a truth value")
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<ParameterValue, E> {
        Ok(ParameterValue::Truth(truth))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<ParameterValue, E> {
        Ok(ParameterValue::Whole(number))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<ParameterValue, E> {
        Ok(ParameterValue::Other)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<ParameterValue, E> {
        Ok(ParameterValue::Other)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ParameterValue, E> {
        Ok(ParameterValue::Text(text.to_owned()))
    }
}

impl ParameterValue {
    /// Returns the value as a boolean.
    ///
    /// # Errors
    /// Returns `Parameter` if it is not a boolean.
    pub(super) fn as_bool(&self, place: &str, name: &str) -> Result<bool, InferError> {
        match self {
            ParameterValue::Truth(truth) => Ok(*truth),
            ParameterValue::Whole(_) | ParameterValue::Text(_) | ParameterValue::Other => {
                Err(bad_value(place, name, "true or false"))
            }
        }
    }

    /// Returns the value as a non-negative integer.
    ///
    /// # Errors
    /// Returns `Parameter` if it is not one.
    pub(super) fn as_u64(&self, place: &str, name: &str) -> Result<u64, InferError> {
        match self {
            ParameterValue::Whole(number) => Ok(*number),
            ParameterValue::Truth(_) | ParameterValue::Text(_) | ParameterValue::Other => {
                Err(bad_value(place, name, "a whole number from 0 on"))
            }
        }
    }
}

/// Returns the error for a parameter with an invalid value.
pub(super) fn bad_value(place: &str, name: &str, expected: &'static str) -> InferError {
    InferError::Parameter { place: place.to_owned(), name: name.chars().take(80).collect(), expected }
}

/// Returns the error for a parameter that is refused with any value.
pub(super) fn unsupported_parameter(place: &str, name: &str, reason: &'static str) -> InferError {
    InferError::Refused { place: place.to_owned(), name: name.chars().take(80).collect(), reason }
}
