//! Renews the leases of the attempts that run here, and takes jobs away from servers that are gone. Only for records that
//! several servers use.

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_store::records::{
    JobRecord, JobRecords, LEASE_RENEWAL_INTERVAL, LeaseRenewal, LostJobDecision, ReaperGate, StateReason,
};
use saggar_telemetry::RepeatedFailure;

use crate::error::JobError;
use crate::held_leases::HeldLease;
use crate::reclaim::is_retried_after_host;
use crate::shared::SharedState;
use crate::spec::HOST_LOST;

/// Time between two looks for leases that are over.
const REAP_INTERVAL: Duration = Duration::from_secs(2);

/// Renews leases until the task is aborted.
pub(crate) async fn renew_leases(shared: Arc<SharedState>) {
    let failure = RepeatedFailure::new("the leases of running jobs cannot be renewed");
    loop {
        let held = shared.leases.list();
        if !held.is_empty() {
            failure.log(renew(&shared, held).await);
        }
        tokio::select! {
            () = tokio::time::sleep(LEASE_RENEWAL_INTERVAL) => {}
            () = shared.leases.renew_now.notified() => {}
        }
    }
}

async fn renew(shared: &Arc<SharedState>, held: Vec<HeldLease>) -> Result<(), JobError> {
    let leases: Vec<_> = held.iter().map(|held| held.lease.clone()).collect();
    let renewals = shared.with_records(move |records| records.renew_leases(&leases)).await?;
    for (held, renewal) in held.iter().zip(renewals) {
        let id = &held.lease.job;
        match renewal {
            LeaseRenewal::Renewed { orders, stop } => {
                shared.apply_orders(id, &orders, stop.is_some());
                shared.update_control(id, |control| control.renewed_heartbeat = held.heartbeat);
            }
            LeaseRenewal::Lost => {
                shared.update_control(id, |control| control.is_lease_lost = true);
            }
        }
    }
    Ok(())
}

/// Takes away jobs whose lease is over until the task is aborted.
pub(crate) async fn reap_jobs(shared: Arc<SharedState>) {
    let began = Instant::now();
    let mut gate = ReaperGate::new(Duration::ZERO);
    let failure = RepeatedFailure::new("jobs of servers that are gone cannot be looked for");
    loop {
        tokio::time::sleep(REAP_INTERVAL).await;
        let sent = began.elapsed();
        let is_open = gate.is_open(sent);
        match reap(&shared, is_open).await {
            Ok(reaped) => {
                gate.record_answer(sent, began.elapsed());
                failure.log(Ok::<_, JobError>(()));
                if !reaped.is_empty() {
                    shared.wake_scheduler();
                    shared.notify_change();
                }
                for job in reaped {
                    tracing::warn!(job = job.name, server = job.server, state = %job.state, "a server is gone; its job was taken away from it");
                }
            }
            Err(error) => failure.log(Err(error)),
        }
    }
}

/// Takes jobs away if the gate is open; otherwise only asks whether the database answers.
async fn reap(shared: &Arc<SharedState>, is_open: bool) -> Result<Vec<JobRecord>, JobError> {
    let now_ms = shared.clock.now_ms();
    let reap = move |records: &dyn JobRecords| {
        if is_open {
            return records.reap_expired(&decide_lost_job, now_ms);
        }
        records.newest_event_sequence().map(|_| Vec::new())
    };
    shared.with_records(reap).await
}

/// Returns whether a job whose server is gone is queued again.
fn decide_lost_job(job: &JobRecord) -> LostJobDecision {
    let reason = StateReason::new(HOST_LOST, format!("server {} did not renew its lease", job.server));
    if is_retried_after_host(job) { LostJobDecision::Requeue(reason) } else { LostJobDecision::Fail(reason) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{JobSpec, RetryCause};

    #[test]
    fn a_job_of_a_lost_server_is_retried_as_after_a_restart_of_its_server() {
        let directory = tempfile::tempdir().unwrap();
        let records = saggar_store::records::open(directory.path().join("saggar.db")).unwrap();
        let decide = |spec: &JobSpec| {
            let spec = serde_json::to_string(spec).unwrap();
            let (project, task) = ("p".to_owned(), "t".to_owned());
            let new = saggar_store::records::NewJob { project, task, spec, ..Default::default() };
            decide_lost_job(&records.submit(&new, 1).unwrap())
        };
        let retried = JobSpec::new("p", "0".repeat(64));
        assert!(matches!(decide(&retried), LostJobDecision::Requeue(reason) if reason.code == HOST_LOST));
        let retry_on = vec![RetryCause::Preempted];
        let failing = JobSpec { retry_on, ..retried };
        assert!(matches!(decide(&failing), LostJobDecision::Fail(reason) if reason.code == HOST_LOST));
        assert_eq!(RetryCause::from_code(HOST_LOST), Some(RetryCause::HostRestart));
    }
}
