//! The usage of all jobs by project and owner. The usage of finished jobs is kept as sums, which outlive the jobs.

use crate::records::session::{SqlSession, TransactionResult, params};
use crate::records::{JobRecord, UsageTotal};

/// Adds the usage of a job that has just finished to the totals. Its attempts use nothing more.
pub(super) fn add_finished_job(tx: &dyn SqlSession, job: &JobRecord) -> TransactionResult<()> {
    tx.execute(
        "INSERT INTO spent (project, owner, gpu_seconds, wall_seconds) \
         SELECT ?2, ?3, sum(gpu_seconds), sum(wall_seconds) FROM attempts WHERE job = ?1 GROUP BY job \
         ON CONFLICT (project, owner) DO UPDATE SET gpu_seconds = spent.gpu_seconds + excluded.gpu_seconds, \
         wall_seconds = spent.wall_seconds + excluded.wall_seconds",
        params![job.id, job.project, job.owner.as_deref().unwrap_or("")],
    )?;
    Ok(())
}

/// Returns the usage of finished jobs plus the usage so far of the others.
pub(super) fn list(tx: &dyn SqlSession) -> TransactionResult<Vec<UsageTotal>> {
    tx.query_all(
        "SELECT project, owner, sum(gpu_seconds), sum(wall_seconds) FROM ( \
           SELECT project, coalesce(owner, '') AS owner, gpu_seconds, wall_seconds \
           FROM jobs JOIN attempts ON attempts.job = jobs.id \
           WHERE jobs.state IN ('QUEUED', 'STARTING', 'RUNNING', 'STOPPING') \
           UNION ALL SELECT project, owner, gpu_seconds, wall_seconds FROM spent) AS usages \
         GROUP BY project, owner ORDER BY project, owner",
        params![],
        |row| {
            let owner: String = row.get(1)?;
            let owner = Some(owner).filter(|owner| !owner.is_empty());
            Ok(UsageTotal { project: row.get(0)?, owner, gpu_seconds: row.get(2)?, wall_seconds: row.get(3)? })
        },
    )
}
