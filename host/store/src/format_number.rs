//! The format version of a JSON document. A newer format can have other members, so that its number is read before them.

use serde::Deserialize;

/// The member that says which format a document has. Other members are ignored.
#[derive(Deserialize)]
struct FormatNumber {
    format: u64,
}

/// Returns the number of a document's format.
///
/// # Errors
/// Returns the parser's error for text that is not a JSON object with a number `format`.
pub(crate) fn read_format_number(text: &[u8]) -> serde_json::Result<u64> {
    serde_json::from_slice::<FormatNumber>(text).map(|it| it.format)
}
