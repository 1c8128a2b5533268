//! JSON bodies of requests.

use saggar_serving::json_text::parse_json;
use serde::de::DeserializeOwned;

use crate::error::ApiError;

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
