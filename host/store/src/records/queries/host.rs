//! Transactions on hosts.

use crate::error::RecordError;
use crate::records::host::{HOST_LOST_MS, HOST_REMOVED_MS};
use crate::records::session::{
    FromSqlValue, RecordsEngine, SqlRow, SqlSession, SqlValue, ToSqlValue, TransactionResult, column_error, params,
};
use crate::records::{HostDrain, HostOffer, HostRecord, HostRecords, HostState};

impl ToSqlValue for HostDrain {
    fn to_sql_value(&self) -> SqlValue<'_> {
        SqlValue::Text(match self {
            HostDrain::No => "",
            HostDrain::Requeue => "requeue",
            HostDrain::Finish => "finish",
        })
    }
}

impl FromSqlValue for HostDrain {
    fn from_sql_value(value: SqlValue<'_>) -> Option<HostDrain> {
        match value {
            SqlValue::Text("") => Some(HostDrain::No),
            SqlValue::Text("requeue") => Some(HostDrain::Requeue),
            SqlValue::Text("finish") => Some(HostDrain::Finish),
            SqlValue::Null | SqlValue::Bool(_) | SqlValue::Integer(_) | SqlValue::Real(_) | SqlValue::Text(_) => None,
        }
    }
}

impl<E: RecordsEngine> HostRecords for E {
    fn register_host(&self, id: &str, name: &str, offer: &HostOffer) -> Result<(), RecordError> {
        self.write(|tx| register(tx, id, name, offer))
    }

    fn renew_host(&self, id: &str) -> Result<Option<HostDrain>, RecordError> {
        self.write(|tx| renew(tx, id))
    }

    fn remove_host(&self, id: &str) -> Result<(), RecordError> {
        self.write(|tx| tx.execute("DELETE FROM workers WHERE id = ?1", params![id]).map(drop))
    }

    fn set_host_drain(&self, name: &str, drain: HostDrain) -> Result<Vec<HostRecord>, RecordError> {
        self.write(|tx| set_drain(tx, name, drain))
    }

    fn hosts(&self) -> Result<Vec<HostRecord>, RecordError> {
        self.read(list)
    }
}

fn register(tx: &dyn SqlSession, id: &str, name: &str, offer: &HostOffer) -> TransactionResult<()> {
    let offer = serde_json::to_string(offer).expect("an offer is plain data");
    let now_ms = tx.lease_clock()?.now_ms;
    tx.execute(
        "INSERT INTO workers (id, name, offer, drain, started_ms, seen_ms) VALUES (?1, ?2, ?3, '', ?4, ?4) \
         ON CONFLICT (id) DO UPDATE SET name = ?2, offer = ?3, drain = '', started_ms = ?4, seen_ms = ?4",
        params![id, name, offer, now_ms],
    )?;
    Ok(())
}

fn renew(tx: &dyn SqlSession, id: &str) -> TransactionResult<Option<HostDrain>> {
    let now_ms = tx.lease_clock()?.now_ms;
    let renewed = tx.query_optional(
        "UPDATE workers SET seen_ms = ?2 WHERE id = ?1 RETURNING drain",
        params![id, now_ms],
        |row| row.get(0),
    )?;
    tx.execute("DELETE FROM workers WHERE seen_ms < ?1", params![now_ms.saturating_sub(HOST_REMOVED_MS)])?;
    Ok(renewed)
}

fn set_drain(tx: &dyn SqlSession, name: &str, drain: HostDrain) -> TransactionResult<Vec<HostRecord>> {
    let oldest_ms = tx.lease_clock()?.now_ms.saturating_sub(HOST_LOST_MS);
    tx.execute("UPDATE workers SET drain = ?2 WHERE name = ?1 AND seen_ms >= ?3", params![name, drain, oldest_ms])?;
    Ok(list(tx)?.into_iter().filter(|host| host.name == name && host.state != HostState::Lost).collect())
}

pub(super) fn list(tx: &dyn SqlSession) -> TransactionResult<Vec<HostRecord>> {
    let now_ms = tx.lease_clock()?.now_ms;
    tx.query_all(
        "SELECT id, name, offer, drain, started_ms, seen_ms FROM workers ORDER BY name, id",
        params![],
        |row| host_from_row(row, now_ms),
    )
}

fn host_from_row(row: &dyn SqlRow, now_ms: u64) -> TransactionResult<HostRecord> {
    let (drain, seen_ms): (HostDrain, u64) = (row.get(3)?, row.get(5)?);
    let unseen_ms = now_ms.saturating_sub(seen_ms);
    let state = match drain {
        _ if unseen_ms > HOST_LOST_MS => HostState::Lost,
        HostDrain::No => HostState::Ready,
        HostDrain::Requeue | HostDrain::Finish => HostState::Draining,
    };
    Ok(HostRecord {
        id: row.get(0)?,
        name: row.get(1)?,
        offer: serde_json::from_str(&row.get::<String>(2)?).map_err(|error| column_error(2, error))?,
        drain,
        state,
        started_ms: row.get(4)?,
        seen_ms,
        unseen_ms,
    })
}

/// Returns the condition that a host may take jobs: it is not draining. One that is not registered may, because the records of
/// one server have no hosts.
pub(super) fn takes_jobs_condition(id: &str) -> String {
    format!("NOT EXISTS (SELECT 1 FROM workers WHERE workers.id = {id} AND drain <> '')")
}

/// Returns whether a host may take jobs.
pub(super) fn takes_jobs(tx: &dyn SqlSession, id: &str) -> TransactionResult<bool> {
    let sql = format!("SELECT {}", takes_jobs_condition("?1"));
    tx.query_one(&sql, params![id], |row| row.get(0))
}
