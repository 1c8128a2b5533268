//! Transactions on the parts of attempts whose ranks are on several hosts.

use super::attempt_host::IS_CURRENT;
use super::job;
use crate::error::RecordError;
use crate::records::session::{RecordsEngine, SqlRow, TransactionResult, column_error, params};
use crate::records::{AttemptHost, AttemptHostRecords, HostPart, JobLease, MeetingPoint};

/// The columns that [`part_from_row`] reads, in its order.
const PART_COLUMNS: &str = "jobs.id, jobs.name, parts.attempt, parts.epoch, parts.part, jobs.hosts, parts.device, jobs.spec, \
     attempts.meeting_point";

/// The tables of [`PART_COLUMNS`].
const PART_TABLES: &str = "jobs JOIN attempt_hosts AS parts ON parts.job = jobs.id \
    JOIN attempts ON attempts.job = jobs.id AND attempts.number = jobs.attempts";

impl<E: RecordsEngine> AttemptHostRecords for E {
    fn set_meeting_point(&self, lease: &JobLease, point: &MeetingPoint) -> Result<(), RecordError> {
        let text = serde_json::to_string(point).expect("a meeting point is plain data");
        self.write(|tx| {
            job::check_lease(tx, lease)?;
            let sql = "UPDATE attempts SET meeting_point = ?3 WHERE job = ?1 AND number = ?2 AND ended_ms IS NULL";
            tx.execute(sql, params![lease.job, lease.attempt, text]).map(drop)
        })
    }

    fn parts_of_host(&self, host_id: &str) -> Result<Vec<HostPart>, RecordError> {
        let sql = format!(
            "SELECT {PART_COLUMNS} FROM {PART_TABLES} WHERE {IS_CURRENT} AND jobs.hosts > 1 AND parts.part > 0 \
             AND parts.host_id = ?1 ORDER BY jobs.cursor"
        );
        self.read(|tx| tx.query_all(&sql, params![host_id], part_from_row))
    }

    fn take_part(
        &self,
        name_or_id: &str,
        batch_job: &str,
        part: u32,
        host: &AttemptHost,
    ) -> Result<Option<HostPart>, RecordError> {
        self.write(|tx| {
            let id = job::get_locked(tx, name_or_id)?.id;
            let sql = format!(
                "SELECT {PART_COLUMNS} FROM {PART_TABLES} WHERE {IS_CURRENT} AND jobs.id = ?1 AND parts.part = ?2 \
                 AND parts.host_id = '' AND parts.host = ?3"
            );
            let Some(found) = tx.query_optional(&sql, params![id, part, batch_job], part_from_row)? else {
                return Ok(None);
            };
            tx.execute(
                "UPDATE attempt_hosts SET host_id = ?4, host = ?5, device = ?6 WHERE job = ?1 AND attempt = ?2 AND part = ?3",
                params![id, found.attempt, part, host.host_id, host.host, host.device],
            )?;
            Ok(Some(HostPart { device: host.device.clone(), ..found }))
        })
    }
}

fn part_from_row(row: &dyn SqlRow) -> TransactionResult<HostPart> {
    let meeting_point = match row.get::<Option<String>>(8)? {
        Some(text) => Some(serde_json::from_str(&text).map_err(|error| column_error(8, error))?),
        None => None,
    };
    Ok(HostPart {
        job: row.get(0)?,
        name: row.get(1)?,
        attempt: row.get(2)?,
        epoch: row.get(3)?,
        part: row.get(4)?,
        hosts: row.get(5)?,
        device: row.get(6)?,
        spec: row.get(7)?,
        meeting_point,
    })
}
