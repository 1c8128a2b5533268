//! Lines of the audit log of all servers of shared records.

use std::fmt::Debug;

use saggar_clock::UnixMillis;

use crate::error::RecordError;

/// Lines that are kept. The oldest ones beyond that are removed.
pub const AUDIT_ROWS_MAX: u64 = 200_000;

/// A line that is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewAuditRow {
    /// Milliseconds since the action.
    pub age_ms: u64,
    /// The name of the server.
    pub server: String,
    /// Who did it: `key:NAME`, `loopback` and others.
    pub actor: String,
    /// The identifier of the request, or empty.
    pub request_id: String,
    /// The name of the action, such as `model.promote`.
    pub action: String,
    /// The model, job, key or other thing.
    pub subject: String,
    /// A text for people.
    pub detail: String,
    /// `ok`, `refused` or the code of an error.
    pub result: String,
    /// The project, or empty.
    pub project: String,
}

/// A line as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedAuditRow {
    /// Its number, which increases with every line: the cursor of [`AuditFilter::before`].
    pub sequence: u64,
    /// The time of the action, by the clock of leases.
    pub at_ms: UnixMillis,
    /// The line. Its age is 0.
    pub row: NewAuditRow,
}

/// A filter for listing lines, newest first. Empty texts match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only lines of this actor.
    pub actor: String,
    /// Only lines whose action has this name, or begins with this name and a dot.
    pub action: String,
    /// Only lines about this subject.
    pub subject: String,
    /// Only lines with this result.
    pub result: String,
    /// Only lines of this server.
    pub server: String,
    /// Only lines from this time on.
    pub since_ms: UnixMillis,
    /// Only lines with a lower number.
    pub before: Option<u64>,
    /// The maximum number of lines.
    pub limit: u32,
}

impl AuditFilter {
    /// Returns whether a line of this time is listed, whatever its number is.
    pub fn matches(&self, at_ms: UnixMillis, row: &NewAuditRow) -> bool {
        let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        let is_kind = row.action.strip_prefix(&self.action).is_some_and(|rest| rest.starts_with('.'));
        at_ms >= self.since_ms
            && is(&self.actor, &row.actor)
            && (is(&self.action, &row.action) || is_kind)
            && is(&self.subject, &row.subject)
            && is(&self.result, &row.result)
            && is(&self.server, &row.server)
    }
}

/// The records of the audit log. Each method is one transaction.
pub trait AuditRecords: Debug + Send + Sync {
    /// Records lines in this order, and removes the oldest ones beyond [`AUDIT_ROWS_MAX`].
    ///
    /// # Errors
    /// Returns `Database`; no line is recorded then.
    fn record_audit(&self, rows: &[NewAuditRow]) -> Result<(), RecordError>;

    /// Returns lines, newest first.
    ///
    /// # Errors
    /// Returns `Database`.
    fn audit_lines(&self, filter: &AuditFilter) -> Result<Vec<RecordedAuditRow>, RecordError>;
}
