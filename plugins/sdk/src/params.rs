//! Typed parameters: those of a job, and the configuration of a model version.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use crate::error::{Error, Result};
use crate::json::Json;

/// A JSON object whose members are read by name and type.
///
/// It records every name that is read, so that [`Params::check`] can refuse names that were never read: a misspelt
/// parameter is an error instead of a silent default.
///
/// ```
/// use saggar_plugin::Params;
///
/// let params = Params::parse(r#"{"epochs": 3, "model": "digits", "epocs": 4}"#)?;
/// assert_eq!(params.get("epochs", 10u64)?, 3);
/// assert_eq!(params.get("batch", 32u32)?, 32); // the default
/// assert_eq!(params.require::<String>("model")?, "digits");
/// assert_eq!(params.choice("optimizer", &["sgd", "adam"])?, "sgd"); // the default is the first one
/// assert!(params.check().is_err()); // `epocs` was not read
///
/// let config = Params::new().with("height", 28u32).with("classes", vec!["cat", "dog"]);
/// assert_eq!(config.to_string(), r#"{"height":28,"classes":["cat","dog"]}"#);
/// # Ok::<(), saggar_plugin::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Params {
    members: Vec<(String, Json)>,
    asked: RefCell<BTreeSet<String>>,
}

impl Params {
    /// Returns an object without members.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses a JSON object. Empty text is an object without members.
    ///
    /// # Errors
    /// Returns `Json` if the text is not JSON, and `NotAnObject` if it is another JSON value.
    pub fn parse(text: &str) -> Result<Self> {
        if text.trim().is_empty() {
            return Ok(Self::new());
        }
        match Json::parse(text)? {
            Json::Object(members) => Ok(Self { members, asked: RefCell::default() }),
            other => Err(Error::NotAnObject { given: other.to_string() }),
        }
    }

    /// Adds a member, or replaces the one with that name.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Json>) -> Self {
        self.members.retain(|(other, _)| other != name);
        self.members.push((name.to_owned(), value.into()));
        self
    }

    /// Returns the parameter `name`, or `default` if it is absent.
    ///
    /// # Errors
    /// Returns `Parameter` if the value has another type or is out of the type's range.
    pub fn get<T: FromJson>(&self, name: &str, default: T) -> Result<T> {
        Ok(self.optional(name)?.unwrap_or(default))
    }

    /// Returns the parameter `name`.
    ///
    /// # Errors
    /// Returns `MissingParameter` if it is absent, and `Parameter` as in [`Params::get`].
    pub fn require<T: FromJson>(&self, name: &str) -> Result<T> {
        self.optional(name)?
            .ok_or_else(|| Error::MissingParameter { name: name.to_owned(), expected: T::EXPECTED.to_owned() })
    }

    /// Returns the parameter `name`, or `None` if it is absent.
    ///
    /// # Errors
    /// Returns `Parameter` as in [`Params::get`].
    pub fn optional<T: FromJson>(&self, name: &str) -> Result<Option<T>> {
        let Some(value) = self.find(name) else { return Ok(None) };
        T::from_json(value).map(Some).ok_or_else(|| Self::parameter_error(name, T::EXPECTED.to_owned(), value))
    }

    /// Returns the parameter `name`, which must be one of `choices`; the first choice if it is absent.
    ///
    /// # Errors
    /// Returns `Parameter` if the value is not one of the choices.
    pub fn choice<'a>(&self, name: &str, choices: &[&'a str]) -> Result<&'a str> {
        let Some(value) = self.find(name) else { return Ok(choices.first().copied().unwrap_or_default()) };
        let chosen = choices.iter().find(|choice| matches!(value, Json::String(text) if text == *choice));
        chosen.copied().ok_or_else(|| Self::parameter_error(name, format!("one of {}", choices.join(", ")), value))
    }

    /// Checks that every member was read. Call it when all parameters have been read.
    ///
    /// # Errors
    /// Returns `UnknownParameter` for the first member that was not read.
    pub fn check(&self) -> Result<()> {
        let asked = self.asked.borrow();
        match self.members.iter().find(|(name, _)| !asked.contains(name)) {
            Some((name, _)) => {
                Err(Error::UnknownParameter { name: name.clone(), known: asked.iter().cloned().collect() })
            }
            None => Ok(()),
        }
    }

    fn find(&self, name: &str) -> Option<&Json> {
        self.asked.borrow_mut().insert(name.to_owned());
        self.members.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    fn parameter_error(name: &str, expected: String, value: &Json) -> Error {
        Error::Parameter { name: name.to_owned(), expected, given: value.to_string() }
    }
}

/// Formats the object as JSON text. The same members in the same order give the same text.
impl fmt::Display for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Json::Object(self.members.clone()).fmt(f)
    }
}

/// A type that a parameter can have.
pub trait FromJson: Sized {
    /// Description of the accepted values, for error messages: "must be ...".
    const EXPECTED: &'static str;
    /// Converts the value. Returns `None` if it is not of this type.
    fn from_json(value: &Json) -> Option<Self>;
}

macro_rules! integers {
    ($($integer:ty: $expected:literal),*) => { $(
        impl FromJson for $integer {
            const EXPECTED: &'static str = $expected;
            fn from_json(value: &Json) -> Option<Self> {
                // Above 2^53, an `f64` does not represent every integer exactly.
                match value {
                    Json::Number(n) if n.fract() == 0.0 && n.abs() <= 9_007_199_254_740_992.0 => {
                        <$integer>::try_from(*n as i64).ok()
                    }
                    _ => None,
                }
            }
        }
    )* };
}
integers!(u32: "an integer from 0 to 4294967295", u64: "an integer from 0", i32: "an integer", i64: "an integer");

impl FromJson for f64 {
    const EXPECTED: &'static str = "a number";
    fn from_json(value: &Json) -> Option<Self> {
        match value {
            Json::Number(n) => Some(*n),
            _ => None,
        }
    }
}

impl FromJson for f32 {
    const EXPECTED: &'static str = "a number";
    fn from_json(value: &Json) -> Option<Self> {
        f64::from_json(value).map(|n| n as Self).filter(|n| n.is_finite())
    }
}

impl FromJson for bool {
    const EXPECTED: &'static str = "true or false";
    fn from_json(value: &Json) -> Option<Self> {
        match value {
            Json::Bool(b) => Some(*b),
            _ => None,
        }
    }
}

impl FromJson for String {
    const EXPECTED: &'static str = "a string";
    fn from_json(value: &Json) -> Option<Self> {
        match value {
            Json::String(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl<T: FromJson> FromJson for Vec<T> {
    const EXPECTED: &'static str = "an array";
    fn from_json(value: &Json) -> Option<Self> {
        match value {
            Json::Array(items) => items.iter().map(T::from_json).collect(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_types_and_defaults() {
        let params = Params::parse(r#"{"epochs": 3, "lr": 1e-2, "model": "digits", "sizes": [1, 2]}"#).unwrap();
        assert_eq!(params.get("epochs", 1u32).unwrap(), 3);
        assert_eq!(params.get("batch", 64u64).unwrap(), 64);
        assert_eq!(params.get("lr", 0.5f32).unwrap(), 0.01);
        assert_eq!(params.require::<String>("model").unwrap(), "digits");
        assert_eq!(params.require::<Vec<u32>>("sizes").unwrap(), [1, 2]);
        params.check().unwrap();
    }

    #[test]
    fn an_unread_parameter_is_refused_with_the_known_names() {
        let params = Params::parse(r#"{"epocs": 3}"#).unwrap();
        params.get("epochs", 3u32).unwrap();
        params.get("batch", 64u32).unwrap();
        assert_eq!(
            params.check().unwrap_err().to_string(),
            "unknown parameter `epocs`: this plugin takes batch, epochs"
        );
    }

    #[test]
    fn wrong_types_and_ranges_are_refused() {
        let params = Params::parse(r#"{"a": -1, "b": 1.5, "c": "x", "d": 1e300, "e": 5000000000}"#).unwrap();
        let message = |error: Error| error.to_string();
        assert_eq!(
            message(params.get("a", 1u32).unwrap_err()),
            "parameter `a` must be an integer from 0 to 4294967295, not -1"
        );
        assert!(params.get("b", 1i64).is_err());
        assert!(params.get("c", 1.0f32).is_err());
        assert!(params.get("d", 1.0f32).is_err());
        assert!(params.get("d", 1u64).is_err());
        assert!(params.get("e", 1u32).is_err());
        assert_eq!(
            message(params.choice("c", &["sgd", "adam"]).unwrap_err()),
            "parameter `c` must be one of sgd, adam, not \"x\""
        );
        assert_eq!(params.choice("f", &["sgd", "adam"]).unwrap(), "sgd");
        assert_eq!(
            message(params.require::<bool>("g").unwrap_err()),
            "parameter `g` is missing: it must be true or false"
        );
    }

    #[test]
    fn only_json_objects_are_accepted_as_parameters() {
        assert!(Params::parse("").unwrap().check().is_ok());
        assert_eq!(Params::parse("[1]").unwrap_err(), Error::NotAnObject { given: "[1]".to_owned() });
    }

    #[test]
    fn a_configuration_keeps_its_member_order() {
        let params = Params::new().with("height", 28u32).with("classes", vec!["a", "b"]).with("height", 8u32);
        assert_eq!(params.to_string(), r#"{"classes":["a","b"],"height":8}"#);
    }
}
