//! What listings show of jobs besides their rows: attempts, newest points, annotations. PostgreSQL answers one message of
//! each kind for all jobs; one for each job would make a listing of a hundred jobs wait for the network hundreds of times.

use std::collections::HashMap;

use super::{annotation, row};
use crate::records::session::{SqlDialect, SqlRow, SqlSession, TransactionResult, params};
use crate::records::{AttemptUsage, JobAttempt, JobDetails, StateReason};

/// Returns the details of jobs by identifier. Jobs that do not exist are left out.
pub(super) fn read(tx: &dyn SqlSession, ids: &[String]) -> TransactionResult<HashMap<String, JobDetails>> {
    let found = query_for_jobs(tx, ids, "SELECT id FROM jobs WHERE id", "", |row| row.get::<String>(0))?;
    let mut details: HashMap<String, JobDetails> = found.into_iter().map(|id| (id, JobDetails::default())).collect();
    for (job, attempt) in read_attempts(tx, ids)? {
        details.entry(job).and_modify(|it| it.attempts.push(attempt));
    }
    let latest = "SELECT name, step, value, at_ms, job FROM latest WHERE job";
    for (job, point) in query_for_jobs(tx, ids, latest, "ORDER BY job, name", |it| {
        Ok((it.get::<String>(4)?, row::point_from_row(it)?))
    })? {
        details.entry(job).and_modify(|it| it.latest.push(point));
    }
    let annotations = "SELECT tags, note, job FROM annotations WHERE job";
    for (job, annotations) in query_for_jobs(tx, ids, annotations, "", |it| {
        Ok((it.get::<String>(2)?, annotation::annotations_from_row(it)?))
    })? {
        details.entry(job).and_modify(|it| it.annotations = annotations);
    }
    Ok(details)
}

/// Returns the attempts of a job, in order.
pub(super) fn list_attempts(tx: &dyn SqlSession, id: &str) -> TransactionResult<Vec<JobAttempt>> {
    Ok(read_attempts(tx, &[id.to_owned()])?.into_iter().map(|(_, attempt)| attempt).collect())
}

/// Returns the attempts of jobs with the jobs' identifiers, in order.
fn read_attempts(tx: &dyn SqlSession, ids: &[String]) -> TransactionResult<Vec<(String, JobAttempt)>> {
    let sql = "SELECT number, state, reason_code, reason_sentence, device, started_ms, ended_ms, \
        first_step, last_step, wall_seconds, gpu_seconds, peak_bytes, samples, pool, \
        data_seconds, all_reduce_seconds, checkpoint_seconds, seconds_estimated, server, job \
        FROM attempts WHERE job";
    let mut attempts = query_for_jobs(tx, ids, sql, "ORDER BY job, number", |row| {
        Ok((row.get::<String>(19)?, attempt_from_row(row)?))
    })?;
    let hosts = "SELECT job, attempt, host FROM attempt_hosts WHERE job";
    let mut names: HashMap<(String, u32), Vec<String>> = HashMap::new();
    for (attempt, name) in query_for_jobs(tx, ids, hosts, "ORDER BY job, attempt, part", |row| {
        Ok(((row.get(0)?, row.get(1)?), row.get(2)?))
    })? {
        names.entry(attempt).or_default().push(name);
    }
    if !names.is_empty() {
        for (job, attempt) in &mut attempts {
            attempt.hosts = names.remove(&(job.clone(), attempt.number)).unwrap_or_default();
        }
    }
    Ok(attempts)
}

fn attempt_from_row(row: &dyn SqlRow) -> TransactionResult<JobAttempt> {
    Ok(JobAttempt {
        number: row.get(0)?,
        state: row.get(1)?,
        reason: StateReason { code: row.get(2)?, sentence: row.get(3)? },
        device: row.get(4)?,
        seconds_estimated: row.get(17)?,
        pool: row.get(13)?,
        server: row.get(18)?,
        hosts: Vec::new(),
        started_ms: row.get(5)?,
        ended_ms: row.get(6)?,
        usage: AttemptUsage {
            first_step: row.get(7)?,
            last_step: row.get(8)?,
            wall_seconds: row.get(9)?,
            gpu_seconds: row.get(10)?,
            peak_bytes: row.get(11)?,
            samples: row.get(12)?,
            data_seconds: row.get(14)?,
            all_reduce_seconds: row.get(15)?,
            checkpoint_seconds: row.get(16)?,
        },
    })
}

/// Returns the rows of a query for each of some jobs. The query ends with the column of the job's identifier; `suffix`
/// follows. The rows of a job are in the order of the suffix.
fn query_for_jobs<T>(
    tx: &dyn SqlSession,
    ids: &[String],
    query: &str,
    suffix: &str,
    convert: impl Fn(&dyn SqlRow) -> TransactionResult<T>,
) -> TransactionResult<Vec<T>> {
    match tx.dialect() {
        SqlDialect::Postgres => {
            let sql = format!("{query} = ANY(string_to_array(?1, ',')) {suffix}");
            tx.query_all(&sql, params![ids.join(",")], convert)
        }
        // It is in this process, and has no arrays.
        SqlDialect::Sqlite => {
            let sql = format!("{query} = ?1 {suffix}");
            let mut rows = Vec::new();
            for id in ids {
                rows.extend(tx.query_all(&sql, params![id], &convert)?);
            }
            Ok(rows)
        }
    }
}
