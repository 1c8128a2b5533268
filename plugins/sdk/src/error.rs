//! The error type of the crate, and its conversion to the host's error.

use std::panic::Location;

use crate::bindings::tensors;
use crate::bindings::tensors::ErrorCode;

/// A line of a source file.
pub(crate) type SourceLine = &'static Location<'static>;

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a call failed. Errors of the host are passed on unchanged.
///
/// Functions of this crate wrap it in [`Error::At`], with the line of the plugin that called them. [`Error::cause`]
/// returns the error without it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The host refused a call.
    #[error("{message}{}", format_places(&self.places()))]
    Host {
        /// Kind of the error.
        code: ErrorCode,
        /// The value that was given and the value that was expected.
        message: String,
        /// The operand, field or name at fault.
        place: Option<String>,
    },
    /// Another error, with the layer and the line of the plugin's source that it is about.
    #[error("{}{}", error.message(), format_places(&self.places()))]
    At {
        /// The error.
        error: Box<Error>,
        /// Name of the layer: the scope of its variables.
        layer: Option<String>,
        /// The line that called this crate.
        line: Option<SourceLine>,
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

impl Error {
    /// Returns the error without the layer and the line that it is about.
    ///
    /// ```
    /// use saggar_plugin::{Error, named};
    ///
    /// let error = named(&[], "label").unwrap_err();
    /// assert!(matches!(error.cause(), Error::NoSuch { what: "tensor", .. }));
    /// assert!(error.to_string().contains("(at "), "{error}");
    /// ```
    pub fn cause(&self) -> &Error {
        if let Error::At { error, .. } = self { error.cause() } else { self }
    }

    /// Returns the message without the places.
    fn message(&self) -> String {
        match self.cause() {
            Error::Host { message, .. } => message.clone(),
            other => other.to_string(),
        }
    }

    /// Returns the places that the error is about, from the operand or field to the line of the source.
    fn places(&self) -> Vec<String> {
        match self {
            Error::At { error, layer, line } => {
                let mut places = error.places();
                places.extend(layer.as_ref().map(|layer| format!("layer `{layer}`")));
                places.extend(line.map(|line| format!("{}:{}", short_path(line.file()), line.line())));
                places
            }
            Error::Host { place, .. } => place.iter().cloned().collect(),
            Error::NoSuch { .. }
            | Error::UnknownParameter { .. }
            | Error::Parameter { .. }
            | Error::MissingParameter { .. }
            | Error::Stopped
            | Error::Label { .. }
            | Error::Shards { .. }
            | Error::Json { .. }
            | Error::NotAnObject { .. }
            | Error::Shape { .. }
            | Error::Text { .. }
            | Error::NoItems
            | Error::Built
            | Error::State { .. } => Vec::new(),
        }
    }
}

fn format_places(places: &[String]) -> String {
    if places.is_empty() { String::new() } else { format!(" (at {})", places.join(", ")) }
}

fn join_names(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Returns the path of a source file without the directories of the machine that built the plugin: a crate outside of the
/// plugin's workspace has an absolute path.
fn short_path(file: &str) -> &str {
    // Bytes, because a search in a text and a slice of it are kilobytes of code.
    let bytes = file.as_bytes();
    if bytes.first() != Some(&b'/') {
        return file;
    }
    let source = bytes.windows(5).rposition(|part| part == b"/src/").unwrap_or_default();
    let package = bytes.iter().take(source).rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    file.get(package..).unwrap_or(file)
}

impl From<tensors::Error> for Error {
    fn from(error: tensors::Error) -> Self {
        Self::Host { code: error.code, message: error.message, place: error.place }
    }
}

impl From<Error> for tensors::Error {
    fn from(error: Error) -> Self {
        let message = error.message();
        let place = Some(error.places()).filter(|places| !places.is_empty()).map(|places| places.join(", "));
        match error {
            Error::Host { code, message, place } => Self { code, message, place },
            Error::At { error, .. } => Self { message, place, ..(*error).into() },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_other_crates_begin_with_the_package() {
        assert_eq!(short_path("src/model.rs"), "src/model.rs");
        assert_eq!(short_path("lenet/src/model.rs"), "lenet/src/model.rs");
        assert_eq!(short_path("/home/user/.cargo/registry/blocks-1.2/src/net/mod.rs"), "blocks-1.2/src/net/mod.rs");
    }
}
