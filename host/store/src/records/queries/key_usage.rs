//! Transactions on the usage of keys.

use crate::error::RecordError;
use crate::records::session::{RecordsEngine, SqlSession, TransactionResult, params};
use crate::records::{KeyRequests, KeyUsageRecords};

/// Milliseconds after the start of a period for which its sums are kept: more than two months.
const KEPT_MS: u64 = 70 * 24 * 3600 * 1000;

impl<E: RecordsEngine> KeyUsageRecords for E {
    fn add_key_requests(&self, added: &[KeyRequests]) -> Result<Vec<KeyRequests>, RecordError> {
        // Two transactions that change the same rows lock them in the same order.
        let mut sorted = added.to_vec();
        sorted.sort();
        self.write(|tx| add(tx, &sorted))
    }
}

fn add(tx: &dyn SqlSession, added: &[KeyRequests]) -> TransactionResult<Vec<KeyRequests>> {
    let mut sums = Vec::with_capacity(added.len());
    for KeyRequests { key_id, since_ms, requests } in added {
        let requests = tx.query_one(
            "INSERT INTO key_usage (key_id, since_ms, requests) VALUES (?1, ?2, ?3) ON CONFLICT (key_id, since_ms) \
             DO UPDATE SET requests = key_usage.requests + ?3 RETURNING requests",
            params![key_id, since_ms, requests],
            |row| row.get(0),
        )?;
        sums.push(KeyRequests { key_id: key_id.clone(), since_ms: *since_ms, requests });
    }
    if let Some(newest) = added.iter().map(|it| it.since_ms).max() {
        tx.execute("DELETE FROM key_usage WHERE since_ms < ?1", params![newest.saturating_sub(KEPT_MS)])?;
    }
    Ok(sums)
}
