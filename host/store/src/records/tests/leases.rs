//! Tests of leases: claims of several servers, renewals, and jobs that are taken away.

use super::lease_clock::{LeaseFixture, lease_suite};
use super::*;
use crate::records::{
    JobOrder, JobOrders, JobPlacements, LEASE_MS, LeaseRenewal, LostJobDecision, PlacedJob, PlacementQuery,
    PlacementState, QueueSelection, RunningCount, ServerIdentity,
};

pub(super) fn server(name: &str) -> ServerIdentity {
    ServerIdentity { name: name.to_owned(), id: format!("{name}-id"), storage: String::new() }
}

/// Starts all waiting jobs.
pub(in crate::records) fn place_all(state: &PlacementState) -> JobPlacements {
    let place = |job: &QueuedJob| PlacedJob { id: job.id.clone(), pool: "any".to_owned(), hosts: Vec::new() };
    JobPlacements { start: state.waiting.iter().map(place).collect(), preempt: Vec::new() }
}

pub(in crate::records) fn host_lost(_: &JobRecord) -> LostJobDecision {
    LostJobDecision::Requeue(reason("HOST_LOST"))
}

/// Returns the query of a placement on a server that needs everything.
pub(in crate::records) fn query(server: &ServerIdentity, now_ms: u64) -> PlacementQuery<'_> {
    PlacementQuery {
        server,
        selection: &QueueSelection::Groups,
        with_common_pools: false,
        with_other_servers: true,
        with_usage: true,
        now_ms,
    }
}

pub(super) fn claim_for(records: &dyn JobRecords, server: &ServerIdentity) -> Vec<ClaimedJob> {
    records.claim_placed(&query(server, 10), &place_all).unwrap().into_iter().map(|placed| placed.claim).collect()
}

fn is_renewed(renewal: &LeaseRenewal) -> bool {
    matches!(renewal, LeaseRenewal::Renewed { .. })
}

fn a_claim_names_its_server_and_counts_the_active_jobs_of_all(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    for at in 0..3 {
        records.submit(&new_job("p"), at).unwrap();
    }
    let one = |state: &PlacementState| {
        assert!(state.spent.is_empty());
        JobPlacements { start: place_all(state).start[..1].to_vec(), preempt: Vec::new() }
    };
    let (a, b) = (server("a"), server("b"));
    let first =
        records.claim_placed(&PlacementQuery { with_usage: false, ..query(&a, 10) }, &one).unwrap().remove(0).claim;
    assert_eq!((first.job.server.as_str(), first.job.server_id.as_str(), first.lease.epoch), ("a", "a-id", 1));
    let others = |state: &PlacementState| {
        let (queue, project) = ("default".to_owned(), "p".to_owned());
        assert_eq!(state.running_elsewhere, [RunningCount { queue, project, owner: None, jobs: 1 }]);
        assert!(state.running.is_empty(), "its own jobs");
        let gone = PlacedJob { id: first.job.id.clone(), pool: "any".to_owned(), hosts: Vec::new() };
        JobPlacements { start: [vec![gone], place_all(state).start].concat(), preempt: Vec::new() }
    };
    let rest = records.claim_placed(&query(&b, 11), &others).unwrap();
    let own = records.placement_state(&PlacementQuery { with_other_servers: false, ..query(&b, 11) }).unwrap();
    assert_eq!(own.running.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["p-2", "p-3"]);
    assert!(own.running_elsewhere.is_empty() && own.waiting.is_empty());
    assert_eq!(rest.iter().map(|placed| placed.claim.job.name.as_str()).collect::<Vec<_>>(), ["p-2", "p-3"]);
    assert_ne!(rest[0].claim.lease.claim, rest[1].claim.lease.claim);
    assert!(claim_for(records, &a).is_empty());
    let event = records.events_of_kinds(&first.job.id, &["CLAIMED"]).unwrap().remove(0);
    assert_eq!(event.text, "attempt 1 in pool any of server a");
}

fn a_renewal_returns_orders_and_the_stop_request(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    let id = records.submit(&new_job("p"), 1).unwrap().id;
    assert!(matches!(records.order(&id, &JobOrder::Checkpoint), Err(RecordError::Invalid { .. })));
    let lease = claim_for(records, &server("a")).remove(0).lease;
    records.order(&id, &JobOrder::Checkpoint).unwrap();
    records.order(&id, &JobOrder::Preempt(reason("PREEMPTED"))).unwrap();
    let job = records.order(&id, &JobOrder::Preempt(reason("LATER"))).unwrap();
    let orders = JobOrders { preempt: Some(reason("PREEMPTED")), checkpoints: 1, ..JobOrders::default() };
    assert_eq!(job.orders, orders);
    records.request_stop(&id, &reason("USER"), 2).unwrap();
    let renewed = records.renew_leases(std::slice::from_ref(&lease)).unwrap();
    assert_eq!(renewed, [LeaseRenewal::Renewed { orders, stop: Some(reason("USER")) }]);
    records.requeue(&lease, &reason("PREEMPTED"), 0, 3).unwrap();
    assert!(matches!(records.order(&id, &JobOrder::Checkpoint), Err(RecordError::Finished { .. })));
    // The orders are those of one attempt.
    records.submit(&new_job("p"), 4).unwrap();
    let second = claim_for(records, &server("a")).remove(0);
    records.order(&second.job.id, &JobOrder::Checkpoint).unwrap();
    records.requeue(&second.lease, &reason("PREEMPTED"), 0, 5).unwrap();
    assert_eq!(claim_for(records, &server("b")).remove(0).job.orders, JobOrders::default());
}

fn a_lease_is_renewed_late_unless_the_job_was_taken_away(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    for at in 0..2 {
        records.submit(&new_job("p"), at).unwrap();
    }
    let leases: Vec<_> = claim_for(records, &server("a")).into_iter().map(|claim| claim.lease).collect();
    fixture.clock.advance(LEASE_MS);
    assert!(records.reap_expired(&host_lost, 20).unwrap().is_empty(), "it is valid to its last millisecond");
    fixture.clock.advance(1);
    // The second is late, and nobody took it away.
    assert!(is_renewed(&records.renew_leases(&leases[1..]).unwrap()[0]));
    let reaped = records.reap_expired(&host_lost, 21).unwrap();
    assert_eq!(reaped.len(), 1);
    assert_eq!(
        (reaped[0].id.as_str(), reaped[0].state, reaped[0].epoch),
        (leases[0].job.as_str(), JobState::Queued, 2)
    );
    assert_eq!(reaped[0].reason.code, "HOST_LOST");
    assert!(records.reap_expired(&host_lost, 22).unwrap().is_empty());
    let renewed = records.renew_leases(&[leases[1].clone(), leases[0].clone()]).unwrap();
    assert_eq!((is_renewed(&renewed[0]), &renewed[1]), (true, &LeaseRenewal::Lost));
    assert!(matches!(records.check_lease(&leases[0]), Err(RecordError::Fenced { .. })));
    records.check_lease(&leases[1]).unwrap();
    let attempt = &records.attempts(&leases[0].job).unwrap()[0];
    assert_eq!(
        (attempt.state, attempt.reason.code.as_str(), attempt.ended_ms),
        (JobState::Queued, "HOST_LOST", Some(21))
    );
    let kinds: Vec<_> = records.newest_events(&leases[0].job, 3).unwrap().into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["LEASE_EXPIRED", "ATTEMPT_ENDED", "QUEUED"]);
}

fn a_lost_job_fails_or_is_cancelled_if_it_is_not_to_be_retried(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    for at in 0..2 {
        records.submit(&new_job("p"), at).unwrap();
    }
    let leases: Vec<_> = claim_for(records, &server("a")).into_iter().map(|claim| claim.lease).collect();
    records.request_stop(&leases[1].job, &reason("USER"), 15).unwrap();
    fixture.clock.advance(LEASE_MS + 1);
    let fail = |_: &JobRecord| LostJobDecision::Fail(reason("HOST_LOST"));
    assert_eq!(records.reap_expired(&fail, 20).unwrap().len(), 2);
    let state = |at: usize| {
        let job = records.get(&leases[at].job).unwrap();
        (job.state, job.reason.code)
    };
    assert_eq!(state(0), (JobState::Failed, "HOST_LOST".to_owned()));
    assert_eq!(state(1), (JobState::Cancelled, "USER".to_owned()));
    assert_eq!(records.renew_leases(&leases).unwrap(), [LeaseRenewal::Lost, LeaseRenewal::Lost]);
}

/// Every write of an owner whose lease was taken away is refused, and changes nothing; the same epoch with another
/// token is one of another claim.
fn a_zombie_is_refused_by_its_epoch_and_by_its_token(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    let id = records.submit(&new_job("p"), 1).unwrap().id;
    let zombie = claim_for(records, &server("a")).remove(0).lease;
    records.record_metrics(&zombie, &[point(1, 0.5)]).unwrap();
    fixture.clock.advance(LEASE_MS + 1);
    records.reap_expired(&host_lost, 20).unwrap();
    let owner = claim_for(records, &server("b")).remove(0).lease;
    assert_eq!((owner.attempt, owner.epoch), (2, 3));
    let forged = JobLease { claim: zombie.claim.clone(), ..owner.clone() };
    let (none, usage) = (StateReason::default(), AttemptUsage::default());
    let state = || {
        let job = records.get(&id).unwrap();
        (job, records.attempts(&id).unwrap(), records.events(None, 0, 0).unwrap(), records.series(&id, "loss", 0, 0))
    };
    for stale in [&zombie, &forged] {
        let before = state();
        let writes = [
            records.set_state(stale, JobState::Running, &none, 9),
            records.set_device(stale, "gpu", true),
            records.record_progress(stale, 9, 9, &usage).map(drop),
            records.record_metrics(stale, &[point(1, 9.0)]),
            records.record_attempt_event(stale, "PUBLISHED", "m@1", 9),
            records.finish_attempt(stale, JobState::Failed, &none, &usage, 9),
            records.finish_job(stale, JobState::Succeeded, &none, 9).map(drop),
            records.requeue(stale, &none, 0, 9).map(drop),
            records.check_lease(stale),
        ];
        for write in writes {
            let text = write.expect_err("it is refused").to_string();
            assert!(text.contains("job p-1") && text.contains("claimed by server b"), "{text}");
        }
        assert_eq!(records.renew_leases(std::slice::from_ref(stale)).unwrap(), [LeaseRenewal::Lost]);
        let after = state();
        assert_eq!((before.0, before.1, before.2), (after.0, after.1, after.2));
        assert_eq!(before.3.unwrap(), after.3.unwrap());
    }
    records.record_attempt_event(&owner, "PHASE", "x", 30).unwrap();
}

/// `requeue` and `finish_job` end their lease, so a caller that repeats one after it did not get the answer is refused. What
/// the record says then tells it that its first call was recorded.
fn a_repeated_end_of_an_attempt_is_refused_and_recorded_once(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    let id = records.submit(&new_job("p"), 1).unwrap().id;
    let first = claim_for(records, &server("a")).remove(0).lease;
    let queued = records.requeue(&first, &reason("PREEMPTED"), 0, 2).unwrap();
    assert_eq!((queued.attempts, queued.epoch, queued.state), (first.attempt, first.epoch + 1, JobState::Queued));
    assert!(matches!(records.requeue(&first, &reason("PREEMPTED"), 0, 3), Err(RecordError::Fenced { .. })));
    let second = claim_for(records, &server("a")).remove(0).lease;
    records.finish_job(&second, JobState::Succeeded, &StateReason::default(), 4).unwrap();
    let again = records.finish_job(&second, JobState::Succeeded, &StateReason::default(), 5);
    assert!(matches!(again, Err(RecordError::Finished { state: JobState::Succeeded, .. })));
    assert_eq!((records.count_events(&id, "QUEUED").unwrap(), records.count_events(&id, "SUCCEEDED").unwrap()), (1, 1));
}

/// Reapers of several servers that look at once take each job away once.
fn reapers_at_once_take_each_job_away_once(fixture: &LeaseFixture) {
    const JOBS: usize = 20;
    let records = &*fixture.records;
    for at in 0..JOBS as u64 {
        records.submit(&new_job("p"), at).unwrap();
    }
    assert_eq!(claim_for(records, &server("a")).len(), JOBS);
    fixture.clock.advance(LEASE_MS + 1);
    let barrier = std::sync::Barrier::new(4);
    let mut reaped: Vec<String> = std::thread::scope(|scope| {
        let reap = || {
            barrier.wait();
            records.reap_expired(&host_lost, 30).unwrap().into_iter().map(|job| job.id).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(reap)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    // One that was skipped because another transaction had it was taken by that one.
    reaped.sort();
    reaped.dedup();
    assert_eq!(reaped.len(), JOBS);
    assert_eq!(records.count_by_state().unwrap(), [(JobState::Queued, JOBS as u64)]);
    assert_eq!(records.count_events(&reaped[0], "LEASE_EXPIRED").unwrap(), 1);
}

lease_suite! {
    sqlite_leases postgres_leases:
    a_claim_names_its_server_and_counts_the_active_jobs_of_all
    a_renewal_returns_orders_and_the_stop_request
    a_lease_is_renewed_late_unless_the_job_was_taken_away
    a_lost_job_fails_or_is_cancelled_if_it_is_not_to_be_retried
    a_zombie_is_refused_by_its_epoch_and_by_its_token
    a_repeated_end_of_an_attempt_is_refused_and_recorded_once
    reapers_at_once_take_each_job_away_once
}
