//! Scopes: what a key may do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A kind of thing that a key may do. To change jobs is to see them too, and `admin` may everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
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
#[error("`{got}` is no scope; there are {}", Scope::names())]
pub struct NotAScope {
    got: String,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Scope; 6] =
        [Scope::Predict, Scope::JobsRead, Scope::JobsWrite, Scope::ModelsWrite, Scope::MetricsRead, Scope::Admin];

    /// Its name: `models:write`.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Predict => "predict",
            Scope::JobsRead => "jobs:read",
            Scope::JobsWrite => "jobs:write",
            Scope::ModelsWrite => "models:write",
            Scope::MetricsRead => "metrics:read",
            Scope::Admin => "admin",
        }
    }

    /// Whether who has this scope may do what `wanted` is for.
    pub fn includes(self, wanted: Scope) -> bool {
        self == wanted || self == Scope::Admin || (self == Scope::JobsWrite && wanted == Scope::JobsRead)
    }

    /// All names, for people.
    pub(crate) fn names() -> String {
        Scope::ALL.map(Scope::name).join(", ")
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scope {
    type Err = NotAScope;

    fn from_str(text: &str) -> Result<Scope, NotAScope> {
        let found = Scope::ALL.into_iter().find(|scope| scope.name() == text);
        found.ok_or_else(|| NotAScope { got: text.chars().take(80).collect() })
    }
}
