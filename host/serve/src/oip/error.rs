//! Errors of inference requests.

use saggar_rest::errors::ErrorCode;
use thiserror::Error;

use crate::error::{ErrorMapping, ProtocolError};
use crate::limits::{INFER_BYTES_MAX, JSON_DEPTH_MAX};
use crate::predict::decode::DecodeError;

/// Why an inference request is invalid. All of these are client errors.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum InferError {
    /// The header with the length of the JSON is invalid.
    #[error(
        "Inference-Header-Content-Length: expected a whole number of at most {bytes_max}, the body's length, got {got:?}"
    )]
    HeaderLength {
        /// The body's length in bytes.
        bytes_max: usize,
        /// The value received.
        got: String,
    },
    /// The body is not JSON, or not in the form of a request.
    #[error("request: {reason}")]
    Syntax {
        /// The parser's message.
        reason: String,
    },
    /// A parameter with an invalid value.
    #[error("{place}: parameter {name}: expected {expected}")]
    Parameter {
        /// `request`, or the tensor's name.
        place: String,
        /// The parameter's name.
        name: String,
        /// The accepted values.
        expected: &'static str,
    },
    /// A parameter that requests an unsupported feature.
    #[error("{place}: parameter {name} is refused: {reason}")]
    Refused {
        /// `request`, or the tensor's name.
        place: String,
        /// The parameter's name.
        name: String,
        /// The reason.
        reason: &'static str,
    },
    /// A required key is missing.
    #[error("{place}: {key:?} is missing")]
    Missing {
        /// `request`, `inputs[0]`, or the tensor's name.
        place: String,
        /// The missing key.
        key: &'static str,
    },
    /// The datatype differs from the model's.
    #[error("{name}: expected datatype {expected}, got {got:?}")]
    Datatype {
        /// The input's name.
        name: String,
        /// The model's datatype.
        expected: &'static str,
        /// The value received.
        got: String,
    },
    /// The shape does not match the model's.
    #[error("{name}: expected shape {expected}, got {got:?}")]
    Shape {
        /// The input's name.
        name: String,
        /// The model's shape, with -1 for the batch.
        expected: String,
        /// The value received.
        got: Vec<u64>,
    },
    /// The number of elements differs from that of the shape.
    #[error("{name}: shape {shape:?} has {expected} elements, the data has {got}")]
    Elements {
        /// The input's name.
        name: String,
        /// The input's shape.
        shape: Vec<u64>,
        /// The number of elements of that shape.
        expected: usize,
        /// The value received.
        got: usize,
    },
    /// An element that its type cannot represent.
    #[error("{name}: element {at}: expected {expected}, got {got}")]
    Element {
        /// The input's name.
        name: String,
        /// The element's index in row-major order.
        at: usize,
        /// The values that the type can represent.
        expected: &'static str,
        /// The value received.
        got: String,
    },
    /// Arrays nested too deeply.
    #[error("{name}: arrays are nested deeper than {JSON_DEPTH_MAX}")]
    TooDeep {
        /// The input's name.
        name: String,
    },
    /// More data than an input accepts.
    #[error("{name}: more than {INFER_BYTES_MAX} bytes of elements")]
    TooLarge {
        /// The input's name.
        name: String,
    },
    /// Neither data nor its size, or both.
    #[error("{name}: expected exactly one of \"data\" and the parameter binary_data_size")]
    Data {
        /// The input's name.
        name: String,
    },
    /// Half floats in JSON.
    #[error("{name}: {datatype} has no form in JSON; exchange it as binary data")]
    NoJson {
        /// The tensor's name.
        name: String,
        /// The tensor's datatype.
        datatype: &'static str,
    },
    /// Binary data without the header that states where it begins.
    #[error("{name}: binary data needs the header Inference-Header-Content-Length")]
    NoHeader {
        /// The input's name.
        name: String,
    },
    /// The body ends before the data of all inputs.
    #[error("unexpected size for input {name}, expecting {missing} additional bytes")]
    BinaryShort {
        /// The input's name.
        name: String,
        /// The number of missing bytes.
        missing: u64,
    },
    /// The body continues after the data of all inputs.
    #[error("unexpected additional input data: {bytes} bytes follow the last input")]
    BinaryLeft {
        /// The number of additional bytes.
        bytes: usize,
    },
    /// Binary data whose length does not match the shape.
    #[error("input byte size mismatch for input {name}: expected {expected} bytes, got {got}")]
    BinarySize {
        /// The input's name.
        name: String,
        /// The number of bytes of the input's shape.
        expected: usize,
        /// The value received.
        got: usize,
    },
    /// Lengths of texts that are inconsistent with the data.
    #[error("{name}: {reason}")]
    Texts {
        /// The input's name.
        name: String,
        /// The inconsistency.
        reason: &'static str,
    },
    /// The model does not have the requested output.
    #[error("{name}: the model has no such output; it gives {known}")]
    UnknownOutput {
        /// The requested name.
        name: String,
        /// The names of the model's outputs.
        known: String,
    },
    /// An output requested twice.
    #[error("{name}: asked for twice")]
    OutputTwice {
        /// The output's name.
        name: String,
    },
    /// A body without JSON for a model that has more than one input or none.
    #[error("a raw request is for a model of exactly one input; this one has {inputs}")]
    Raw {
        /// The number of the model's inputs.
        inputs: usize,
    },
    /// The inputs do not fit the model, or each other.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl ProtocolError for InferError {
    fn mapping(&self) -> ErrorMapping {
        ErrorMapping::bad_request(ErrorCode::BadInput, "GET /v2/models/NAME shows what the model takes")
    }
}
