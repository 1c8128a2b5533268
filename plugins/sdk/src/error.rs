//! The error type of the crate, and its conversion to the host's error.

use crate::bindings::tensors;
use crate::bindings::tensors::ErrorCode;

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a call failed. Errors of the host are passed on unchanged.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The host refused a call.
    #[error("{message}{}", place_suffix(.place))]
    Host {
        /// Kind of the error.
        code: ErrorCode,
        /// The value that was given and the value that was expected.
        message: String,
        /// The operand, field or name at fault.
        place: Option<String>,
    },
    /// The job is stopping at a step boundary, and its state is stored. A training that returns this error ends
    /// successfully.
    #[error("the training was stopped at a step boundary")]
    Stopped,
    /// A label that is not a class index.
    #[error("label {given} is out of range: there are {classes} classes, numbered from 0")]
    Label {
        /// The label.
        given: i32,
        /// The number of classes.
        classes: usize,
    },
    /// A batch that cannot be divided into the number of equal shards that the job requests.
    #[error("a batch of {batch} items cannot be divided into {shards} equal shards")]
    Shards {
        /// Number of items in the batch.
        batch: u32,
        /// Number of shards requested.
        shards: u32,
    },
    /// A parameter that the plugin does not have.
    #[error("unknown parameter `{name}`: this plugin takes {}", join_names(.known))]
    UnknownParameter {
        /// Name of the parameter.
        name: String,
        /// Names of the plugin's parameters.
        known: Vec<String>,
    },
    /// A parameter with the wrong type or out of range.
    #[error("parameter `{name}` must be {expected}, not {given}")]
    Parameter {
        /// Name of the parameter.
        name: String,
        /// Description of the accepted values.
        expected: String,
        /// The given value, as JSON.
        given: String,
    },
    /// A required parameter that is missing.
    #[error("parameter `{name}` is missing: it must be {expected}")]
    MissingParameter {
        /// Name of the parameter.
        name: String,
        /// Description of the accepted values.
        expected: String,
    },
    /// Text that is not JSON.
    #[error("not JSON at byte {at}: expected {expected}")]
    Json {
        /// Offset of the invalid byte.
        at: usize,
        /// What was expected there.
        expected: &'static str,
    },
    /// Valid JSON that is not an object, given as parameters.
    #[error("parameters must be a JSON object, not {given}")]
    NotAnObject {
        /// The given value, as JSON.
        given: String,
    },
    /// An input, field, output or variable that does not exist.
    #[error("no {what} `{name}`; available: {}", join_names(.known))]
    NoSuch {
        /// Kind of the thing: `input`, `field`, ...
        what: &'static str,
        /// Name that was looked up.
        name: String,
        /// Existing names.
        known: Vec<String>,
    },
    /// A shape that a layer or a model does not accept.
    #[error("{what} must be {expected}, not {given:?}")]
    Shape {
        /// The value with this shape.
        what: String,
        /// Description of the accepted shapes.
        expected: &'static str,
        /// The given shape.
        given: Vec<u32>,
    },
    /// An item of a text field that is not UTF-8.
    #[error("item {item} of the field `{field}` is not UTF-8")]
    Text {
        /// Name of the field.
        field: String,
        /// Index of the item in its split, from 0.
        item: usize,
    },
    /// A dataset or split without items.
    #[error("the dataset has no items to train on")]
    NoItems,
    /// A graph that was modified after it was built.
    #[error("the graph is already built: operands cannot be added to it")]
    Built,
    /// The state in a checkpoint that this version of the plugin cannot resume from.
    #[error("the checkpoint's state ({bytes} bytes) is not that of a training with `Fit`")]
    State {
        /// Length of the state, in bytes.
        bytes: usize,
    },
}

fn place_suffix(place: &Option<String>) -> String {
    place.as_ref().map(|place| format!(" (at `{place}`)")).unwrap_or_default()
}

fn join_names(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl From<tensors::Error> for Error {
    fn from(error: tensors::Error) -> Self {
        Self::Host { code: error.code, message: error.message, place: error.place }
    }
}

impl From<Error> for tensors::Error {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Host { code, message, place } => Self { code, message, place },
            Error::Stopped => Self { code: ErrorCode::Cancelled, message, place: None },
            Error::NoSuch { name, .. } => Self { code: ErrorCode::NotFound, message, place: Some(name) },
            Error::UnknownParameter { name, .. }
            | Error::Parameter { name, .. }
            | Error::MissingParameter { name, .. } => {
                Self { code: ErrorCode::InvalidArgument, message, place: Some(name) }
            }
            Error::Label { .. }
            | Error::Shards { .. }
            | Error::Json { .. }
            | Error::NotAnObject { .. }
            | Error::Shape { .. }
            | Error::Text { .. }
            | Error::NoItems
            | Error::Built
            | Error::State { .. } => Self { code: ErrorCode::InvalidArgument, message, place: None },
        }
    }
}
