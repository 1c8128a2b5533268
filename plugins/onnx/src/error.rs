//! Why a file cannot be imported or a graph cannot be built.

use std::fmt;

use saggar_plugin::ErrorCode;

/// What a call of this crate answers.
pub type Result<T> = std::result::Result<T, Error>;

/// A fault and the place in the model where it is. Rules of operators leave the place empty; whoever calls them knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Error {
    /// What is wrong.
    pub fault: Fault,
    /// The node, input, initializer or option at fault.
    pub place: String,
}

/// What can be wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
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
        Fault::Invalid { what: what.into() }.into()
    }

    /// A model that is right and not taken.
    pub fn unsupported(what: impl Into<String>) -> Self {
        Fault::Unsupported { what: what.into() }.into()
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

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self { fault, place: String::new() }
    }
}

impl From<saggar_plugin::Error> for Error {
    fn from(error: saggar_plugin::Error) -> Self {
        Fault::Host(error).into()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        match &self.fault {
            Fault::NotOnnx { reason } => write!(f, "not an ONNX file: {reason}"),
            Fault::Invalid { what } => write!(f, "the model is not valid: {what}"),
            Fault::Unsupported { what } => write!(f, "not supported: {what}"),
            Fault::NotKnown { name, role } => write!(
                f,
                "`{name}` ({role}) must be known when the model is imported; where it follows from an input, the option \
                 `constants` can fix that input"
            ),
            Fault::Option { expected } => write!(f, "must be {expected}"),
            Fault::Host(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for saggar_plugin::Error {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        let code = match error.fault {
            Fault::Host(saggar_plugin::Error::Host { code, .. }) => code,
            Fault::Unsupported { .. } => ErrorCode::Unsupported,
            Fault::NotOnnx { .. }
            | Fault::Invalid { .. }
            | Fault::NotKnown { .. }
            | Fault::Option { .. }
            | Fault::Host(_) => ErrorCode::InvalidArgument,
        };
        let place = Some(error.place).filter(|place| !place.is_empty());
        Self::Host { code, message, place }
    }
}
