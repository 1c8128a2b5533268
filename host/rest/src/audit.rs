//! `/api/v1/audit`: who changed what.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A page of the audit log, newest line first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "AuditLines")]
pub struct AuditListDocument {
    /// The lines.
    pub lines: Vec<AuditLineDocument>,
    /// The value of `before` for the next page; null after the last one.
    pub next: Option<u64>,
}

/// A line of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "AuditLine")]
pub struct AuditLineDocument {
    /// Its number, which increases with every line.
    pub sequence: u64,
    /// The time of the action.
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
    /// The server that was asked; empty without other servers.
    pub server: String,
    /// Who asked: `key:NAME`, `loopback`, `socket`, `anyone`, `cli`, or `no_key`.
    pub who: String,
    /// The identifier of the request; empty outside a request.
    pub request_id: String,
    /// The action, such as `model.promote`.
    pub action: String,
    /// The model, job, key or other thing that it is about.
    pub subject: String,
    /// A text for people.
    pub detail: String,
    /// `ok`, `refused`, or the code of an error.
    pub result: String,
    /// The project of a job or a schedule; empty for other things.
    pub project: String,
}
