//! What can be wrong with an inference request.

use thiserror::Error;

use crate::limits::{INFER_BYTES_MAX, JSON_DEPTH_MAX};
use crate::predict::decode::DecodeError;

/// Why a request is not one for the model. All are the client's to mend.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum InferError {
    /// The header that says where the JSON ends.
    #[error(
        "Inference-Header-Content-Length: expected a whole number of at most {bytes_max}, the body's length, got {got:?}"
    )]
    HeaderLength {
        /// Bytes of the body.
        bytes_max: usize,
        /// What came.
        got: String,
    },
    /// Not JSON, or not of the request's form.
    #[error("request: {reason}")]
    Syntax {
        /// The parser's words.
        reason: String,
    },
    /// A parameter that cannot have this value.
    #[error("{place}: parameter {name}: expected {expected}")]
    Parameter {
        /// `request`, or the tensor.
        place: String,
        /// The parameter.
        name: String,
        /// What it takes.
        expected: &'static str,
    },
    /// A parameter that asks for what is not offered.
    #[error("{place}: parameter {name} is refused: {reason}")]
    Refused {
        /// `request`, or the tensor.
        place: String,
        /// The parameter.
        name: String,
        /// Why.
        reason: &'static str,
    },
    /// Something the request needs is not there.
    #[error("{place}: {key:?} is missing")]
    Missing {
        /// `request`, `inputs[0]`, or the tensor.
        place: String,
        /// The key.
        key: &'static str,
    },
    /// A type that is not the model's.
    #[error("{name}: expected datatype {expected}, got {got:?}")]
    Datatype {
        /// The input.
        name: String,
        /// The model's.
        expected: &'static str,
        /// What came.
        got: String,
    },
    /// The wrong shape.
    #[error("{name}: expected shape {expected}, got {got:?}")]
    Shape {
        /// The input.
        name: String,
        /// The model's, with -1 for the batch.
        expected: String,
        /// What came.
        got: Vec<u64>,
    },
    /// Another number of elements than the shape says.
    #[error("{name}: shape {shape:?} has {expected} elements, the data has {got}")]
    Elements {
        /// The input.
        name: String,
        /// Its shape.
        shape: Vec<u64>,
        /// Elements of that.
        expected: usize,
        /// What came.
        got: usize,
    },
    /// An element that its type cannot hold.
    #[error("{name}: element {at}: expected {expected}, got {got}")]
    Element {
        /// The input.
        name: String,
        /// Its place in row-major order.
        at: usize,
        /// What the type holds.
        expected: &'static str,
        /// What came.
        got: String,
    },
    /// Arrays in arrays in arrays.
    #[error("{name}: arrays are nested deeper than {JSON_DEPTH_MAX}")]
    TooDeep {
        /// The input.
        name: String,
    },
    /// More data than an input takes.
    #[error("{name}: more than {INFER_BYTES_MAX} bytes of elements")]
    TooLarge {
        /// The input.
        name: String,
    },
    /// Neither data nor its size, or both.
    #[error("{name}: expected exactly one of \"data\" and the parameter binary_data_size")]
    Data {
        /// The input.
        name: String,
    },
    /// Half floats in JSON.
    #[error("{name}: {datatype} has no form in JSON; exchange it as binary data")]
    NoJson {
        /// The tensor.
        name: String,
        /// Its type.
        datatype: &'static str,
    },
    /// Binary data that nothing says the beginning of.
    #[error("{name}: binary data needs the header Inference-Header-Content-Length")]
    NoHeader {
        /// The input.
        name: String,
    },
    /// The body ends too early.
    #[error("unexpected size for input {name}, expecting {missing} additional bytes")]
    BinaryShort {
        /// The input.
        name: String,
        /// How many bytes are missing.
        missing: u64,
    },
    /// The body goes on.
    #[error("unexpected additional input data: {bytes} bytes follow the last input")]
    BinaryLeft {
        /// How many.
        bytes: usize,
    },
    /// Binary data of the wrong length.
    #[error("input byte size mismatch for input {name}: expected {expected} bytes, got {got}")]
    BinarySize {
        /// The input.
        name: String,
        /// Bytes of its shape.
        expected: usize,
        /// What came.
        got: usize,
    },
    /// Lengths of texts that do not add up.
    #[error("{name}: {reason}")]
    Texts {
        /// The input.
        name: String,
        /// What does not fit.
        reason: &'static str,
    },
    /// An output the model does not have.
    #[error("{name}: the model has no such output; it gives {known}")]
    UnknownOutput {
        /// The name.
        name: String,
        /// The model's outputs.
        known: String,
    },
    /// An output asked for twice.
    #[error("{name}: asked for twice")]
    OutputTwice {
        /// The output.
        name: String,
    },
    /// A bare body for a model that needs to be told more.
    #[error("a raw request is for a model of exactly one input; this one has {inputs}")]
    Raw {
        /// How many it has.
        inputs: usize,
    },
    /// The inputs do not fit the model, or each other.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}
