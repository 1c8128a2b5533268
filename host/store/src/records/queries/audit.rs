//! Transactions on lines of the audit log.

use crate::error::RecordError;
use crate::records::session::{RecordsEngine, SqlRow, SqlSession, TransactionResult, params};
use crate::records::{AUDIT_ROWS_MAX, AuditFilter, AuditRecords, NewAuditRow, RecordedAuditRow};

impl<E: RecordsEngine> AuditRecords for E {
    fn record_audit(&self, rows: &[NewAuditRow]) -> Result<(), RecordError> {
        self.write(|tx| record(tx, rows))
    }

    fn audit_lines(&self, filter: &AuditFilter) -> Result<Vec<RecordedAuditRow>, RecordError> {
        self.read(|tx| list(tx, filter))
    }
}

fn record(tx: &dyn SqlSession, rows: &[NewAuditRow]) -> TransactionResult<()> {
    let now_ms = tx.lease_clock()?.now_ms;
    let mut last = 0;
    for row in rows {
        let NewAuditRow { age_ms, server, actor, request_id, action, subject, detail, result, project } = row;
        let at_ms = now_ms.saturating_sub(*age_ms);
        last = tx.query_one(
            "INSERT INTO audit_lines (at_ms, server, actor, request_id, action, subject, detail, result, project) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) RETURNING sequence",
            params![at_ms, server, actor, request_id, action, subject, detail, result, project],
            |row| row.get::<u64>(0),
        )?;
    }
    let removed_until = last.saturating_sub(AUDIT_ROWS_MAX);
    tx.execute("DELETE FROM audit_lines WHERE sequence <= ?1", params![removed_until]).map(drop)
}

fn list(tx: &dyn SqlSession, filter: &AuditFilter) -> TransactionResult<Vec<RecordedAuditRow>> {
    let AuditFilter { actor, action, subject, result, server, since_ms, before, limit } = filter;
    let (kind, length) = (format!("{action}."), action.chars().count() as u64 + 1);
    tx.query_all(
        "SELECT sequence, at_ms, server, actor, request_id, action, subject, detail, result, project FROM audit_lines \
         WHERE sequence < ?1 AND at_ms >= ?2 AND (?3 = '' OR actor = ?3) \
         AND (?4 = '' OR action = ?4 OR substr(action, 1, ?5) = ?6) AND (?7 = '' OR subject = ?7) \
         AND (?8 = '' OR result = ?8) AND (?9 = '' OR server = ?9) ORDER BY sequence DESC LIMIT ?10",
        params![before.unwrap_or(u64::MAX), since_ms, actor, action, length, kind, subject, result, server, limit],
        row_from_row,
    )
}

fn row_from_row(row: &dyn SqlRow) -> TransactionResult<RecordedAuditRow> {
    Ok(RecordedAuditRow {
        sequence: row.get(0)?,
        at_ms: row.get(1)?,
        row: NewAuditRow {
            age_ms: 0,
            server: row.get(2)?,
            actor: row.get(3)?,
            request_id: row.get(4)?,
            action: row.get(5)?,
            subject: row.get(6)?,
            detail: row.get(7)?,
            result: row.get(8)?,
            project: row.get(9)?,
        },
    })
}
