//! Transactions on schedules.

use saggar_clock::UnixMillis;

use super::row;
use crate::error::RecordError;
use crate::limits::SCHEDULES_MAX;
use crate::records::session::{RecordLock, SqlRow, SqlSession, TransactionResult, params};
use crate::records::{JobSchedule, field_rules};

/// Returns `Invalid` if the schedule's fields are not valid.
pub(super) fn validate(schedule: &JobSchedule) -> Result<(), RecordError> {
    field_rules::check_name("schedule", &schedule.name)?;
    field_rules::check_spec_length("spec", &schedule.spec)
}

pub(super) fn put(tx: &dyn SqlSession, new: &JobSchedule) -> TransactionResult<()> {
    tx.lock(RecordLock::Creation)?;
    let others: u64 =
        tx.query_one("SELECT count(*) FROM schedules WHERE name <> ?1", params![new.name], row::count_from_row)?;
    if others >= SCHEDULES_MAX {
        let (field, expected) = ("schedule", "is one too many: a server keeps at most 1,000");
        return Err(RecordError::Invalid { field, value: new.name.clone(), expected }.into());
    }
    tx.execute(
        "INSERT INTO schedules (name, cron, spec, owner, created_ms, settled_ms, last_job, rights) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) \
         ON CONFLICT (name) DO UPDATE SET cron = ?2, spec = ?3, owner = ?4, created_ms = ?5, settled_ms = ?6, \
         last_job = ?7, rights = ?8",
        params![
            new.name,
            new.cron,
            new.spec,
            new.owner,
            new.created_ms,
            new.settled_ms,
            new.last_job,
            row::rights_text(&new.rights),
        ],
    )?;
    Ok(())
}

pub(super) fn list(tx: &dyn SqlSession) -> TransactionResult<Vec<JobSchedule>> {
    tx.query_all(
        "SELECT name, cron, spec, owner, created_ms, settled_ms, last_job, rights FROM schedules ORDER BY name",
        params![],
        schedule_from_row,
    )
}

fn schedule_from_row(row: &dyn SqlRow) -> TransactionResult<JobSchedule> {
    let owner: Option<String> = row.get(3)?;
    Ok(JobSchedule {
        name: row.get(0)?,
        cron: row.get(1)?,
        spec: row.get(2)?,
        rights: row::rights_from_row(row, 7, owner.as_deref())?,
        owner,
        created_ms: row.get(4)?,
        settled_ms: row.get(5)?,
        last_job: row.get(6)?,
    })
}

pub(super) fn remove(tx: &dyn SqlSession, name: &str) -> TransactionResult<bool> {
    Ok(tx.execute("DELETE FROM schedules WHERE name = ?1", params![name])? > 0)
}

pub(super) fn advance(
    tx: &dyn SqlSession,
    name: &str,
    due_ms: UnixMillis,
    job: Option<&str>,
) -> TransactionResult<bool> {
    let changed = tx.execute(
        "UPDATE schedules SET settled_ms = ?2, last_job = coalesce(?3, last_job) \
         WHERE name = ?1 AND settled_ms < ?2",
        params![name, due_ms, job],
    )?;
    Ok(changed > 0)
}
