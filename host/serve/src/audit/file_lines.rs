//! Reads the lines of the audit log's files.

use std::io;
use std::path::Path;

use saggar_clock::UnixMillis;
use saggar_store::records::{AuditFilter, NewAuditRow, RecordedAuditRow};
use saggar_store::regular_file;
use serde_json::{Map, Value};

use super::{numbered_path, rfc3339};
use crate::limits::{AUDIT_BYTES_MAX, AUDIT_FILES_MAX};

/// Lines of one millisecond that have separate numbers.
const LINES_PER_MS: u64 = 4096;

/// Returns lines of the files, newest first. Their numbers follow from their times, so they stay when a file is renamed.
///
/// # Errors
/// Returns an I/O error if a file cannot be read.
pub(super) fn read_lines(path: &Path, filter: &AuditFilter) -> io::Result<Vec<RecordedAuditRow>> {
    let mut found = Vec::new();
    let files = std::iter::once(path.to_owned()).chain((1..=AUDIT_FILES_MAX).map(|at| numbered_path(path, at)));
    for file in files {
        let text = match regular_file::read(&file, 2 * AUDIT_BYTES_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let lines = number_lines(&String::from_utf8_lossy(&text));
        let is_listed = |line: &RecordedAuditRow| {
            filter.before.is_none_or(|before| line.sequence < before) && filter.matches(line.at_ms, &line.row)
        };
        found.extend(lines.into_iter().rev().filter(is_listed));
        if found.len() >= filter.limit as usize {
            break;
        }
    }
    found.truncate(filter.limit as usize);
    Ok(found)
}

fn number_lines(text: &str) -> Vec<RecordedAuditRow> {
    let mut lines: Vec<RecordedAuditRow> = Vec::new();
    for (at_ms, row) in text.lines().filter_map(parse_line) {
        let first = at_ms.saturating_mul(LINES_PER_MS);
        let sequence = lines.last().map_or(first, |last| first.max(last.sequence + 1));
        lines.push(RecordedAuditRow { sequence, at_ms, row });
    }
    lines
}

/// Parses a line, or returns `None` for one that was cut off.
fn parse_line(line: &str) -> Option<(UnixMillis, NewAuditRow)> {
    let members: Map<String, Value> = serde_json::from_str(line).ok()?;
    let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let at: jiff::Timestamp = text("at").parse().ok()?;
    let at_ms = u64::try_from(at.as_millisecond()).ok()?;
    let action = text("action");
    // The subject is a member that is named after the kind of the action.
    let subject = text(action.split('.').next().unwrap_or_default());
    let row = NewAuditRow {
        age_ms: 0,
        server: String::new(),
        actor: text("who"),
        request_id: text("request_id"),
        action,
        subject,
        detail: text("detail"),
        result: text("result"),
        project: text("project"),
    };
    debug_assert_eq!(rfc3339(at_ms), text("at"));
    Some((at_ms, row))
}
