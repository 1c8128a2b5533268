//! The one error of the crate, and how it crosses to the host.

use crate::bindings::tensors;
use crate::bindings::tensors::ErrorCode;

/// What a call of this crate answers.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something failed. What the host refused is passed on as it came.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The host refused a call.
    #[error("{message}{}", place_suffix(.place))]
    Host {
        /// What kind of thing went wrong.
        code: ErrorCode,
        /// What was expected and what was given.
        message: String,
        /// The operand, field or name at fault.
        place: Option<String>,
    },
    /// The job was told to stop at a step boundary, and its state is safe. A training that returns it ends well.
    #[error("the training was told to stop")]
    Stopped,
    /// A label that is not the number of a class.
    #[error("label {given} is no class: there are {classes}, from 0")]
    Label {
        /// The label.
        given: i32,
        /// The number of classes.
        classes: usize,
    },
    /// A batch that has not as many equal parts as the job asks for.
    #[error("a batch of {batch} items cannot be divided into {shards} equal shards")]
    Shards {
        /// Items in a batch.
        batch: u32,
        /// Parts that are asked for.
        shards: u32,
    },
    /// A parameter that the plugin does not take.
    #[error("unknown parameter `{name}`: this plugin takes {}", join_names(.known))]
    UnknownParameter {
        /// What was given.
        name: String,
        /// What may be given.
        known: Vec<String>,
    },
    /// A parameter of the wrong type or out of range.
    #[error("parameter `{name}` must be {expected}, not {given}")]
    Parameter {
        /// Its name.
        name: String,
        /// What it may be.
        expected: String,
        /// What it was, as JSON.
        given: String,
    },
    /// A parameter that has no default is missing.
    #[error("parameter `{name}` is missing: it must be {expected}")]
    MissingParameter {
        /// Its name.
        name: String,
        /// What it may be.
        expected: String,
    },
    /// Text that is not JSON.
    #[error("not JSON at byte {at}: expected {expected}")]
    Json {
        /// Offset of the byte at fault.
        at: usize,
        /// What would have been right there.
        expected: &'static str,
    },
    /// JSON that is right but not an object, where parameters are.
    #[error("parameters must be a JSON object, not {given}")]
    NotAnObject {
        /// What it was, as JSON.
        given: String,
    },
    /// No input, field, output or variable of that name.
    #[error("no {what} `{name}`: there are {}", join_names(.known))]
    NoSuch {
        /// What was looked for.
        what: &'static str,
        /// Its name.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A shape that a layer or a model cannot take.
    #[error("{what} must be {expected}, not {given:?}")]
    Shape {
        /// What has the shape.
        what: String,
        /// What shape it may have.
        expected: &'static str,
        /// The shape it has.
        given: Vec<u32>,
    },
    /// An item of a text field that is no text.
    #[error("item {item} of the field `{field}` is not UTF-8")]
    Text {
        /// The field.
        field: String,
        /// The item, from 0 in its part.
        item: usize,
    },
    /// A dataset or one of its parts has no items.
    #[error("the dataset has no items to train on")]
    NoItems,
    /// A graph was used after it was built.
    #[error("the graph was built already; nothing can be added to it")]
    Built,
    /// A saved state that this version of the plugin cannot go on from.
    #[error("the checkpoint's state is not one of this training: {bytes} bytes")]
    State {
        /// Its length.
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
