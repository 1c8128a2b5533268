//! Why a file cannot be imported or a graph cannot be built.

use std::fmt;

use saggar_plugin::ErrorCode;

/// What a call of this crate answers.
pub type Result<T> = std::result::Result<T, Error>;

/// A fault and the place in the model where it is. Rules of operators leave the place empty; whoever calls them knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Error {
    /// What is wrong.
    pub fault: OnnxErrorKind,
    /// The node, input, initializer or option at fault.
    pub place: String,
}

/// What a value that is not known follows from.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum ValueSource {
    /// Nobody has looked, or it is inside of a function or of a branch.
    #[default]
    Unknown,
    /// These inputs, whose values the option `constants` can give: few numbers each.
    Settings(Vec<String>),
    /// Among others these inputs, which are the data of requests.
    Data(Vec<String>),
}

/// What can be wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum OnnxErrorKind {
    /// The bytes are no ONNX file.
    NotOnnx {
        /// What the decoder stumbled over.
        reason: String,
    },
    /// The model contradicts itself or the format.
    Invalid {
        /// What is expected and what is there.
        what: String,
    },
    /// The model is right, and this plugin does not take it.
    Unsupported {
        /// What is not taken.
        what: String,
    },
    /// A value that shapes depend on is not known before the model runs.
    NotKnown {
        /// Its name in the model.
        name: String,
        /// What it decides.
        role: String,
        /// What it is computed from.
        source: ValueSource,
    },
    /// Dimensions that the model leaves open and the options do not give.
    OpenShapes {
        /// The inputs that have them, with their shapes, for the message.
        inputs: String,
        /// Options with which the model was built, in the forms of the command line and of JSON; none where none was found.
        example: Option<String>,
    },
    /// The model can be built for one item, and for no larger batch.
    OneItem {
        /// The batch that cannot be built.
        items: u32,
        /// Why not.
        reason: Box<Error>,
    },
    /// An option of the import that does not fit.
    Option {
        /// What it must be.
        expected: String,
    },
    /// The host refused a call.
    Host(saggar_plugin::Error),
}

impl Error {
    /// A model that contradicts itself or the format.
    pub fn invalid(what: impl Into<String>) -> Self {
        OnnxErrorKind::Invalid { what: what.into() }.into()
    }

    /// A model that is right and not taken.
    pub fn unsupported(what: impl Into<String>) -> Self {
        OnnxErrorKind::Unsupported { what: what.into() }.into()
    }

    /// The error at this place, unless it has one already.
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
