//! Why a request's body is no input of a model.

use saggar_rest::errors::ErrorCode;
use saggar_tensor::{Descriptor, Shape};
use thiserror::Error;

use crate::error::{ErrorMapping, ProtocolError};
use crate::limits::{INPUT_BYTES_MAX, JSON_DEPTH_MAX};

/// The reason for which a request's body does not match the model's inputs.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum DecodeError {
    /// The text is not JSON.
    #[error("{place}: {reason}")]
    Syntax {
        /// The input, or `body`.
        place: String,
        /// The parser's message.
        reason: String,
    },
    /// The JSON does not have the expected form.
    #[error("{place}: expected {expected}, got {got}")]
    Unexpected {
        /// `image[3][2]`, or `body`.
        place: String,
        /// What was expected.
        expected: String,
        /// What was found.
        got: String,
    },
    /// Arrays of different lengths at the same level.
    #[error("{place}: expected {expected} values, as in the array before it, got {got}")]
    Ragged {
        /// The array.
        place: String,
        /// The length of the arrays before it.
        expected: usize,
        /// Its length.
        got: usize,
    },
    /// Arrays are nested too deeply.
    #[error("{place}: arrays are nested deeper than {JSON_DEPTH_MAX}")]
    TooDeep {
        /// The position.
        place: String,
    },
    /// The shape is wrong.
    #[error("{name}: expected shape {item}, or {} for a batch, got {}", batch(item), dims(got))]
    Shape {
        /// The input.
        name: String,
        /// The shape of an item.
        item: Shape,
        /// The shape that was sent.
        got: Vec<usize>,
    },
    /// A row has the wrong shape, in a request that is a list of rows.
    #[error("{name}: expected rows of shape {item}, got rows of shape {}", dims(got))]
    Row {
        /// The input.
        name: String,
        /// The shape of an item.
        item: Shape,
        /// The shape of the rows that were sent.
        got: Vec<usize>,
    },
    /// The batch is empty.
    #[error("{name}: the batch is empty; expected at least one item of shape {item}")]
    Empty {
        /// The input.
        name: String,
        /// The shape of an item.
        item: Shape,
    },
    /// More data than any input accepts.
    #[error("{name}: more than {INPUT_BYTES_MAX} bytes of elements")]
    TooLarge {
        /// The input.
        name: String,
    },
    /// Inputs of different batch sizes.
    #[error("{name}: expected {}, as in {other}, got {}", count(*expected), count(*got))]
    Batch {
        /// The input.
        name: String,
        /// Another input.
        other: String,
        /// The number of items of the other input, or `None` without a batch dimension.
        expected: Option<usize>,
        /// The number of items of this input, or `None` without a batch dimension.
        got: Option<usize>,
    },
    /// An input that the model does not have.
    #[error("{name}: the model has no such input; it takes {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The model's inputs.
        known: String,
    },
    /// A required input is missing.
    #[error("{name}: missing; expected {item}")]
    Missing {
        /// The input.
        name: String,
        /// The expected item.
        item: Descriptor,
    },
    /// An input is given twice.
    #[error("{name}: given twice")]
    Twice {
        /// The input.
        name: String,
    },
    /// A text that its input cannot hold.
    #[error("{place}: the text of {bytes} bytes {reason}; at most {bytes_max} bytes of UTF-8 are taken")]
    Text {
        /// `prompt`, or `prompt[3]` in a batch.
        place: String,
        /// The problem with it.
        reason: &'static str,
        /// Its length in bytes.
        bytes: usize,
        /// The maximum length in bytes.
        bytes_max: usize,
    },
    /// Raw bytes of the wrong length.
    #[error("{name}: expected {expected} bytes ({item}), got {got}")]
    Bytes {
        /// The input.
        name: String,
        /// The expected item.
        item: Descriptor,
        /// Bytes of an item.
        expected: usize,
        /// Bytes that were sent.
        got: usize,
    },
}

fn dims(dims: &[usize]) -> String {
    format!("{dims:?}")
}

fn batch(item: &Shape) -> String {
    let item = item.to_string();
    if item == "[]" { "[n]".to_owned() } else { item.replacen('[', "[n, ", 1) }
}

fn count(items: Option<usize>) -> String {
    items.map_or_else(|| "one item without a batch".to_owned(), |items| format!("a batch of {items}"))
}

impl ProtocolError for DecodeError {
    fn mapping(&self) -> ErrorMapping {
        ErrorMapping::bad_request(ErrorCode::BadInput, "GET /api/v1/models/NAME shows what the model takes")
    }
}
