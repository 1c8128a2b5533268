//! The hosts of attempts whose ranks are on several hosts: written by a claim, read with jobs and attempts.

use std::collections::HashMap;

use crate::records::session::{SqlRow, SqlSession, TransactionResult, params};
use crate::records::{ActiveJob, AttemptHost, JobLease};

/// The condition of a part of an attempt that runs: neither another attempt nor another owner has followed.
pub(super) const IS_CURRENT: &str = "jobs.state IN ('STARTING', 'RUNNING', 'STOPPING') AND parts.attempt = jobs.attempts \
    AND parts.epoch = jobs.epoch";

/// Records the hosts of an attempt that was claimed in this transaction, which holds the claim lock.
pub(super) fn record(tx: &dyn SqlSession, lease: &JobLease, hosts: &[AttemptHost]) -> TransactionResult<()> {
    for (part, host) in (0_u32..).zip(hosts) {
        tx.execute(
            "INSERT INTO attempt_hosts (job, attempt, part, epoch, host_id, host, pool, device) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![lease.job, lease.attempt, part, lease.epoch, host.host_id, host.host, host.pool, host.device],
        )?;
    }
    Ok(())
}

/// Adds their hosts to active jobs that have several.
pub(super) fn add_hosts(tx: &dyn SqlSession, jobs: &mut [ActiveJob]) -> TransactionResult<()> {
    if jobs.iter().all(|job| job.demand.hosts <= 1) {
        return Ok(());
    }
    let sql = format!(
        "SELECT parts.host_id, parts.host, parts.pool, parts.device, jobs.id FROM jobs \
         JOIN attempt_hosts AS parts ON parts.job = jobs.id WHERE {IS_CURRENT} AND jobs.hosts > 1 \
         ORDER BY jobs.id, parts.part"
    );
    let mut hosts: HashMap<String, Vec<AttemptHost>> = HashMap::new();
    for (job, host) in tx.query_all(&sql, params![], |row| Ok((row.get::<String>(4)?, host_from_row(row)?)))? {
        hosts.entry(job).or_default().push(host);
    }
    for job in jobs {
        job.hosts = hosts.remove(&job.id).unwrap_or_default();
    }
    Ok(())
}

fn host_from_row(row: &dyn SqlRow) -> TransactionResult<AttemptHost> {
    Ok(AttemptHost { host_id: row.get(0)?, host: row.get(1)?, pool: row.get(2)?, device: row.get(3)? })
}
