//! Transactions on schedules.

use rusqlite::{Row, Transaction, params};
use saggar_clock::UnixMillis;

use super::TransactionResult;
use super::row::{self, to_sql_integer};
use crate::error::RecordError;
use crate::limits::SCHEDULES_MAX;
use crate::records::{JobSchedule, field_rules};

/// Returns `Invalid` if the schedule's fields are not valid.
pub(super) fn validate(schedule: &JobSchedule) -> Result<(), RecordError> {
    field_rules::check_name("schedule", &schedule.name)?;
    field_rules::check_spec_length("spec", &schedule.spec)
}

pub(super) fn put(tx: &Transaction<'_>, new: &JobSchedule) -> TransactionResult<()> {
    let others: u64 =
        tx.query_row("SELECT count(*) FROM schedules WHERE name <> ?1", [&new.name], row::count_from_row)?;
    if others >= SCHEDULES_MAX {
        let (field, expected) = ("schedule", "is one too many: a server keeps at most 1,000");
        return Err(RecordError::Invalid { field, value: new.name.clone(), expected }.into());
    }
    tx.execute(
        "INSERT OR REPLACE INTO schedules (name, cron, spec, owner, created_ms, settled_ms, last_job, rights) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            new.name,
            new.cron,
            new.spec,
            new.owner,
            to_sql_integer(new.created_ms),
            to_sql_integer(new.settled_ms),
            new.last_job,
            row::rights_text(&new.rights),
        ],
    )?;
    Ok(())
}

pub(super) fn list(tx: &Transaction<'_>) -> TransactionResult<Vec<JobSchedule>> {
    let mut statement = tx.prepare_cached(
        "SELECT name, cron, spec, owner, created_ms, settled_ms, last_job, rights FROM schedules ORDER BY name",
    )?;
    let rows = statement.query_map([], schedule_from_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn schedule_from_row(row: &Row<'_>) -> rusqlite::Result<JobSchedule> {
    let time = |at: usize| row.get::<_, i64>(at).map(|time| u64::try_from(time).unwrap_or(0));
    let owner: Option<String> = row.get(3)?;
    Ok(JobSchedule {
        name: row.get(0)?,
        cron: row.get(1)?,
        spec: row.get(2)?,
        rights: row::rights_from_row(row, 7, owner.as_deref())?,
        owner,
        created_ms: time(4)?,
        settled_ms: time(5)?,
        last_job: row.get(6)?,
    })
}

pub(super) fn remove(tx: &Transaction<'_>, name: &str) -> TransactionResult<bool> {
    Ok(tx.execute("DELETE FROM schedules WHERE name = ?1", [name])? > 0)
}

pub(super) fn advance(
    tx: &Transaction<'_>,
    name: &str,
    due_ms: UnixMillis,
    job: Option<&str>,
) -> TransactionResult<bool> {
    let changed = tx.execute(
        "UPDATE schedules SET settled_ms = ?2, last_job = coalesce(?3, last_job) \
         WHERE name = ?1 AND settled_ms < ?2",
        params![name, to_sql_integer(due_ms), job],
    )?;
    Ok(changed > 0)
}
