//! JSON bodies of requests, and their errors.

use std::fmt;

use saggar_serving::json_text::{self, parse_json};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::error::ApiError;
use crate::tensor_json::JsonSyntaxError;

/// The JSON body of a route of the REST interface.
pub(crate) trait JsonBody: DeserializeOwned {
    /// An example of a valid body.
    const EXAMPLE: &'static str;
}

/// Parses a body.
///
/// # Errors
/// Returns `Json` with the path in the body, the expected form there, and an example.
pub(crate) fn parse_body<T: JsonBody>(text: &[u8]) -> Result<T, ApiError> {
    parse_json(text).map_err(|reason| ApiError::Json { reason, example: T::EXAMPLE })
}

/// Describes a syntax error of the tokenizer in the words of [`json_text`].
pub(crate) fn describe_syntax_error(text: &[u8], error: JsonSyntaxError) -> String {
    let JsonSyntaxError { reason, offset } = error;
    match serde_json::from_slice::<CheckedJson>(text) {
        // An error before the tokenizer's is that of `NaN`, which some protocols accept.
        Err(error) if json_text::error_offset(&error, text) + 1 >= offset => {
            json_text::describe_json_error(&error, text)
        }
        _ => format!("not JSON at byte {offset}: {}", reason.trim_end_matches('.').to_lowercase()),
    }
}

/// JSON that is parsed completely, without memory for its values.
struct CheckedJson;

impl<'de> Deserialize<'de> for CheckedJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CheckedJson, D::Error> {
        deserializer.deserialize_any(CheckedJson)
    }
}

impl<'de> Visitor<'de> for CheckedJson {
    type Value = CheckedJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<CheckedJson, E> {
        Ok(CheckedJson)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<CheckedJson, E> {
        Ok(CheckedJson)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<CheckedJson, E> {
        Ok(CheckedJson)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<CheckedJson, E> {
        Ok(CheckedJson)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<CheckedJson, E> {
        Ok(CheckedJson)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<CheckedJson, E> {
        Ok(CheckedJson)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<CheckedJson, A::Error> {
        while list.next_element::<CheckedJson>()?.is_some() {}
        Ok(CheckedJson)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CheckedJson, A::Error> {
        while map.next_entry::<CheckedJson, CheckedJson>()?.is_some() {}
        Ok(CheckedJson)
    }
}
