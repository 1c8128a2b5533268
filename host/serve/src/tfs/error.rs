//! Errors of TensorFlow Serving's interface. The messages are those of TensorFlow Serving, which clients match on.

use saggar_rest::errors::ErrorCode;
use saggar_tensor::DType;
use thiserror::Error;

use crate::error::{ErrorMapping, ProtocolError};
use crate::tensor_json::JsonSyntaxError;

/// The maximum number of characters of a value that an error quotes.
const EXCERPT_CHARS_MAX: usize = 200;

/// Why a request under `/v1/` is refused.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum TfsError {
    /// A path or method that this interface does not have.
    #[error("Malformed request: {method} {path}")]
    Malformed {
        /// The method.
        method: String,
        /// The path as sent.
        path: String,
    },
    /// A version number beyond 63 bits.
    #[error("Failed to convert version: {version} to numeric.")]
    Version {
        /// The text that was sent.
        version: String,
    },
    /// The model or version to predict with does not exist.
    #[error("Servable not found for request: {request}")]
    NoServable {
        /// `Latest(name)` or `Specific(name, 3)`.
        request: String,
    },
    /// The model or version whose status is requested does not exist.
    #[error("Could not find {what}")]
    NoVersions {
        /// `any versions of model name` or `version 3 of model name`.
        what: String,
    },
    /// The version label does not exist.
    #[error("Unrecognized servable version label: {label}")]
    Label {
        /// The label.
        label: String,
    },
    /// A preflight request without an origin.
    #[error("Origin header is missing in CORS preflight")]
    NoOrigin,
    /// The body is empty.
    #[error("JSON Parse error: The document is empty")]
    Empty,
    /// The body is not JSON.
    #[error("JSON Parse error: {reason} at offset: {offset}")]
    Syntax {
        /// The syntax error.
        reason: &'static str,
        /// The byte offset of the error.
        offset: usize,
    },
    /// JSON that is not in the form this method expects.
    #[error("JSON Value: {value} {reason}")]
    Form {
        /// The beginning of the value.
        value: String,
        /// What is wrong with the value.
        reason: String,
    },
    /// A body without any of the required keys.
    #[error("Missing 'inputs' or 'instances' key")]
    NoInputs,
    /// A signature name that models here do not have.
    #[error("Serving signature name: \"{name}\" not found in signature def")]
    Signature {
        /// The name of the signature.
        name: String,
    },
    /// A value of another type than the input's.
    #[error("JSON Value: {value} Type: {kind} is not of expected type: {expected}")]
    Type {
        /// The beginning of the value.
        value: String,
        /// The type of the value.
        kind: &'static str,
        /// The input's type.
        expected: &'static str,
    },
    /// Invalid base64.
    #[error("Unable to base64 decode")]
    Base64,
    /// Nested lists that do not form a tensor.
    #[error("{0}")]
    Nesting(NestingError),
    /// A row whose size or shape differs from that of the rows before.
    #[error("Expecting {expected} but got: {got}")]
    Row {
        /// The size or shape of the rows before.
        expected: String,
        /// The size or shape of this row.
        got: String,
    },
    /// An invalid element of `instances`.
    #[error("Failed to process element: {element}{key} of 'instances' list. Error: {error}")]
    Element {
        /// The element's index.
        element: usize,
        /// ` key: name`, or empty if elements are plain values.
        key: String,
        /// What is wrong with the element.
        error: Box<TfsError>,
    },
    /// Plain values although several inputs must be named.
    #[error(
        "{key} is a plain {given}, but expecting {expected} as multiple input tensors required as per tensorinfo_map"
    )]
    Plain {
        /// `instances` or `inputs`.
        key: &'static str,
        /// What was sent.
        given: &'static str,
        /// What was expected.
        expected: &'static str,
    },
    /// Objects and plain values mixed in one list.
    #[error("Expecting {expected} but got {got} at item {item} of input list")]
    Mixed {
        /// The kind of the first element.
        expected: &'static str,
        /// The kind of this element.
        got: &'static str,
        /// The element's index.
        item: usize,
    },
    /// A row with an input that the model does not have.
    #[error("JSON object: does not have named input: {name}")]
    NoNamed {
        /// The name of the input.
        name: String,
    },
    /// A row without one of the model's inputs.
    #[error(
        "Failed to process element: {element} of 'instances' list. JSON object: {value} keys must be equal to: {names}"
    )]
    Keys {
        /// The row's index.
        element: usize,
        /// The beginning of the row.
        value: String,
        /// The names of the model's inputs.
        names: String,
    },
    /// A missing column.
    #[error("Missing named input: {name} in 'inputs' object.")]
    NoColumn {
        /// The input's name.
        name: String,
    },
    /// An example that is not an object.
    #[error("Example must be JSON object but got JSON {kind}")]
    Example {
        /// The type of the value.
        kind: &'static str,
    },
    /// A feature given twice.
    #[error("Feature: {name} is in both the example and the context, or twice in one of them")]
    Feature {
        /// The feature's name.
        name: String,
    },
    /// A model that does not support the method.
    #[error("model {model} cannot {method}: {reason}")]
    Method {
        /// The model's name.
        model: String,
        /// `classify` or `regress`.
        method: &'static str,
        /// The reason.
        reason: String,
    },
}

/// Why nested lists do not form a tensor.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NestingError {
    /// A value at the level of lists.
    #[error("JSON Value: {value} found at incorrect level: {level} in the JSON DOM. Expected at level: {rank}")]
    Value {
        /// The beginning of the value.
        value: String,
        /// The level of the value, from 1.
        level: usize,
        /// The level where values are expected.
        rank: usize,
    },
    /// A list at the level of values.
    #[error("Encountered list at unexpected level: {level} expected < {rank}")]
    List {
        /// The level of the list.
        level: usize,
        /// The level where values are expected.
        rank: usize,
    },
    /// A list whose length differs from that of the lists before it.
    #[error("Encountered list at unexpected size: {size} at level: {level} expected size: {expected}")]
    Size {
        /// The length of the list.
        size: usize,
        /// The level of the list.
        level: usize,
        /// The length of the lists before.
        expected: usize,
    },
}

impl From<JsonSyntaxError> for TfsError {
    fn from(JsonSyntaxError { reason, offset }: JsonSyntaxError) -> TfsError {
        TfsError::Syntax { reason, offset }
    }
}

impl TfsError {
    /// Returns the error for a body, or part of it, that is not in the expected form.
    pub(super) fn bad_form(value: &[u8], reason: impl Into<String>) -> TfsError {
        TfsError::Form { value: excerpt(value), reason: reason.into() }
    }

    /// Returns the error for a value that cannot be an element of `dtype`.
    pub(super) fn bad_type(value: &[u8], dtype: DType) -> TfsError {
        TfsError::Type { value: excerpt(value), kind: json_type_name(value), expected: tensorflow_type_name(dtype) }
    }

    /// Returns the error for a value that cannot be a text.
    pub(super) fn bad_text(value: &[u8]) -> TfsError {
        TfsError::Type { value: excerpt(value), kind: json_type_name(value), expected: "string" }
    }
}

/// Returns the beginning of a value, for an error.
pub(super) fn excerpt(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(&value[..value.len().min(4 * EXCERPT_CHARS_MAX)]);
    let short_text: String = text.chars().take(EXCERPT_CHARS_MAX).collect();
    if short_text.len() < value.len() { format!("{short_text}...") } else { short_text }
}

/// Returns the JSON type of a value.
pub(super) fn json_type_name(value: &[u8]) -> &'static str {
    match value.first() {
        Some(b'{') => "Object",
        Some(b'[') => "Array",
        Some(b'"') => "String",
        Some(b't') => "True",
        Some(b'f') => "False",
        Some(b'n') => "Null",
        _ => "Number",
    }
}

/// Returns TensorFlow's name of the data type, for errors.
fn tensorflow_type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F16 => "half",
        DType::I64 | DType::U64 | DType::I32 | DType::U32 | DType::I8 | DType::U8 => dtype.name(),
    }
}

impl ProtocolError for TfsError {
    fn mapping(&self) -> ErrorMapping {
        match self {
            TfsError::NoServable { .. } | TfsError::NoVersions { .. } => {
                ErrorMapping::not_found(ErrorCode::UnknownModel, "GET /v1/models lists the models")
            }
            TfsError::Malformed { .. } => {
                ErrorMapping::bad_request(ErrorCode::MalformedRequest, "GET /openapi.json has every path")
            }
            _ => {
                let hint = "GET /v1/models/NAME/metadata shows what the model takes";
                ErrorMapping::bad_request(ErrorCode::BadInput, hint)
            }
        }
    }
}
