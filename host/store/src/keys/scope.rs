//! Scopes: the kinds of actions that a key allows.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A scope. The right to change jobs includes the right to see them, and `admin` includes everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum KeyScope {
    /// Ask models for predictions.
    #[serde(rename = "predict")]
    Predict,
    /// See jobs, their logs and outputs, datasets and plugins.
    #[serde(rename = "jobs:read")]
    JobsRead,
    /// Submit and stop jobs; upload datasets and plugins.
    #[serde(rename = "jobs:write")]
    JobsWrite,
    /// Load, promote, import and unload models.
    #[serde(rename = "models:write")]
    ModelsWrite,
    /// Read the metrics page.
    #[serde(rename = "metrics:read")]
    MetricsRead,
    /// Everything, including keys.
    #[serde(rename = "admin")]
    Admin,
}

/// Text that is not the name of a scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{got}` is not a scope; expected one of {}", KeyScope::names())]
pub struct ParseScopeError {
    got: String,
}

impl KeyScope {
    /// Every scope.
    pub const ALL: [KeyScope; 6] = [
        KeyScope::Predict,
        KeyScope::JobsRead,
        KeyScope::JobsWrite,
        KeyScope::ModelsWrite,
        KeyScope::MetricsRead,
        KeyScope::Admin,
    ];

    /// Returns its name, such as `models:write`.
    pub fn name(self) -> &'static str {
        match self {
            KeyScope::Predict => "predict",
            KeyScope::JobsRead => "jobs:read",
            KeyScope::JobsWrite => "jobs:write",
            KeyScope::ModelsWrite => "models:write",
            KeyScope::MetricsRead => "metrics:read",
            KeyScope::Admin => "admin",
        }
    }

    /// Returns whether a key with this scope has the rights of `wanted`.
    pub fn includes(self, wanted: KeyScope) -> bool {
        self == wanted || self == KeyScope::Admin || (self == KeyScope::JobsWrite && wanted == KeyScope::JobsRead)
    }

    /// Returns all names, for messages.
    pub(crate) fn names() -> String {
        KeyScope::ALL.map(KeyScope::name).join(", ")
    }
}

impl fmt::Display for KeyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KeyScope {
    type Err = ParseScopeError;

    fn from_str(text: &str) -> Result<KeyScope, ParseScopeError> {
        let found = KeyScope::ALL.into_iter().find(|scope| scope.name() == text);
        found.ok_or_else(|| ParseScopeError { got: text.chars().take(80).collect() })
    }
}
