//! Transactions that read the queue: which jobs wait and run.
//!
//! A placement does not need the whole queue, which can be long and is read while other servers wait. Mostly one of the first
//! jobs can start. Otherwise, the first ones of each group are read: jobs with the same scheduling parameters, project, key
//! and storage (`jobs.scheduling_group`), which differ only in their age.

use std::collections::HashSet;

use super::row::{self, RUNNING_COLUMNS, WAITING_COLUMN_COUNT, WAITING_COLUMNS};
use super::{attempt_host, host, usage_totals};
use crate::digest::Digest;
use crate::error::RecordError;
use crate::limits::{QUEUE_FIRST_JOBS_READ, QUEUE_GROUP_JOBS_READ_MAX, QUEUE_GROUP_JOBS_READ_MIN, QUEUE_JOBS_READ};
use crate::records::session::{SqlDialect, SqlSession, TransactionResult, params};
use crate::records::{
    ActiveJob, NewJob, PlacementQuery, PlacementState, QueueCount, QueueSelection, QueuedJob, RunningCount,
    ServerIdentity,
};

/// The condition of a job that waits.
const WAITS: &str = "state = 'QUEUED' AND NOT paused";
/// The condition of a job that does not wait for its next attempt at the time `?1`.
const IS_DUE: &str = "(not_before_ms <= ?1 OR not_before_ms - backoff_ms > ?1)";
/// The order in which queued jobs start.
const SCHEDULING_ORDER: &str = "priority DESC, preemptible, cursor";
/// The condition of a job that runs.
const RUNS: &str = "jobs.state IN ('STARTING', 'RUNNING', 'STOPPING')";

/// Returns the name of the group of a job.
pub(super) fn scheduling_group(job: &NewJob) -> String {
    let key = (&job.demand, &job.project, &job.owner, &job.storage);
    Digest::of(&serde_json::to_vec(&key).expect("scheduling parameters are plain data")).hex()[..32].to_owned()
}

/// Returns `QueueFull` if `max` jobs are queued. Counting a long queue is slow, so it is counted only if as many jobs were
/// submitted since its oldest one.
pub(super) fn check_length(tx: &dyn SqlSession, max: u64) -> TransactionResult<()> {
    let since_oldest: Option<u64> = tx.query_one(
        "SELECT (SELECT max(cursor) FROM jobs) - \
         (SELECT cursor FROM jobs WHERE state = 'QUEUED' ORDER BY cursor LIMIT 1)",
        params![],
        |row| row.get(0),
    )?;
    if since_oldest.is_none_or(|newer| newer.saturating_add(1) < max) {
        return Ok(());
    }
    let queued: u64 =
        tx.query_one("SELECT count(*) FROM jobs WHERE state = 'QUEUED'", params![], row::count_from_row)?;
    if queued >= max { Err(RecordError::QueueFull { queued, max }.into()) } else { Ok(()) }
}

/// Returns queued jobs that are not paused, in the order in which they start.
pub(super) fn queued_jobs(tx: &dyn SqlSession) -> TransactionResult<Vec<QueuedJob>> {
    let sql = format!("SELECT {WAITING_COLUMNS} FROM jobs WHERE {WAITS} ORDER BY {SCHEDULING_ORDER}");
    tx.query_all(&sql, params![], row::queued_job_from_row)
}

/// Returns the job with this identifier if it is queued and not paused.
fn queued_job(tx: &dyn SqlSession, id: &str) -> TransactionResult<Vec<QueuedJob>> {
    let sql = format!("SELECT {WAITING_COLUMNS} FROM jobs WHERE id = ?1 AND {WAITS}");
    tx.query_all(&sql, params![id], row::queued_job_from_row)
}

/// Returns active jobs, oldest first.
pub(super) fn active_jobs(tx: &dyn SqlSession) -> TransactionResult<Vec<ActiveJob>> {
    running_jobs(tx, None)
}

/// Returns the active jobs of a server, and those with several hosts, or the jobs of all servers, oldest first.
fn running_jobs(tx: &dyn SqlSession, server: Option<&ServerIdentity>) -> TransactionResult<Vec<ActiveJob>> {
    let all = format!("SELECT * FROM jobs WHERE {RUNS}");
    let sql = |found: &str| {
        format!(
            "SELECT {RUNNING_COLUMNS} FROM ({found}) AS jobs \
             JOIN attempts ON attempts.job = jobs.id AND attempts.number = jobs.attempts ORDER BY cursor"
        )
    };
    let mut jobs = match server {
        None => tx.query_all(&sql(&all), params![], row::active_job_from_row)?,
        Some(server) => {
            // Jobs with several hosts can have slots of a server that does not own them. Each half is one range of an index,
            // whatever the statistics of the planner say: a filter over all active jobs could become a scan of them.
            let found = format!("{all} AND server_id = ?1 UNION ALL {all} AND hosts > 1 AND server_id <> ?1");
            tx.query_all(&sql(&found), params![server.id], row::active_job_from_row)?
        }
    };
    attempt_host::add_hosts(tx, &mut jobs)?;
    Ok(jobs)
}

/// Returns the active jobs with one host of all servers but one, counted.
fn running_elsewhere(tx: &dyn SqlSession, server: &ServerIdentity) -> TransactionResult<Vec<RunningCount>> {
    let sql = format!(
        "SELECT queue, project, owner, count(*) FROM jobs WHERE {RUNS} AND server_id <> ?1 AND hosts = 1 \
         GROUP BY queue, project, owner"
    );
    tx.query_all(&sql, params![server.id], |row| {
        Ok(RunningCount { queue: row.get(0)?, project: row.get(1)?, owner: row.get(2)?, jobs: row.get(3)? })
    })
}

/// Returns the numbers of unfinished jobs of each queue and project. The jobs of a group are alike in both, so an index of the
/// groups is enough to count those that wait.
pub(super) fn counts(tx: &dyn SqlSession) -> TransactionResult<Vec<QueueCount>> {
    let sql = format!(
        "SELECT queue, project, CAST(sum(waiting) AS BIGINT), CAST(sum(running) AS BIGINT) FROM ( \
           SELECT queue, project, waiting, 0 AS running FROM ( \
             SELECT min(cursor) AS first, count(*) AS waiting FROM jobs WHERE {WAITS} GROUP BY scheduling_group \
           ) AS groups JOIN jobs ON cursor = first \
           UNION ALL SELECT queue, project, 0, count(*) FROM jobs WHERE {RUNS} GROUP BY queue, project) AS unfinished \
         GROUP BY queue, project ORDER BY queue, project"
    );
    tx.query_all(&sql, params![], |row| {
        Ok(QueueCount { queue: row.get(0)?, project: row.get(1)?, waiting: row.get(2)?, running: row.get(3)? })
    })
}

/// Reads what a placement needs.
pub(super) fn placement_state(tx: &dyn SqlSession, query: &PlacementQuery<'_>) -> TransactionResult<PlacementState> {
    let mut state = waiting_state(tx, query)?;
    let needs_several = state.waiting.iter().any(|job| job.demand.hosts > 1);
    let with_all = query.with_common_pools || needs_several;
    state.running = running_jobs(tx, (!with_all).then_some(query.server))?;
    if needs_several {
        state.hosts = host::list(tx)?;
    }
    if query.with_other_servers && !with_all {
        state.running_elsewhere = running_elsewhere(tx, query.server)?;
    }
    if query.with_usage {
        state.spent = usage_totals::list(tx)?;
    }
    Ok(state)
}

/// Returns the jobs that wait, without anything else.
fn waiting_state(tx: &dyn SqlSession, query: &PlacementQuery<'_>) -> TransactionResult<PlacementState> {
    let mut state = PlacementState::default();
    match query.selection {
        QueueSelection::None => {}
        QueueSelection::Job(id) => state.waiting = queued_job(tx, id)?,
        QueueSelection::First => {
            state.waiting = first_jobs(tx, query.now_ms)?;
            let last = state.waiting.get(QUEUE_FIRST_JOBS_READ - 1);
            state.unread_after.extend(last.map(|job| job.id.clone()));
        }
        QueueSelection::Groups => read_groups(tx, query.now_ms, &mut state)?,
    }
    Ok(state)
}

/// Reads the first jobs of each group.
fn read_groups(tx: &dyn SqlSession, now_ms: u64, state: &mut PlacementState) -> TransactionResult<()> {
    let groups = waiting_groups(tx)?;
    let jobs_max = (QUEUE_JOBS_READ / groups.len().max(1)).clamp(QUEUE_GROUP_JOBS_READ_MIN, QUEUE_GROUP_JOBS_READ_MAX);
    let mut jobs = first_jobs_of_groups(tx, &groups, jobs_max, now_ms)?;
    state.unread_after = last_of_full_groups(&jobs, jobs_max);
    jobs.sort_by_key(|it| (-i64::from(it.job.demand.priority), it.job.demand.preemptible, it.cursor));
    state.waiting = jobs.into_iter().map(|it| it.job).collect();
    Ok(())
}

/// Returns the first jobs that can start now, in scheduling order.
fn first_jobs(tx: &dyn SqlSession, now_ms: u64) -> TransactionResult<Vec<QueuedJob>> {
    // PostgreSQL must not sort a queue that its statistics do not show yet, so a function of the schema reads the index.
    let from = match tx.dialect() {
        SqlDialect::Postgres => format!("first_queued_jobs(?1, {QUEUE_FIRST_JOBS_READ}) AS jobs"),
        SqlDialect::Sqlite => format!("jobs WHERE {WAITS} AND {IS_DUE}"),
    };
    let sql = format!("SELECT {WAITING_COLUMNS} FROM {from} ORDER BY {SCHEDULING_ORDER} LIMIT {QUEUE_FIRST_JOBS_READ}");
    tx.query_all(&sql, params![now_ms], row::queued_job_from_row)
}

/// Returns the groups of which jobs wait. Each is found with one step in the index, however long the queue is.
fn waiting_groups(tx: &dyn SqlSession) -> TransactionResult<Vec<String>> {
    let sql = format!(
        "WITH RECURSIVE groups (name) AS ( \
           SELECT found.scheduling_group FROM ( \
             SELECT scheduling_group FROM jobs WHERE {WAITS} ORDER BY scheduling_group LIMIT 1) AS found \
           UNION ALL SELECT ( \
             SELECT scheduling_group FROM jobs WHERE {WAITS} AND scheduling_group > groups.name \
             ORDER BY scheduling_group LIMIT 1) FROM groups WHERE groups.name IS NOT NULL) \
         SELECT name FROM groups WHERE name IS NOT NULL"
    );
    tx.query_all(&sql, params![], |row| row.get(0))
}

/// A queued job, and where it is in the queue.
struct FirstJob {
    job: QueuedJob,
    cursor: u64,
    group: String,
}

/// Returns the oldest jobs of each group that can start now, at most `jobs_max` of each. The jobs of a group are adjacent.
fn first_jobs_of_groups(
    tx: &dyn SqlSession,
    groups: &[String],
    jobs_max: usize,
    now_ms: u64,
) -> TransactionResult<Vec<FirstJob>> {
    // PostgreSQL answers a message for all groups. SQLite has no lateral joins, and no messages.
    let (from, group) = match tx.dialect() {
        SqlDialect::Postgres => ("unnest(string_to_array(?2, ',')) AS wanted (name) CROSS JOIN LATERAL", "wanted.name"),
        SqlDialect::Sqlite => ("", "?2"),
    };
    let sql = format!(
        "SELECT found.* FROM {from} (SELECT {WAITING_COLUMNS}, cursor, scheduling_group FROM jobs \
           WHERE scheduling_group = {group} AND {WAITS} AND {IS_DUE} \
           ORDER BY cursor LIMIT ?3) AS found"
    );
    let wanted = match tx.dialect() {
        SqlDialect::Postgres => vec![groups.join(",")],
        SqlDialect::Sqlite => groups.to_vec(),
    };
    let mut found = Vec::new();
    for names in wanted.into_iter().filter(|names| !names.is_empty()) {
        found.extend(tx.query_all(&sql, params![now_ms, names, jobs_max as u64], |row| {
            let (cursor, group) = (row.get(WAITING_COLUMN_COUNT)?, row.get(WAITING_COLUMN_COUNT + 1)?);
            Ok(FirstJob { job: row::queued_job_from_row(row)?, cursor, group })
        })?);
    }
    found.sort_by(|one, other| (&one.group, one.cursor).cmp(&(&other.group, other.cursor)));
    Ok(found)
}

/// Returns the last job of each group that has as many jobs as were to be read.
fn last_of_full_groups(jobs: &[FirstJob], jobs_max: usize) -> HashSet<String> {
    let groups = jobs.chunk_by(|one, next| one.group == next.group);
    groups.filter(|group| group.len() >= jobs_max).filter_map(|group| Some(group.last()?.job.id.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::session::RecordsEngine;
    use crate::records::sqlite::SqliteRecords;
    use crate::records::{JobRecords, StateReason};

    #[test]
    fn a_full_queue_is_refused_and_jobs_that_started_do_not_count() {
        let records = SqliteRecords::open_in_memory();
        let check = |max| records.read(|tx| check_length(tx, max));
        check(1).unwrap();
        let spec = "{}".to_owned();
        let job = NewJob { project: "p".to_owned(), task: "t".to_owned(), spec, ..NewJob::default() };
        let ids: Vec<String> = (0..4).map(|at| records.submit(&job, at).unwrap().id).collect();
        check(5).unwrap();
        assert!(matches!(check(4), Err(RecordError::QueueFull { queued: 4, max: 4 })));
        records.request_stop(&ids[2], &StateReason::new("USER", ""), 5).unwrap();
        // Four jobs were submitted since the oldest that waits, and three wait.
        check(4).unwrap();
        assert!(matches!(check(3), Err(RecordError::QueueFull { queued: 3, max: 3 })));
        records.request_stop(&ids[0], &StateReason::new("USER", ""), 5).unwrap();
        records.request_stop(&ids[1], &StateReason::new("USER", ""), 5).unwrap();
        check(2).unwrap();
    }
}
