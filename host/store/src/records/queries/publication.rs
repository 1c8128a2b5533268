//! Transactions on publications of model versions.

use super::job;
use crate::error::RecordError;
use crate::records::session::{RecordsEngine, SqlSession, TransactionResult, params};
use crate::records::{JobLease, PendingPublication, PublicationRecords};

impl<E: RecordsEngine> PublicationRecords for E {
    fn register_publication(&self, lease: &JobLease, publication: &PendingPublication) -> Result<(), RecordError> {
        self.write(|tx| register(tx, lease, publication))
    }

    fn renew_for_write(&self, lease: &JobLease) -> Result<(), RecordError> {
        self.write(|tx| check_and_renew(tx, lease))
    }

    fn confirm_publication(&self, model: &str, version: u64) -> Result<(), RecordError> {
        let sql = "DELETE FROM publications WHERE model = ?1 AND version = ?2";
        self.write(|tx| tx.execute(sql, params![model, version]).map(drop))
    }

    fn unfinished_publications(&self) -> Result<Vec<PendingPublication>, RecordError> {
        let sql = "SELECT id, model, version FROM publications WHERE NOT EXISTS \
                   (SELECT 1 FROM jobs WHERE jobs.id = publications.job AND jobs.epoch = publications.epoch \
                    AND jobs.state IN ('STARTING', 'RUNNING', 'STOPPING')) ORDER BY id";
        self.read(|tx| {
            tx.query_all(sql, params![], |row| {
                Ok(PendingPublication { id: row.get(0)?, model: row.get(1)?, version: row.get(2)? })
            })
        })
    }

    fn renumber_publication(&self, publication: &PendingPublication, version: u64) -> Result<bool, RecordError> {
        let sql = "UPDATE publications SET version = ?3 WHERE id = ?1 AND version = ?2";
        self.write(|tx| Ok(tx.execute(sql, params![publication.id, publication.version, version])? == 1))
    }
}

fn register(tx: &dyn SqlSession, lease: &JobLease, publication: &PendingPublication) -> TransactionResult<()> {
    check_and_renew(tx, lease)?;
    let PendingPublication { id, model, version } = publication;
    tx.execute(
        "INSERT INTO publications (id, model, version, job, epoch) VALUES (?1, ?2, ?3, ?4, ?5) \
         ON CONFLICT (id) DO UPDATE SET version = ?3",
        params![id, model, version, lease.job, lease.epoch],
    )
    .map(drop)
}

/// Renews a lease that is valid. The job stays locked until the transaction ends, so nobody takes it away meanwhile.
fn check_and_renew(tx: &dyn SqlSession, lease: &JobLease) -> TransactionResult<()> {
    job::check_lease(tx, lease)?;
    let (lease_end, until) = job::lease_end(tx, "?2")?;
    let sql = format!("UPDATE jobs SET lease_until = {lease_end} WHERE id = ?1");
    tx.execute(&sql, params![lease.job, until]).map(drop)
}
