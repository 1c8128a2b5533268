//! A child's reason for refusing its request, as it is encoded in the pipe.

use serde::{Deserialize, Serialize};

use crate::error::PluginError;
use crate::guest_error_code::GuestErrorCode;
use crate::limits::{STACK_BYTES_MAX, TABLE_ELEMENTS_MAX};

/// A [`PluginError`] of a child, or an error of the graph compiler.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ChildRefusal {
    Malformed {
        reason: String,
    },
    Incompatible {
        reason: String,
    },
    MissingImporter,
    Trap {
        during: String,
        reason: String,
    },
    StackOverflow {
        during: String,
    },
    Deadline {
        during: String,
        limit_ms: u64,
    },
    MemoryLimit {
        during: String,
        limit_bytes: u64,
        reason: String,
    },
    TableLimit {
        during: String,
        reason: String,
    },
    HandleLimit {
        during: String,
        limit: usize,
        reason: String,
    },
    Guest {
        during: String,
        code: String,
        message: String,
        place: Option<String>,
    },
    BadOutput {
        name: String,
        expected: String,
        given: String,
    },
    /// A graph error: whether it needs too much memory, and the node at fault.
    Graph {
        out_of_memory: bool,
        message: String,
        place: Option<String>,
    },
    Other {
        reason: String,
    },
}

/// Names of the plugin calls that a child makes.
const KNOWN_CALLS: [&str; 3] = ["import", "start", "host"];

/// Returns the static string in `known` that equals `text`, or `internal`.
fn intern_known(text: &str, known: &[&'static str]) -> &'static str {
    known.iter().find(|known| **known == text).copied().unwrap_or("internal")
}

impl ChildRefusal {
    pub(super) fn other(reason: impl ToString) -> ChildRefusal {
        ChildRefusal::Other { reason: reason.to_string() }
    }
}

impl From<PluginError> for ChildRefusal {
    fn from(error: PluginError) -> ChildRefusal {
        let text = str::to_owned;
        match error {
            PluginError::Malformed { reason } => ChildRefusal::Malformed { reason },
            PluginError::Incompatible { reason } => ChildRefusal::Incompatible { reason },
            PluginError::MissingExport { .. } => ChildRefusal::MissingImporter,
            PluginError::Trap { during, reason } => ChildRefusal::Trap { during: text(during), reason },
            PluginError::StackOverflow { during, .. } => ChildRefusal::StackOverflow { during: text(during) },
            PluginError::Deadline { during, limit_ms } => ChildRefusal::Deadline { during: text(during), limit_ms },
            PluginError::MemoryLimit { during, limit_bytes, reason } => {
                ChildRefusal::MemoryLimit { during: text(during), limit_bytes, reason }
            }
            PluginError::TableLimit { during, reason, .. } => ChildRefusal::TableLimit { during: text(during), reason },
            PluginError::HandleLimit { during, limit, reason } => {
                ChildRefusal::HandleLimit { during: text(during), limit, reason }
            }
            PluginError::Guest { during, code, message, place } => {
                ChildRefusal::Guest { during: text(during), code: text(code.as_str()), message, place }
            }
            PluginError::BadOutput { name, expected, given } => ChildRefusal::BadOutput { name, expected, given },
            other => ChildRefusal::other(other),
        }
    }
}

impl From<ChildRefusal> for PluginError {
    fn from(refusal: ChildRefusal) -> PluginError {
        let call = |during: String| intern_known(&during, &KNOWN_CALLS);
        match refusal {
            ChildRefusal::Malformed { reason } => PluginError::Malformed { reason },
            ChildRefusal::Incompatible { reason } => PluginError::Incompatible { reason },
            ChildRefusal::MissingImporter => {
                PluginError::MissingExport { export: "saggar:plugin/importer", purpose: "import" }
            }
            ChildRefusal::Trap { during, reason } => PluginError::Trap { during: call(during), reason },
            ChildRefusal::StackOverflow { during } => {
                PluginError::StackOverflow { during: call(during), limit_bytes: STACK_BYTES_MAX }
            }
            ChildRefusal::Deadline { during, limit_ms } => PluginError::Deadline { during: call(during), limit_ms },
            ChildRefusal::MemoryLimit { during, limit_bytes, reason } => {
                PluginError::MemoryLimit { during: call(during), limit_bytes, reason }
            }
            ChildRefusal::TableLimit { during, reason } => {
                PluginError::TableLimit { during: call(during), limit: TABLE_ELEMENTS_MAX, reason }
            }
            ChildRefusal::HandleLimit { during, limit, reason } => {
                PluginError::HandleLimit { during: call(during), limit, reason }
            }
            ChildRefusal::Guest { during, code, message, place } => PluginError::Guest {
                during: call(during),
                code: GuestErrorCode::from_name(&code).unwrap_or(GuestErrorCode::Internal),
                message,
                place,
            },
            ChildRefusal::BadOutput { name, expected, given } => PluginError::BadOutput { name, expected, given },
            ChildRefusal::Graph { message: reason, .. } | ChildRefusal::Other { reason } => PluginError::engine(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_errors_round_trip_through_a_compile_child() {
        let text = || "why".to_owned();
        let errors = [
            PluginError::Malformed { reason: text() },
            PluginError::Incompatible { reason: text() },
            PluginError::MissingExport { export: "saggar:plugin/importer", purpose: "import" },
            PluginError::Trap { during: "import", reason: text() },
            PluginError::StackOverflow { during: "start", limit_bytes: STACK_BYTES_MAX },
            PluginError::Deadline { during: "import", limit_ms: 7 },
            PluginError::MemoryLimit { during: "import", limit_bytes: 8, reason: text() },
            PluginError::TableLimit { during: "import", limit: TABLE_ELEMENTS_MAX, reason: text() },
            PluginError::HandleLimit { during: "import", limit: 9, reason: text() },
            PluginError::Guest {
                during: "import",
                code: GuestErrorCode::Unsupported,
                message: text(),
                place: Some(text()),
            },
            PluginError::BadOutput { name: text(), expected: text(), given: text() },
        ];
        for error in errors {
            let sent = serde_json::to_string(&ChildRefusal::from(error.clone())).unwrap();
            let received = PluginError::from(serde_json::from_str::<ChildRefusal>(&sent).unwrap());
            assert_eq!(format!("{received:?}"), format!("{error:?}"));
        }
    }
}
