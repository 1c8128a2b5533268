//! Why JSON is not a tensor. The protocols turn these errors into their own texts.

use super::text_item::TextItemError;
use super::tokenizer::{JsonSyntaxError, JsonToken, JsonTokenizer};

/// The maximum number of characters of a string that an error quotes.
const QUOTED_CHARS_MAX: usize = 40;

/// An error and its position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TensorJsonError {
    /// The problem.
    pub(crate) kind: TensorErrorKind,
    /// The byte offset of the value or array in question.
    pub(crate) offset: usize,
    /// The indices that lead to it, from the outermost array inward.
    pub(crate) path: Vec<usize>,
    /// The number of elements read before it.
    pub(crate) element: usize,
}

/// The problem with a value. Levels and ranks count arrays: a number in one array has level 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TensorErrorKind {
    /// The text is not JSON.
    Syntax(JsonSyntaxError),
    /// A number beyond the range of `f64`.
    NumberOutOfRange,
    /// A value that cannot be an element of the data type.
    Element,
    /// An element at a level of arrays.
    ElementAmongArrays {
        /// The level of the value.
        level: usize,
        /// The level of the elements before it.
        rank: usize,
    },
    /// An array, or a text that is one, at the level of elements.
    ArrayAmongElements {
        /// The level of the array.
        level: usize,
        /// The level of the elements before it.
        rank: usize,
    },
    /// An array whose length differs from that of the arrays before it at its level.
    Ragged {
        /// The level of the array.
        level: usize,
        /// The length of the arrays before.
        expected: usize,
        /// Its length.
        got: usize,
    },
    /// Arrays are nested deeper than the limit.
    TooDeep,
    /// The elements have more bytes than the limit.
    TooLarge,
    /// A text that its item cannot hold.
    Text(TextItemError),
    /// Invalid base64.
    Base64,
    /// Bytes that are no text because they are not UTF-8.
    NotUtf8 {
        /// Their number.
        bytes: usize,
    },
}

impl From<JsonSyntaxError> for TensorErrorKind {
    fn from(error: JsonSyntaxError) -> TensorErrorKind {
        TensorErrorKind::Syntax(error)
    }
}

impl TensorJsonError {
    /// Describes the value at the error's position, such as `1.5`, `the string "a"` or `an object`. `json` is a
    /// tokenizer of the same text.
    pub(crate) fn describe_value(&self, json: &JsonTokenizer<'_>) -> String {
        match json.at_value(self.offset).next_token() {
            Ok(JsonToken::Number(number)) => number.to_string(),
            Ok(JsonToken::Bool(truth)) => truth.to_string(),
            Ok(JsonToken::String(text)) => {
                format!("the string {:?}", text.chars().take(QUOTED_CHARS_MAX).collect::<String>())
            }
            Ok(JsonToken::Object) => "an object".to_owned(),
            Ok(JsonToken::Array) => "an array".to_owned(),
            Ok(JsonToken::Null) | Err(_) => "null".to_owned(),
        }
    }
}
