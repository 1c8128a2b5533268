//! The reader of tensors in JSON, for all prediction protocols: numbers, booleans and texts in nested arrays become
//! dense little-endian elements in one pass, without an intermediate tree.
//!
//! A protocol reads its envelope with [`JsonTokenizer`], reads each tensor with a [`TensorReader`] by its own
//! [`ElementRules`], and describes a [`TensorJsonError`] in its own words. The time is linear in the text. Nesting is
//! at most [`JSON_DEPTH_MAX`](crate::limits::JSON_DEPTH_MAX) deep, and the elements have at most
//! [`ElementRules::bytes_max`] bytes. Nothing here knows of HTTP or of models.

pub(crate) mod base64;
mod decimal;
mod error;
mod number;
mod plain_numbers;
mod reader;
mod text_item;
mod tokenizer;

pub(crate) use error::{TensorErrorKind, TensorJsonError};
pub(crate) use number::{NumberRules, expected_range};
pub(crate) use reader::{ArrayNesting, ElementRules, TensorReader, TextNotation, is_base64_object};
pub(crate) use text_item::{TextItemError, push_text_item};
pub(crate) use tokenizer::{JsonSyntaxError, JsonToken, JsonTokenizer};

#[cfg(test)]
mod tests;
