//! Transactions on events.

use rusqlite::{Transaction, params};
use saggar_clock::UnixMillis;

use super::row::{self, to_sql_integer};
use super::{TransactionResult, clamp_limit};
use crate::limits::{EVENT_TEXT_BYTES_MAX, EVENTS_LISTED_MAX, EVENTS_OF_KIND_MAX};
use crate::records::JobEvent;

pub(super) fn record(
    tx: &Transaction<'_>,
    id: &str,
    kind: &str,
    text: &str,
    now_ms: UnixMillis,
) -> TransactionResult<()> {
    let text = &text[..text.floor_char_boundary(EVENT_TEXT_BYTES_MAX)];
    let mut insert = tx.prepare_cached("INSERT INTO events (job, at_ms, kind, text) VALUES (?1, ?2, ?3, ?4)")?;
    insert.execute(params![id, to_sql_integer(now_ms), kind, text])?;
    // Beyond the limit, the oldest events of a kind are removed, so that repeated events of one kind do not displace
    // others.
    let mut remove = tx.prepare_cached(
        "DELETE FROM events WHERE job = ?1 AND kind = ?2 AND sequence <= (SELECT sequence FROM events INDEXED BY \
         events_by_kind WHERE job = ?1 AND kind = ?2 ORDER BY sequence DESC LIMIT 1 OFFSET ?3)",
    )?;
    remove.execute(params![id, kind, EVENTS_OF_KIND_MAX])?;
    Ok(())
}

pub(super) fn list(tx: &Transaction<'_>, id: Option<&str>, after: u64, limit: u32) -> TransactionResult<Vec<JobEvent>> {
    let limit = clamp_limit(limit, EVENTS_LISTED_MAX);
    let columns = "SELECT sequence, job, at_ms, kind, text FROM events";
    let rows = match id {
        Some(id) => {
            let sql = format!("{columns} WHERE job = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3");
            let mut statement = tx.prepare_cached(&sql)?;
            let rows = statement.query_map(params![id, to_sql_integer(after), limit], row::event_from_row)?;
            rows.collect::<Result<_, _>>()?
        }
        None => {
            let sql = format!("{columns} WHERE sequence > ?1 ORDER BY sequence LIMIT ?2");
            let mut statement = tx.prepare_cached(&sql)?;
            let rows = statement.query_map(params![to_sql_integer(after), limit], row::event_from_row)?;
            rows.collect::<Result<_, _>>()?
        }
    };
    Ok(rows)
}

pub(super) fn list_newest(tx: &Transaction<'_>, id: &str, limit: u32) -> TransactionResult<Vec<JobEvent>> {
    let mut statement = tx.prepare_cached(
        "SELECT sequence, job, at_ms, kind, text FROM events WHERE job = ?1 ORDER BY sequence DESC LIMIT ?2",
    )?;
    let rows = statement.query_map(params![id, clamp_limit(limit, EVENTS_LISTED_MAX)], row::event_from_row)?;
    let mut events: Vec<JobEvent> = rows.collect::<Result<_, _>>()?;
    events.reverse();
    Ok(events)
}

pub(super) fn list_of_kinds(tx: &Transaction<'_>, id: &str, kinds: &[&str]) -> TransactionResult<Vec<JobEvent>> {
    // The kinds that are requested are few of many: the index by kind finds their events directly, one kind after the
    // other.
    let mut statement = tx.prepare_cached(
        "SELECT sequence, job, at_ms, kind, text FROM events INDEXED BY events_by_kind \
         WHERE job = ?1 AND kind = ?2 ORDER BY sequence DESC LIMIT ?3",
    )?;
    let mut events: Vec<JobEvent> = Vec::new();
    for kind in kinds {
        let rows = statement.query_map(params![id, kind, EVENTS_LISTED_MAX], row::event_from_row)?;
        events.extend(rows.collect::<Result<Vec<JobEvent>, _>>()?);
    }
    events.sort_by_key(|event| event.sequence);
    let over = events.len().saturating_sub(EVENTS_LISTED_MAX as usize);
    events.drain(..over);
    Ok(events)
}

pub(super) fn count(tx: &Transaction<'_>, id: &str, kind: &str) -> TransactionResult<u64> {
    let mut statement = tx.prepare_cached("SELECT count(*) FROM events WHERE job = ?1 AND kind = ?2")?;
    Ok(statement.query_row([id, kind], row::count_from_row)?)
}

pub(super) fn newest_sequence(tx: &Transaction<'_>) -> TransactionResult<u64> {
    let mut statement = tx.prepare_cached("SELECT coalesce(max(sequence), 0) FROM events")?;
    Ok(statement.query_row([], row::count_from_row)?)
}
