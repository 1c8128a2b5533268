//! Transactions on events.

use saggar_clock::UnixMillis;

use super::clamp_limit;
use super::row;
use crate::limits::{EVENT_TEXT_BYTES_MAX, EVENTS_LISTED_MAX, EVENTS_OF_KIND_MAX};
use crate::records::JobEvent;
use crate::records::session::{NewEvent, SqlSession, TransactionResult, params};

pub(in crate::records) fn record(
    tx: &dyn SqlSession,
    id: &str,
    kind: &str,
    text: &str,
    now_ms: UnixMillis,
) -> TransactionResult<()> {
    let text = &text[..text.floor_char_boundary(EVENT_TEXT_BYTES_MAX)];
    if tx.defer_event(&NewEvent { job: id, at_ms: now_ms, kind, text }) {
        return Ok(());
    }
    tx.execute("INSERT INTO events (job, at_ms, kind, text) VALUES (?1, ?2, ?3, ?4)", params![id, now_ms, kind, text])?;
    // Beyond the limit, the oldest events of a kind are removed, so that repeated events of one kind do not displace
    // others.
    tx.execute(
        "DELETE FROM events WHERE job = ?1 AND kind = ?2 AND sequence <= (SELECT sequence FROM events INDEXED BY \
         events_by_kind WHERE job = ?1 AND kind = ?2 ORDER BY sequence DESC LIMIT 1 OFFSET ?3)",
        params![id, kind, EVENTS_OF_KIND_MAX],
    )?;
    Ok(())
}

pub(super) fn list(tx: &dyn SqlSession, id: Option<&str>, after: u64, limit: u32) -> TransactionResult<Vec<JobEvent>> {
    let limit = clamp_limit(limit, EVENTS_LISTED_MAX);
    let columns = "SELECT sequence, job, at_ms, kind, text FROM events";
    match id {
        Some(id) => {
            let sql = format!("{columns} WHERE job = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3");
            tx.query_all(&sql, params![id, after, limit], row::event_from_row)
        }
        None => {
            let sql = format!("{columns} WHERE sequence > ?1 ORDER BY sequence LIMIT ?2");
            tx.query_all(&sql, params![after, limit], row::event_from_row)
        }
    }
}

pub(super) fn list_newest(tx: &dyn SqlSession, id: &str, limit: u32) -> TransactionResult<Vec<JobEvent>> {
    let mut events = tx.query_all(
        "SELECT sequence, job, at_ms, kind, text FROM events WHERE job = ?1 ORDER BY sequence DESC LIMIT ?2",
        params![id, clamp_limit(limit, EVENTS_LISTED_MAX)],
        row::event_from_row,
    )?;
    events.reverse();
    Ok(events)
}

pub(super) fn list_of_kinds(tx: &dyn SqlSession, id: &str, kinds: &[&str]) -> TransactionResult<Vec<JobEvent>> {
    // The kinds that are requested are few of many: the index by kind finds their events directly, one kind after the
    // other.
    let statement = "SELECT sequence, job, at_ms, kind, text FROM events INDEXED BY events_by_kind \
         WHERE job = ?1 AND kind = ?2 ORDER BY sequence DESC LIMIT ?3";
    let mut events: Vec<JobEvent> = Vec::new();
    for kind in kinds {
        events.extend(tx.query_all(statement, params![id, kind, EVENTS_LISTED_MAX], row::event_from_row)?);
    }
    events.sort_by_key(|event| event.sequence);
    let over = events.len().saturating_sub(EVENTS_LISTED_MAX as usize);
    events.drain(..over);
    Ok(events)
}

pub(super) fn count(tx: &dyn SqlSession, id: &str, kind: &str) -> TransactionResult<u64> {
    tx.record_deferred_events()?;
    tx.query_one("SELECT count(*) FROM events WHERE job = ?1 AND kind = ?2", params![id, kind], row::count_from_row)
}

pub(super) fn newest_sequence(tx: &dyn SqlSession) -> TransactionResult<u64> {
    tx.query_one("SELECT coalesce(max(sequence), 0) FROM events", params![], row::count_from_row)
}
