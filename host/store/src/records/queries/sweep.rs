//! Transactions on sweeps and their trials.

use saggar_clock::UnixMillis;

use super::{comma_list, row};
use crate::error::RecordError;
use crate::limits::{SWEEPS_LISTED_MAX, SWEEPS_UNFINISHED_MAX};
use crate::records::session::{RecordLock, RecordsEngine, SqlRow, SqlSession, TransactionResult, column_error, params};
use crate::records::{
    NewSweep, StateReason, SweepDecision, SweepRecord, SweepRecords, SweepState, TrialParent, TrialRecord, field_rules,
    id,
};

/// The columns that [`sweep_from_row`] reads, in its order.
const SWEEP_COLUMNS: &str = "id, name, project, spec, owner, rights, state, reason_code, reason_sentence, decisions, \
    created_ms, finished_ms";

impl<E: RecordsEngine> SweepRecords for E {
    fn create_sweep(&self, sweep: &NewSweep, now_ms: UnixMillis) -> Result<SweepRecord, RecordError> {
        validate(sweep)?;
        self.write(|tx| create(tx, sweep, now_ms))
    }

    fn find_sweep_by_idempotency_key(&self, key: &str) -> Result<Option<SweepRecord>, RecordError> {
        self.read(|tx| find(tx, "idempotency_key = ?1", key))
    }

    fn find_sweep(&self, name_or_id: &str) -> Result<Option<SweepRecord>, RecordError> {
        self.read(|tx| find(tx, "id = ?1 OR name = ?1", name_or_id))
    }

    fn list_sweeps(&self, projects: Option<&[String]>) -> Result<Vec<SweepRecord>, RecordError> {
        let projects = projects.map(comma_list);
        let sql = format!(
            "SELECT {SWEEP_COLUMNS} FROM sweeps WHERE CAST(?1 AS TEXT) IS NULL OR instr(?1, ',' || project || ',') > 0 \
             ORDER BY cursor DESC LIMIT {SWEEPS_LISTED_MAX}"
        );
        self.read(|tx| tx.query_all(&sql, params![projects], sweep_from_row))
    }

    fn unsettled_sweeps(&self) -> Result<Vec<SweepRecord>, RecordError> {
        let sql = format!("SELECT {SWEEP_COLUMNS} FROM sweeps WHERE NOT settled ORDER BY cursor");
        self.read(|tx| tx.query_all(&sql, params![], sweep_from_row))
    }

    fn trials(&self, sweep: &str) -> Result<Vec<TrialRecord>, RecordError> {
        self.read(|tx| {
            tx.query_all(
                "SELECT number, parameters, job, state, rung, rung_values, reason_code, reason_sentence, member, \
                 parent, parent_rung FROM trials WHERE sweep = ?1 ORDER BY number",
                params![sweep],
                trial_from_row,
            )
        })
    }

    fn record_decision(
        &self,
        sweep: &str,
        decisions: u64,
        decision: &SweepDecision,
        now_ms: UnixMillis,
    ) -> Result<bool, RecordError> {
        self.write(|tx| record_decision(tx, sweep, decisions, decision, now_ms))
    }

    fn set_trial_job(&self, sweep: &str, number: u32, job: &str) -> Result<(), RecordError> {
        self.write(|tx| {
            let sql = "UPDATE trials SET job = coalesce(job, ?3) WHERE sweep = ?1 AND number = ?2";
            tx.execute(sql, params![sweep, number, job])?;
            Ok(())
        })
    }

    fn settle_sweep(&self, sweep: &str) -> Result<(), RecordError> {
        self.write(|tx| {
            let sql = "UPDATE sweeps SET settled = TRUE WHERE id = ?1 AND state IN ('SUCCEEDED', 'FAILED')";
            tx.execute(sql, params![sweep])?;
            Ok(())
        })
    }

    fn set_sweep_stopped(&self, sweep: &str, reason: Option<&StateReason>) -> Result<bool, RecordError> {
        let state = if reason.is_some() { SweepState::Stopped } else { SweepState::Running };
        let reason = reason.cloned().unwrap_or_default();
        self.write(|tx| {
            let sql = "UPDATE sweeps SET state = ?2, reason_code = ?3, reason_sentence = ?4, decisions = decisions + 1 \
                       WHERE id = ?1 AND state IN ('RUNNING', 'STOPPED')";
            Ok(tx.execute(sql, params![sweep, state, reason.code, reason.sentence])? > 0)
        })
    }
}

/// Returns `Invalid` if the sweep's fields are not valid.
fn validate(sweep: &NewSweep) -> Result<(), RecordError> {
    field_rules::check_name("project", &sweep.project)?;
    field_rules::check_spec_length("spec", &sweep.spec)?;
    field_rules::check_idempotency_key(sweep.idempotency_key.as_deref())
}

fn create(tx: &dyn SqlSession, new: &NewSweep, now_ms: UnixMillis) -> TransactionResult<SweepRecord> {
    tx.lock(RecordLock::Creation)?;
    if let Some(key) = &new.idempotency_key
        && let Some(sweep) = find(tx, "idempotency_key = ?1", key)?
    {
        return Ok(sweep);
    }
    let count = "SELECT count(*) FROM sweeps WHERE state IN ('RUNNING', 'STOPPED')";
    let unfinished: u64 = tx.query_one(count, params![], row::count_from_row)?;
    if unfinished >= SWEEPS_UNFINISHED_MAX {
        let (field, expected) = ("sweep", "is one too many: at most 100 sweeps can be unfinished");
        return Err(RecordError::Invalid { field, value: new.project.clone(), expected }.into());
    }
    let newest = "SELECT coalesce(max(number), 0) + 1 FROM sweeps WHERE project = ?1";
    let number: i64 = tx.query_one(newest, params![new.project], |row| row.get(0))?;
    let id = id::new(now_ms);
    tx.execute(
        "INSERT INTO sweeps (id, name, project, number, spec, owner, rights, idempotency_key, state, created_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            id,
            format!("{}-sweep-{number}", new.project),
            new.project,
            number,
            new.spec,
            new.owner,
            row::rights_text(&new.rights),
            new.idempotency_key,
            SweepState::Running,
            now_ms,
        ],
    )?;
    let created = find(tx, "id = ?1", &id)?;
    created.ok_or_else(|| column_error(0, "the sweep is missing"))
}

fn find(tx: &dyn SqlSession, condition: &str, value: &str) -> TransactionResult<Option<SweepRecord>> {
    let sql = format!("SELECT {SWEEP_COLUMNS} FROM sweeps WHERE {condition}");
    tx.query_optional(&sql, params![value], sweep_from_row)
}

fn record_decision(
    tx: &dyn SqlSession,
    sweep: &str,
    decisions: u64,
    decision: &SweepDecision,
    now_ms: UnixMillis,
) -> TransactionResult<bool> {
    let sql = "UPDATE sweeps SET decisions = decisions + 1 \
               WHERE id = ?1 AND decisions = ?2 AND state IN ('RUNNING', 'STOPPED')";
    if tx.execute(sql, params![sweep, decisions])? == 0 {
        return Ok(false);
    }
    for trial in &decision.trials {
        // The job of an existing trial is recorded separately, and its parent does not change.
        tx.execute(
            "INSERT INTO trials (sweep, number, parameters, job, state, rung, rung_values, reason_code, \
             reason_sentence, member, parent, parent_rung) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) \
             ON CONFLICT (sweep, number) DO UPDATE SET state = ?5, rung = ?6, rung_values = ?7, reason_code = ?8, \
             reason_sentence = ?9",
            params![
                sweep,
                trial.number,
                trial.parameters,
                trial.job,
                trial.state,
                trial.rung,
                trial.rung_values_text(),
                trial.reason.code,
                trial.reason.sentence,
                trial.parent.as_ref().map(|parent| parent.member),
                trial.parent.as_ref().map(|parent| parent.trial),
                trial.parent.as_ref().map(|parent| parent.rung),
            ],
        )?;
    }
    if let Some((state, reason)) = &decision.end {
        let finished = state.is_final().then_some(now_ms);
        tx.execute(
            "UPDATE sweeps SET state = ?2, reason_code = ?3, reason_sentence = ?4, finished_ms = ?5 WHERE id = ?1",
            params![sweep, state, reason.code, reason.sentence, finished],
        )?;
    }
    Ok(true)
}

fn sweep_from_row(row: &dyn SqlRow) -> TransactionResult<SweepRecord> {
    let owner: Option<String> = row.get(4)?;
    Ok(SweepRecord {
        id: row.get(0)?,
        name: row.get(1)?,
        project: row.get(2)?,
        spec: row.get(3)?,
        rights: row::rights_from_row(row, 5, owner.as_deref())?,
        owner,
        state: row.get(6)?,
        reason: StateReason { code: row.get(7)?, sentence: row.get(8)? },
        decisions: row.get(9)?,
        created_ms: row.get(10)?,
        finished_ms: row.get(11)?,
    })
}

fn trial_from_row(row: &dyn SqlRow) -> TransactionResult<TrialRecord> {
    let values: String = row.get(5)?;
    let wrong = || column_error(5, "expected numbers");
    let parent = match (row.get(8)?, row.get(9)?, row.get(10)?) {
        (Some(member), Some(trial), Some(rung)) => Some(TrialParent { member, trial, rung }),
        _ => None,
    };
    Ok(TrialRecord {
        number: row.get(0)?,
        parameters: row.get(1)?,
        job: row.get(2)?,
        state: row.get(3)?,
        rung: row.get(4)?,
        rung_values: TrialRecord::parse_rung_values(&values).ok_or_else(wrong)?,
        reason: StateReason { code: row.get(6)?, sentence: row.get(7)? },
        parent,
    })
}
