//! Transactions on the logs of attempts.

use std::ops::Range;

use super::job;
use crate::error::RecordError;
use crate::records::session::{RecordsEngine, SqlRow, params};
use crate::records::{JobLease, LogChunk, LogRecords};

impl<E: RecordsEngine> LogRecords for E {
    fn append_log(&self, lease: &JobLease, first_byte: u64, text: &str) -> Result<(), RecordError> {
        self.write(|tx| {
            job::check_lease(tx, lease)?;
            let sql = "INSERT INTO log_chunks (job, attempt, first_byte, bytes, content) VALUES (?1, ?2, ?3, ?4, ?5)";
            tx.execute(sql, params![lease.job, lease.attempt, first_byte, text.len() as u64, text]).map(drop)
        })
    }

    fn log_chunks(&self, job: &str, attempt: u32, range: Range<u64>) -> Result<Vec<LogChunk>, RecordError> {
        let sql = "SELECT first_byte, content FROM log_chunks WHERE job = ?1 AND attempt = ?2 \
             AND first_byte < ?4 AND first_byte + bytes > ?3 ORDER BY first_byte";
        let chunk = |row: &dyn SqlRow| Ok(LogChunk { first_byte: row.get(0)?, text: row.get(1)? });
        self.read(|tx| tx.query_all(sql, params![job, attempt, range.start, range.end], chunk))
    }

    fn log_extent(&self, job: &str, attempt: u32) -> Result<Option<Range<u64>>, RecordError> {
        let sql = "SELECT min(first_byte), max(first_byte + bytes) FROM log_chunks WHERE job = ?1 AND attempt = ?2";
        let extent = |row: &dyn SqlRow| Ok((row.get::<Option<u64>>(0)?, row.get::<Option<u64>>(1)?));
        let (first, end) = self.read(|tx| tx.query_one(sql, params![job, attempt], extent))?;
        Ok(first.zip(end).map(|(first, end)| first..end))
    }

    fn attempts_with_chunks(&self, job: &str) -> Result<Vec<u32>, RecordError> {
        let sql = "SELECT DISTINCT attempt FROM log_chunks WHERE job = ?1 ORDER BY attempt";
        self.read(|tx| tx.query_all(sql, params![job], |row| row.get(0)))
    }

    fn remove_log_chunks(&self, job: &str, attempt: u32, end: u64) -> Result<(), RecordError> {
        let sql = "DELETE FROM log_chunks WHERE job = ?1 AND attempt = ?2 AND first_byte < ?3";
        self.write(|tx| tx.execute(sql, params![job, attempt, end]).map(drop))
    }
}
