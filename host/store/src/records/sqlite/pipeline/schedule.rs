//! Transactions on schedules of pipelines.

use rusqlite::{Row, Transaction, params};
use saggar_clock::UnixMillis;

use super::super::TransactionResult;
use super::super::row::{self, to_sql_integer};
use crate::error::RecordError;
use crate::limits::SCHEDULES_MAX;
use crate::records::{PipelineSchedule, field_rules};

/// Returns `Invalid` if the schedule's fields are not valid.
pub(super) fn validate(schedule: &PipelineSchedule) -> Result<(), RecordError> {
    field_rules::check_name("schedule", &schedule.name)?;
    field_rules::check_spec_length("plan", &schedule.request)
}

pub(super) fn put(tx: &Transaction<'_>, new: &PipelineSchedule) -> TransactionResult<()> {
    let others: u64 =
        tx.query_row("SELECT count(*) FROM pipeline_schedules WHERE name <> ?1", [&new.name], row::count_from_row)?;
    if others >= SCHEDULES_MAX {
        let (field, expected) = ("schedule", "is one too many: a server keeps at most 1,000");
        return Err(RecordError::Invalid { field, value: new.name.clone(), expected }.into());
    }
    tx.execute(
        "INSERT OR REPLACE INTO pipeline_schedules (name, project, cron, request, owner, rights, created_ms, \
         settled_ms, last_run) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            new.name,
            new.project,
            new.cron,
            new.request,
            new.owner,
            row::rights_text(&new.rights),
            to_sql_integer(new.created_ms),
            to_sql_integer(new.settled_ms),
            new.last_run,
        ],
    )?;
    Ok(())
}

pub(super) fn list(tx: &Transaction<'_>) -> TransactionResult<Vec<PipelineSchedule>> {
    let mut statement = tx.prepare_cached(
        "SELECT name, project, cron, request, owner, rights, created_ms, settled_ms, last_run \
         FROM pipeline_schedules ORDER BY name",
    )?;
    let rows = statement.query_map([], schedule_from_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn schedule_from_row(row: &Row<'_>) -> rusqlite::Result<PipelineSchedule> {
    let time = |at: usize| row.get::<_, i64>(at).map(|time| u64::try_from(time).unwrap_or(0));
    let owner: Option<String> = row.get(4)?;
    Ok(PipelineSchedule {
        name: row.get(0)?,
        project: row.get(1)?,
        cron: row.get(2)?,
        request: row.get(3)?,
        rights: row::rights_from_row(row, 5, owner.as_deref())?,
        owner,
        created_ms: time(6)?,
        settled_ms: time(7)?,
        last_run: row.get(8)?,
    })
}

pub(super) fn remove(tx: &Transaction<'_>, name: &str) -> TransactionResult<bool> {
    Ok(tx.execute("DELETE FROM pipeline_schedules WHERE name = ?1", [name])? > 0)
}

pub(super) fn advance(
    tx: &Transaction<'_>,
    name: &str,
    due_ms: UnixMillis,
    run: Option<&str>,
) -> TransactionResult<bool> {
    let changed = tx.execute(
        "UPDATE pipeline_schedules SET settled_ms = ?2, last_run = coalesce(?3, last_run) \
         WHERE name = ?1 AND settled_ms < ?2",
        params![name, to_sql_integer(due_ms), run],
    )?;
    Ok(changed > 0)
}
