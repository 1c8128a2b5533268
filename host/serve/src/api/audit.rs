//! `/api/v1/audit`: the audit log. Requires the scope `admin`.

use axum::Json;
use axum::extract::State;
use saggar_rest::audit::{AuditLineDocument, AuditListDocument};
use saggar_store::records::{AuditFilter, RecordedAuditRow};

use super::query::QueryParameters;
use crate::app::AppState;
use crate::audit::rfc3339;
use crate::error::ApiError;
use crate::limits::AUDIT_PAGE_LINES_MAX;

/// Lines of a page if the client names no number.
const PAGE_LINES: u32 = 100;

/// Handles `GET /api/v1/audit`: a page of the lines that match the filter, newest first.
pub(crate) async fn list(
    State(app): State<AppState>,
    query: QueryParameters,
) -> Result<Json<AuditListDocument>, ApiError> {
    let text = |name: &str| query.get(name).unwrap_or_default().to_owned();
    let filter = AuditFilter {
        actor: text("who"),
        action: text("action"),
        subject: text("subject"),
        result: text("result"),
        server: text("server"),
        since_ms: query.parse("since", "Unix milliseconds")?.unwrap_or(0),
        before: query.parse("before", "the number of a line")?,
        limit: query.parse("limit", "a number of lines")?.unwrap_or(PAGE_LINES).clamp(1, AUDIT_PAGE_LINES_MAX),
    };
    let limit = filter.limit as usize;
    let lines = app.run_blocking(move |parts| parts.audit.list(&filter)).await?;
    let next = lines.last().filter(|_| lines.len() == limit).map(|line| line.sequence);
    Ok(Json(AuditListDocument { lines: lines.into_iter().map(line_document).collect(), next }))
}

fn line_document(RecordedAuditRow { sequence, at_ms, row }: RecordedAuditRow) -> AuditLineDocument {
    AuditLineDocument {
        sequence,
        at: rfc3339(at_ms),
        server: row.server,
        who: row.actor,
        request_id: row.request_id,
        action: row.action,
        subject: row.subject,
        detail: row.detail,
        result: row.result,
        project: row.project,
    }
}
