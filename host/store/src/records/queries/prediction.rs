//! Transactions on predictions.

use crate::error::RecordError;
use crate::records::prediction::PREDICTION_LOST_MS;
use crate::records::session::{RecordsEngine, SqlRow, SqlSession, TransactionResult, params};
use crate::records::{NewPrediction, PredictionKey, PredictionRecords, RecordedPrediction};

impl<E: RecordsEngine> PredictionRecords for E {
    fn create_prediction(&self, new: &NewPrediction) -> Result<bool, RecordError> {
        self.write(|tx| create(tx, new))
    }

    fn prediction(&self, key: &PredictionKey) -> Result<Option<RecordedPrediction>, RecordError> {
        self.read(|tx| get(tx, key))
    }

    fn renew_predictions(&self, process: &str) -> Result<Vec<PredictionKey>, RecordError> {
        let sql = "UPDATE predictions SET seen_ms = ?2 WHERE process = ?1 AND NOT is_over RETURNING owner, id";
        let key = |row: &dyn SqlRow| Ok(PredictionKey { owner: row.get(0)?, id: row.get(1)? });
        self.write(|tx| tx.query_all(sql, params![process, tx.lease_clock()?.now_ms], key))
    }

    fn finish_prediction(
        &self,
        key: &PredictionKey,
        process: &str,
        content: &str,
        object: &str,
    ) -> Result<bool, RecordError> {
        let sql = "UPDATE predictions SET content = ?4, object = ?5, is_over = ?6, seen_ms = ?7 \
                   WHERE owner = ?1 AND id = ?2 AND process = ?3 AND NOT is_over";
        self.write(|tx| {
            let now_ms = tx.lease_clock()?.now_ms;
            let values = params![key.owner, key.id, process, content, object, true, now_ms];
            Ok(tx.execute(sql, values)? == 1)
        })
    }

    fn remove_old_predictions(&self, age_ms: u64, count_max: u64) -> Result<Vec<String>, RecordError> {
        self.write(|tx| remove_old(tx, age_ms, count_max))
    }
}

fn create(tx: &dyn SqlSession, new: &NewPrediction) -> TransactionResult<bool> {
    let PredictionKey { owner, id } = &new.key;
    let now_ms = tx.lease_clock()?.now_ms;
    let created = tx.execute(
        "INSERT INTO predictions (owner, id, process, server, digest, content, object, is_over, seen_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, '', ?7, ?8) ON CONFLICT (owner, id) DO NOTHING",
        params![owner, id, new.process, new.server, new.digest, new.content, false, now_ms],
    )?;
    Ok(created == 1)
}

fn get(tx: &dyn SqlSession, key: &PredictionKey) -> TransactionResult<Option<RecordedPrediction>> {
    let clock = tx.lease_clock()?;
    let sql = "SELECT process, server, digest, content, object, is_over, seen_ms FROM predictions \
               WHERE owner = ?1 AND id = ?2";
    tx.query_optional(sql, params![key.owner, key.id], |row| {
        let (is_over, seen_ms): (bool, u64) = (row.get(5)?, row.get(6)?);
        // Before the database's server started, nothing could be renewed.
        let silent_ms = clock.now_ms.saturating_sub(seen_ms.max(clock.started_ms));
        Ok(RecordedPrediction {
            process: row.get(0)?,
            server: row.get(1)?,
            digest: row.get(2)?,
            content: row.get(3)?,
            object: row.get(4)?,
            is_over,
            is_lost: !is_over && silent_ms > PREDICTION_LOST_MS,
        })
    })
}

fn remove_old(tx: &dyn SqlSession, age_ms: u64, count_max: u64) -> TransactionResult<Vec<String>> {
    let oldest_ms = tx.lease_clock()?.now_ms.saturating_sub(age_ms);
    let newest_removed: Option<u64> = tx.query_optional(
        "SELECT seen_ms FROM predictions WHERE is_over ORDER BY seen_ms DESC LIMIT 1 OFFSET ?1",
        params![count_max],
        |row| row.get(0),
    )?;
    // Rows of processes that are gone, and that nobody has read, end here too.
    let objects: Vec<String> = tx.query_all(
        "DELETE FROM predictions WHERE seen_ms < ?1 OR (is_over AND seen_ms <= ?2) RETURNING object",
        params![oldest_ms, newest_removed.unwrap_or(0)],
        |row| row.get(0),
    )?;
    Ok(objects.into_iter().filter(|object| !object.is_empty()).collect())
}
