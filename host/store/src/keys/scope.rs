//! Scopes: what a key may do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A kind of thing that a key may do. To change jobs is to see them too, and `admin` may everything.
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
    /// Everything, keys included.
    #[serde(rename = "admin")]
    Admin,
}

/// Text that names no scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{got}` is no scope; there are {}", KeyScope::names())]
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

    /// Its name: `models:write`.
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

    /// Whether who has this scope may do what `wanted` is for.
    pub fn includes(self, wanted: KeyScope) -> bool {
        self == wanted || self == KeyScope::Admin || (self == KeyScope::JobsWrite && wanted == KeyScope::JobsRead)
    }

    /// All names, for people.
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
