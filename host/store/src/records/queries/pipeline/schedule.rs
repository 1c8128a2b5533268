//! Transactions on schedules of pipelines.

use saggar_clock::UnixMillis;

use super::super::row;
use crate::error::RecordError;
use crate::limits::SCHEDULES_MAX;
use crate::records::session::{RecordLock, SqlRow, SqlSession, TransactionResult, params};
use crate::records::{PipelineSchedule, field_rules};

/// Returns `Invalid` if the schedule's fields are not valid.
pub(super) fn validate(schedule: &PipelineSchedule) -> Result<(), RecordError> {
    field_rules::check_name("schedule", &schedule.name)?;
    field_rules::check_spec_length("plan", &schedule.request)
}

pub(super) fn put(tx: &dyn SqlSession, new: &PipelineSchedule) -> TransactionResult<()> {
    tx.lock(RecordLock::Creation)?;
    let others: u64 = tx.query_one(
        "SELECT count(*) FROM pipeline_schedules WHERE name <> ?1",
        params![new.name],
        row::count_from_row,
    )?;
    if others >= SCHEDULES_MAX {
        let (field, expected) = ("schedule", "is one too many: a server keeps at most 1,000");
        return Err(RecordError::Invalid { field, value: new.name.clone(), expected }.into());
    }
    tx.execute(
        "INSERT INTO pipeline_schedules (name, project, cron, request, owner, rights, created_ms, \
         settled_ms, last_run) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
         ON CONFLICT (name) DO UPDATE SET project = ?2, cron = ?3, request = ?4, owner = ?5, rights = ?6, \
         created_ms = ?7, settled_ms = ?8, last_run = ?9",
        params![
            new.name,
            new.project,
            new.cron,
            new.request,
            new.owner,
            row::rights_text(&new.rights),
            new.created_ms,
            new.settled_ms,
            new.last_run,
        ],
    )?;
    Ok(())
}

pub(super) fn list(tx: &dyn SqlSession) -> TransactionResult<Vec<PipelineSchedule>> {
    tx.query_all(
        "SELECT name, project, cron, request, owner, rights, created_ms, settled_ms, last_run \
         FROM pipeline_schedules ORDER BY name",
        params![],
        schedule_from_row,
    )
}

fn schedule_from_row(row: &dyn SqlRow) -> TransactionResult<PipelineSchedule> {
    let owner: Option<String> = row.get(4)?;
    Ok(PipelineSchedule {
        name: row.get(0)?,
        project: row.get(1)?,
        cron: row.get(2)?,
        request: row.get(3)?,
        rights: row::rights_from_row(row, 5, owner.as_deref())?,
        owner,
        created_ms: row.get(6)?,
        settled_ms: row.get(7)?,
        last_run: row.get(8)?,
    })
}

pub(super) fn remove(tx: &dyn SqlSession, name: &str) -> TransactionResult<bool> {
    Ok(tx.execute("DELETE FROM pipeline_schedules WHERE name = ?1", params![name])? > 0)
}

pub(super) fn advance(
    tx: &dyn SqlSession,
    name: &str,
    due_ms: UnixMillis,
    run: Option<&str>,
) -> TransactionResult<bool> {
    let changed = tx.execute(
        "UPDATE pipeline_schedules SET settled_ms = ?2, last_run = coalesce(?3, last_run) \
         WHERE name = ?1 AND settled_ms < ?2",
        params![name, due_ms, run],
    )?;
    Ok(changed > 0)
}
