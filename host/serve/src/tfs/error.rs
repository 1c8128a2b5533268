//! What TensorFlow Serving's clients are told. The words are those of its server, which clients match on.

use saggar_tensor::DType;
use thiserror::Error;

use crate::predict::json_tokenizer::JsonSyntaxError;

/// Characters of a value that an error repeats.
const EXCERPT_CHARS_MAX: usize = 200;

/// Why a request under `/v1/` is refused.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum TfsError {
    /// A path or method that this interface does not have.
    #[error("Malformed request: {method} {path}")]
    Malformed {
        /// The method.
        method: String,
        /// The path as it was sent.
        path: String,
    },
    /// A version beyond 63 bits.
    #[error("Failed to convert version: {version} to numeric.")]
    Version {
        /// What was sent.
        version: String,
    },
    /// No such model or version to predict with.
    #[error("Servable not found for request: {request}")]
    NoServable {
        /// `Latest(name)` or `Specific(name, 3)`.
        request: String,
    },
    /// No such model or version to tell the status of.
    #[error("Could not find {what}")]
    NoVersions {
        /// `any versions of model name` or `version 3 of model name`.
        what: String,
    },
    /// No such label.
    #[error("Unrecognized servable version label: {label}")]
    Label {
        /// The label.
        label: String,
    },
    /// A preflight request that names no page.
    #[error("Origin header is missing in CORS preflight")]
    NoOrigin,
    /// No body.
    #[error("JSON Parse error: The document is empty")]
    Empty,
    /// A body that is no JSON.
    #[error("JSON Parse error: {reason} at offset: {offset}")]
    Syntax {
        /// What is wrong.
        reason: &'static str,
        /// The byte.
        offset: usize,
    },
    /// JSON that is not of the form this method takes.
    #[error("JSON Value: {value} {reason}")]
    Form {
        /// The beginning of the value.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A body without any of the keys it needs.
    #[error("Missing 'inputs' or 'instances' key")]
    NoInputs,
    /// A signature that models here do not have.
    #[error("Serving signature name: \"{name}\" not found in signature def")]
    Signature {
        /// Its name.
        name: String,
    },
    /// A value of another type than the input's.
    #[error("JSON Value: {value} Type: {kind} is not of expected type: {expected}")]
    Type {
        /// The beginning of the value.
        value: String,
        /// Its type.
        kind: &'static str,
        /// The input's.
        expected: &'static str,
    },
    /// Base64 that is none.
    #[error("Unable to base64 decode")]
    Base64,
    /// Lists that do not make up a tensor.
    #[error("{0}")]
    Nesting(NestingError),
    /// A row that is not like those before it.
    #[error("Expecting {expected} but got: {got}")]
    Row {
        /// The size or shape of those before.
        expected: String,
        /// Its own.
        got: String,
    },
    /// One element of `instances`.
    #[error("Failed to process element: {element}{key} of 'instances' list. Error: {error}")]
    Element {
        /// Its number.
        element: usize,
        /// ` key: name`, or nothing where elements are values.
        key: String,
        /// What is wrong with it.
        error: Box<TfsError>,
    },
    /// Values where several inputs must be named.
    #[error(
        "{key} is a plain {given}, but expecting {expected} as multiple input tensors required as per tensorinfo_map"
    )]
    Plain {
        /// `instances` or `inputs`.
        key: &'static str,
        /// What it is.
        given: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// Objects and values side by side.
    #[error("Expecting {expected} but got {got} at item {item} of input list")]
    Mixed {
        /// What the first element is.
        expected: &'static str,
        /// What this one is.
        got: &'static str,
        /// Its number.
        item: usize,
    },
    /// A row with an input that the model does not have.
    #[error("JSON object: does not have named input: {name}")]
    NoNamed {
        /// The name.
        name: String,
    },
    /// A row without one of the model's inputs.
    #[error(
        "Failed to process element: {element} of 'instances' list. JSON object: {value} keys must be equal to: {names}"
    )]
    Keys {
        /// Its number.
        element: usize,
        /// The beginning of it.
        value: String,
        /// The model's inputs.
        names: String,
    },
    /// A column that is not there.
    #[error("Missing named input: {name} in 'inputs' object.")]
    NoColumn {
        /// The input.
        name: String,
    },
    /// An example that is none.
    #[error("Example must be JSON object but got JSON {kind}")]
    Example {
        /// What it is.
        kind: &'static str,
    },
    /// A feature given twice.
    #[error("Feature: {name} is in both the example and the context, or twice in one of them")]
    Feature {
        /// Its name.
        name: String,
    },
    /// A model that does not do what the method asks for.
    #[error("model {model} cannot {method}: {reason}")]
    Method {
        /// The model.
        model: String,
        /// `classify` or `regress`.
        method: &'static str,
        /// Why.
        reason: String,
    },
}

/// How lists fail to make up a tensor.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NestingError {
    /// A value beside lists, or the other way round.
    #[error("JSON Value: {value} found at incorrect level: {level} in the JSON DOM. Expected at level: {rank}")]
    Value {
        /// The beginning of the value.
        value: String,
        /// Where it stands, from 1.
        level: usize,
        /// Where values stand.
        rank: usize,
    },
    /// A list where values stand.
    #[error("Encountered list at unexpected level: {level} expected < {rank}")]
    List {
        /// Where it stands.
        level: usize,
        /// Where values stand.
        rank: usize,
    },
    /// A list of another length than those before it.
    #[error("Encountered list at unexpected size: {size} at level: {level} expected size: {expected}")]
    Size {
        /// Its length.
        size: usize,
        /// Where it stands.
        level: usize,
        /// The length of those before.
        expected: usize,
    },
}

impl From<JsonSyntaxError> for TfsError {
    fn from(JsonSyntaxError { reason, offset }: JsonSyntaxError) -> TfsError {
        TfsError::Syntax { reason, offset }
    }
}

impl TfsError {
    /// A body, or part of it, that has not the form it needs.
    pub(super) fn bad_form(value: &[u8], reason: impl Into<String>) -> TfsError {
        TfsError::Form { value: excerpt(value), reason: reason.into() }
    }

    /// A value that cannot be an element of `dtype`.
    pub(super) fn bad_type(value: &[u8], dtype: DType) -> TfsError {
        TfsError::Type { value: excerpt(value), kind: json_type_name(value), expected: tensorflow_type_name(dtype) }
    }

    /// A value that cannot be a text.
    pub(super) fn bad_text(value: &[u8]) -> TfsError {
        TfsError::Type { value: excerpt(value), kind: json_type_name(value), expected: "string" }
    }
}

/// The beginning of a value, for an error.
pub(super) fn excerpt(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(&value[..value.len().min(4 * EXCERPT_CHARS_MAX)]);
    let shown: String = text.chars().take(EXCERPT_CHARS_MAX).collect();
    if shown.len() < value.len() { format!("{shown}...") } else { shown }
}

/// The JSON type of a value.
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

/// The data type's name in errors: that of TensorFlow's.
fn tensorflow_type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F16 => "half",
        DType::I64 | DType::U64 | DType::I32 | DType::U32 | DType::I8 | DType::U8 => dtype.name(),
    }
}
