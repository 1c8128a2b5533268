//! Errors of importing a file and of building a graph.

use std::fmt;

use saggar_plugin::ErrorCode;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error and its place in the model. Operator rules leave the place empty, and their caller fills it in.
#[derive(Debug, Clone, PartialEq)]
pub struct Error {
    /// The kind of error.
    pub fault: OnnxErrorKind,
    /// The node, input, initializer or option at fault.
    pub place: String,
}

/// The inputs that a value follows from, for a value that must be known at import and is not.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum ValueSource {
    /// Not traced, or the value is inside a function or a branch.
    #[default]
    Unknown,
    /// Small inputs, whose values the option `constants` can give.
    Settings(Vec<String>),
    /// Inputs that hold the data of requests, possibly among others.
    Data(Vec<String>),
}

/// The kinds of errors.
#[derive(Debug, Clone, PartialEq)]
pub enum OnnxErrorKind {
    /// The bytes are not an ONNX file.
    NotOnnx {
        /// The decoder's error.
        reason: String,
    },
    /// The model contradicts itself or the format.
    Invalid {
        /// The expected value and the value found.
        what: String,
    },
    /// The model is valid, but this plugin does not support it.
    Unsupported {
        /// The feature that is not supported.
        what: String,
    },
    /// A value that shapes depend on is not known at import.
    NotKnown {
        /// The value's name in the model.
        name: String,
        /// The value's role in the operator.
        role: String,
        /// The inputs that the value is computed from.
        source: ValueSource,
    },
    /// The model leaves dimensions open and the options do not give their sizes.
    OpenShapes {
        /// The inputs with open dimensions and their shapes, for the message.
        inputs: String,
        /// Options that the model can be built with, in command-line form and as JSON. `None` if no such options were
        /// found.
        example: Option<String>,
    },
    /// The model can be built for a batch of one, but not for a larger batch.
    OneItem {
        /// The batch size that cannot be built.
        items: u32,
        /// The error of building that batch size.
        reason: Box<Error>,
    },
    /// An import option is invalid.
    Option {
        /// The expected value.
        expected: String,
    },
    /// The host refused a call.
    Host(saggar_plugin::Error),
}

impl Error {
    /// Creates an error for a model that contradicts itself or the format.
    pub fn invalid(what: impl Into<String>) -> Self {
        OnnxErrorKind::Invalid { what: what.into() }.into()
    }

    /// Creates an error for a valid model that the plugin does not support.
    pub fn unsupported(what: impl Into<String>) -> Self {
        OnnxErrorKind::Unsupported { what: what.into() }.into()
    }

    /// Adds the place to the error, unless it has one already.
    #[must_use]
    pub fn at(mut self, place: impl FnOnce() -> String) -> Self {
        if self.place.is_empty() {
            self.place = place();
        }
        self
    }
}

impl From<OnnxErrorKind> for Error {
    fn from(fault: OnnxErrorKind) -> Self {
        Self { fault, place: String::new() }
    }
}

impl From<saggar_plugin::Error> for Error {
    fn from(error: saggar_plugin::Error) -> Self {
        OnnxErrorKind::Host(error).into()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        match &self.fault {
            OnnxErrorKind::NotOnnx { reason } => write!(f, "not an ONNX file: {reason}"),
            OnnxErrorKind::Invalid { what } => write!(f, "the model is not valid: {what}"),
            OnnxErrorKind::Unsupported { what } => write!(f, "not supported: {what}"),
            OnnxErrorKind::NotKnown { name, role, source } => {
                write!(f, "`{name}` ({role}) must be known when the model is imported{source}")
            }
            OnnxErrorKind::OpenShapes { inputs, example } => {
                write!(f, "must give the sizes that the model leaves open: {inputs}")?;
                match example {
                    Some(example) => write!(f, "; such as {example}"),
                    None => {
                        f.write_str("; on the command line as --shape INPUT=SIZExSIZE, with ? for a size that stays")
                    }
                }
            }
            OnnxErrorKind::OneItem { items, reason } => write!(
                f,
                "the model computes batches of 1 only: for a batch of {items}, {reason}. Import it with --batch 1, or the \
                 option {{\"batch\": [1]}}"
            ),
            OnnxErrorKind::Option { expected } => write!(f, "must be {expected}"),
            OnnxErrorKind::Host(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueSource::Unknown => Ok(()),
            ValueSource::Settings(inputs) => {
                let flags: Vec<String> = inputs.iter().map(|input| format!("--constant {input}=VALUE")).collect();
                let members: Vec<String> = inputs.iter().map(|input| format!("\"{input}\": VALUE")).collect();
                let (flags, members) = (flags.join(" "), members.join(", "));
                write!(f, "; give it by {flags}, or the option {{\"constants\": {{{members}}}}}")
            }
            ValueSource::Data(inputs) => {
                let inputs = inputs.join("`, `");
                write!(
                    f,
                    ", but follows from the data of each request (input `{inputs}`): such a model cannot be imported"
                )
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for saggar_plugin::Error {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        let code = match error.fault {
            OnnxErrorKind::Host(saggar_plugin::Error::Host { code, .. }) => code,
            OnnxErrorKind::Unsupported { .. } => ErrorCode::Unsupported,
            OnnxErrorKind::NotOnnx { .. }
            | OnnxErrorKind::Invalid { .. }
            | OnnxErrorKind::NotKnown { .. }
            | OnnxErrorKind::OpenShapes { .. }
            | OnnxErrorKind::OneItem { .. }
            | OnnxErrorKind::Option { .. }
            | OnnxErrorKind::Host(_) => ErrorCode::InvalidArgument,
        };
        let place = Some(error.place).filter(|place| !place.is_empty());
        Self::Host { code, message, place }
    }
}
