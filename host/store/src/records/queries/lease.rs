//! Transactions on leases.

use saggar_clock::UnixMillis;

use super::{attempt_host, event, host, job, queue, row};
use crate::error::RecordError;
use crate::limits::LEASES_REAPED_MAX;
use crate::records::lease::{LEASE_MS, ROOM_CLAIM_MS};
use crate::records::session::{
    RecordLock, RecordsEngine, SqlDialect, SqlSession, TransactionError, TransactionResult, params,
};
use crate::records::{
    DecideLostJob, JobLease, JobOrder, JobOrders, JobRecord, JobState, LeaseRecords, LeaseRenewal, LostJobDecision,
    PlaceJobs, PlacedClaim, PlacedPreemption, PlacementQuery, PlacementState, QueueCount, RoomClaim, ServerIdentity,
    StateReason,
};

impl<E: RecordsEngine> LeaseRecords for E {
    fn is_shared(&self) -> bool {
        RecordsEngine::is_shared(self)
    }

    fn placement_state(&self, query: &PlacementQuery<'_>) -> Result<PlacementState, RecordError> {
        self.read(|tx| queue::placement_state(tx, query))
    }

    fn claim_placed(&self, query: &PlacementQuery<'_>, place: PlaceJobs<'_>) -> Result<Vec<PlacedClaim>, RecordError> {
        self.write(|tx| claim_placed(tx, query, place))
    }

    fn queue_counts(&self) -> Result<Vec<QueueCount>, RecordError> {
        self.read(queue::counts)
    }

    fn renew_leases(&self, leases: &[JobLease]) -> Result<Vec<LeaseRenewal>, RecordError> {
        self.write(|tx| renew_all(tx, leases))
    }

    fn reap_expired(&self, decide: DecideLostJob<'_>, now_ms: UnixMillis) -> Result<Vec<JobRecord>, RecordError> {
        // Mostly nothing is over, and a transaction that only reads is cheaper.
        if self.read(|tx| expired(tx, ""))?.is_empty() {
            return Ok(Vec::new());
        }
        self.write(|tx| reap(tx, decide, now_ms))
    }

    fn order(&self, id: &str, order: &JobOrder) -> Result<JobRecord, RecordError> {
        self.write(|tx| record_order(tx, id, order))
    }

    fn record_attempt_event(
        &self,
        lease: &JobLease,
        kind: &str,
        text: &str,
        now_ms: UnixMillis,
    ) -> Result<(), RecordError> {
        self.write(|tx| {
            job::check_lease(tx, lease)?;
            event::record(tx, &lease.job, kind, text, now_ms)
        })
    }

    fn check_lease(&self, lease: &JobLease) -> Result<(), RecordError> {
        self.read(|tx| job::check_owner(job::get(tx, &lease.job)?, lease).map(drop))
    }
}

fn claim_placed(
    tx: &dyn SqlSession,
    query: &PlacementQuery<'_>,
    place: PlaceJobs<'_>,
) -> TransactionResult<Vec<PlacedClaim>> {
    tx.lock(RecordLock::Claim)?;
    let &PlacementQuery { server, now_ms, .. } = query;
    let state = queue::placement_state(tx, query)?;
    let mut claimed = Vec::new();
    let placements = place(&state);
    for placed in placements.start {
        if let Some(claim) = job::claim_queued(tx, &placed.id, &placed.pool, server, now_ms)? {
            attempt_host::record(tx, &claim.lease, &placed.hosts)?;
            claimed.push(PlacedClaim { claim, pool: placed.pool });
        }
    }
    if !placements.preempt.is_empty() && host::takes_jobs(tx, &server.id)? {
        for preemption in placements.preempt {
            order_preemption(tx, server, preemption, now_ms)?;
        }
    }
    for PlacedClaim { claim, pool } in &claimed {
        job::record_claim(tx, claim, pool, now_ms)?;
    }
    Ok(claimed)
}

/// Orders a running job to make room for a queued one, unless it has ended, and records which server does so.
fn order_preemption(
    tx: &dyn SqlSession,
    server: &ServerIdentity,
    preemption: PlacedPreemption,
    now_ms: UnixMillis,
) -> TransactionResult<()> {
    let room = RoomClaim { server_id: server.id.clone(), until_ms: now_ms.saturating_add(ROOM_CLAIM_MS) };
    let orders = row::orders_text(&JobOrders { room: Some(room), ..JobOrders::default() });
    let sql = "UPDATE jobs SET orders = ?2 WHERE id = ?1 AND state = 'QUEUED'";
    tx.execute(sql, params![preemption.waiting, orders])?;
    match record_order(tx, &preemption.id, &JobOrder::Preempt(preemption.reason)) {
        Err(TransactionError::Record(
            RecordError::Finished { .. } | RecordError::Invalid { .. } | RecordError::NoSuchJob { .. },
        )) => Ok(()),
        ordered => ordered.map(drop),
    }
}

fn renew_all(tx: &dyn SqlSession, leases: &[JobLease]) -> TransactionResult<Vec<LeaseRenewal>> {
    // Two transactions that renew the same jobs lock them in the same order.
    let mut order: Vec<usize> = (0..leases.len()).collect();
    order.sort_by(|a, b| leases[*a].job.cmp(&leases[*b].job));
    let mut renewed = vec![LeaseRenewal::Lost; leases.len()];
    for at in order {
        if let Some(renewal) = renew(tx, &leases[at])? {
            renewed[at] = renewal;
        }
    }
    Ok(renewed)
}

fn renew(tx: &dyn SqlSession, lease: &JobLease) -> TransactionResult<Option<LeaseRenewal>> {
    let (lease_end, until) = job::lease_end(tx, "?5")?;
    // The state is compared as an expression, so that no planner prefers an index of all active jobs to the primary key.
    let sql = format!(
        "UPDATE jobs SET lease_until = {lease_end} WHERE id = ?1 AND attempts = ?2 AND epoch = ?3 AND claim = ?4 \
         AND state || '' IN ('STARTING', 'RUNNING', 'STOPPING') RETURNING orders, stop_code, stop_sentence"
    );
    tx.query_optional(&sql, params![lease.job, lease.attempt, lease.epoch, lease.claim, until], |row| {
        let orders = row::orders_from_row(row, 0)?;
        let stop = match row.get::<Option<String>>(1)? {
            Some(code) => Some(StateReason { code, sentence: row.get(2)? }),
            None => None,
        };
        Ok(LeaseRenewal::Renewed { orders, stop })
    })
}

/// Returns the jobs whose lease is over, the one that ended first first. `suffix` follows the query.
fn expired(tx: &dyn SqlSession, suffix: &str) -> TransactionResult<Vec<JobRecord>> {
    let clock = tx.lease_clock()?;
    if clock.now_ms < clock.started_ms.saturating_add(LEASE_MS) {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT {} FROM jobs WHERE state IN ('STARTING', 'RUNNING', 'STOPPING') AND lease_until < ?1 \
         ORDER BY lease_until LIMIT {LEASES_REAPED_MAX} {suffix}",
        row::JOB_COLUMNS
    );
    tx.query_all(&sql, params![clock.now_ms], row::job_from_row)
}

fn reap(tx: &dyn SqlSession, decide: DecideLostJob<'_>, now_ms: UnixMillis) -> TransactionResult<Vec<JobRecord>> {
    // Writes of SQLite are serial. Another server's reaper of PostgreSQL takes the jobs that it has locked.
    let suffix = match tx.dialect() {
        SqlDialect::Sqlite => "",
        SqlDialect::Postgres => "FOR NO KEY UPDATE SKIP LOCKED",
    };
    let mut lost = expired(tx, suffix)?;
    lost.sort_by(|a, b| a.id.cmp(&b.id));
    let mut reaped = Vec::with_capacity(lost.len());
    for job in lost {
        let text = format!("{} did not renew its lease", job::owner_of(&job));
        event::record(tx, &job.id, "LEASE_EXPIRED", &text, now_ms)?;
        // The transaction holds the job's row, so the lease is still the newest.
        let lease = job::lease_of(&job);
        let after = match decide(&job) {
            LostJobDecision::Requeue(reason) => job::requeue(tx, &lease, &reason, 0, now_ms)?,
            LostJobDecision::Fail(reason) => {
                let (state, reason) = match &job.stop {
                    Some(stop) => (JobState::Cancelled, stop),
                    None => (JobState::Failed, &reason),
                };
                job::finish(tx, &lease, state, reason, now_ms)?
            }
        };
        reaped.push(after);
    }
    Ok(reaped)
}

fn record_order(tx: &dyn SqlSession, id: &str, order: &JobOrder) -> TransactionResult<JobRecord> {
    let job = job::get_locked(tx, id)?;
    if job.state.is_final() {
        return Err(RecordError::Finished { job: job.name, state: job.state }.into());
    }
    if !job.state.is_active() {
        let (field, expected) = ("job", "must be running");
        return Err(RecordError::Invalid { field, value: job.name, expected }.into());
    }
    let mut orders: JobOrders = job.orders;
    match order {
        JobOrder::Preempt(reason) => {
            orders.preempt.get_or_insert_with(|| reason.clone());
        }
        JobOrder::Checkpoint => orders.checkpoints += 1,
    }
    tx.execute("UPDATE jobs SET orders = ?2 WHERE id = ?1", params![job.id, row::orders_text(&orders)])?;
    job::get(tx, &job.id)
}
