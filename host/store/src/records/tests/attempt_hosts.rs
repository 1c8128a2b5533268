//! Tests of attempts whose ranks are on several hosts.

use super::lease_clock::{LeaseFixture, lease_suite};
use super::leases::{host_lost, query, server};
use super::*;
use crate::records::{AttemptHost, HostOffer, JobPlacements, LEASE_MS, MeetingPoint, PlacedJob, PlacementState};

fn host(name: &str) -> AttemptHost {
    let (host_id, host) = (format!("{name}-id"), name.to_owned());
    AttemptHost { host_id, host, pool: "any".to_owned(), device: format!("{name}-device") }
}

fn point(address: &str) -> MeetingPoint {
    MeetingPoint { address: address.to_owned(), key_sha256: "k".to_owned(), token: "t".to_owned() }
}

/// Submits a job with these hosts, and claims it for the first of them.
fn claim_on(records: &dyn JobRecords, hosts: &[AttemptHost]) -> JobLease {
    let demand = SchedulingRequest { hosts: hosts.len() as u32, ..SchedulingRequest::default() };
    records.submit(&NewJob { demand, ..new_job("p") }, 1).unwrap();
    claim_again(records, hosts)
}

fn claim_again(records: &dyn JobRecords, hosts: &[AttemptHost]) -> JobLease {
    let place = |state: &PlacementState| {
        let placed = PlacedJob { id: state.waiting[0].id.clone(), pool: "any".to_owned(), hosts: hosts.to_vec() };
        JobPlacements { start: vec![placed], preempt: Vec::new() }
    };
    records.claim_placed(&query(&server(&hosts[0].host), 10), &place).unwrap().remove(0).claim.lease
}

fn parts(records: &dyn JobRecords, host: &str) -> Vec<(u32, Option<MeetingPoint>)> {
    let parts = records.parts_of_host(&format!("{host}-id")).unwrap();
    parts.into_iter().map(|part| (part.part, part.meeting_point)).collect()
}

fn the_hosts_of_an_attempt_see_their_parts_until_it_is_over(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    let hosts = [host("a"), host("b"), host("c")];
    let lease = claim_on(records, &hosts);
    assert_eq!(parts(records, "a"), [], "it leads");
    assert_eq!((parts(records, "b"), parts(records, "c")), (vec![(1, None)], vec![(2, None)]));
    records.set_meeting_point(&lease, &point("10.0.0.1:7")).unwrap();
    let found = records.parts_of_host("c-id").unwrap().remove(0);
    assert_eq!((found.meeting_point.as_ref(), found.device.as_str()), (Some(&point("10.0.0.1:7")), "c-device"));
    assert_eq!((&found.job, found.attempt, found.epoch, found.hosts), (&lease.job, 1, lease.epoch, 3));
    assert!(!format!("{found:?}").contains("token"));
    // Slots are occupied on all of them.
    let running = records.active_jobs().unwrap().remove(0);
    assert_eq!(running.hosts, hosts);
    assert_eq!(
        ["a-id", "b-id", "c-id", "d-id"].map(|id| running.pool_on(id)),
        [Some("any"), Some("any"), Some("any"), None]
    );
    assert_eq!(records.placement_state(&query(&server("b"), 11)).unwrap().running[0].hosts, hosts);
    let (usage, over) = (AttemptUsage::default(), reason("WORKER_LOST"));
    records.finish_attempt(&lease, JobState::Queued, &over, &usage, 12).unwrap();
    records.requeue(&lease, &over, 0, 13).unwrap();
    assert_eq!(parts(records, "b"), []);
    // The next attempt has other hosts, and no meeting point yet.
    let again = claim_again(records, &[host("c"), host("b")]);
    assert_eq!((parts(records, "b"), parts(records, "c"), parts(records, "a")), (vec![(1, None)], vec![], vec![]));
    assert!(matches!(records.set_meeting_point(&lease, &point("x")), Err(RecordError::Fenced { .. })));
    let listed: Vec<_> =
        records.attempts(&again.job).unwrap().into_iter().map(|attempt| attempt.hosts.join(" ")).collect();
    assert_eq!(listed, ["a b c", "c b"]);
    records.finish_job(&again, JobState::Failed, &over, 14).unwrap();
    records.remove(&again.job).unwrap();
}

fn a_part_is_over_when_another_server_owns_the_job(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    let lease = claim_on(records, &[host("a"), host("b")]);
    records.set_meeting_point(&lease, &point("10.0.0.1:7")).unwrap();
    records.take_over(&lease.job, 12).unwrap();
    assert_eq!(parts(records, "b"), []);
    assert!(records.active_jobs().unwrap()[0].hosts.is_empty());
    fixture.clock.advance(LEASE_MS + 1);
    assert_eq!(records.reap_expired(&host_lost, 13).unwrap().len(), 1);
    assert_eq!(parts(records, "b"), []);
}

fn a_process_of_a_batch_job_takes_an_open_part_once(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    let open = AttemptHost { host_id: String::new(), host: "slurm 7.0".to_owned(), ..host("x") };
    let lease = claim_on(records, &[host("a"), open.clone(), open]);
    assert!(records.take_part(&lease.job, "slurm 8.0", 1, &host("b")).unwrap().is_none(), "another batch job");
    let part = records.take_part("p-1", "slurm 7.0", 1, &host("b")).unwrap().unwrap();
    assert_eq!((part.part, part.device.as_str(), part.hosts), (1, "b-device", 3));
    assert!(records.take_part(&lease.job, "slurm 7.0", 1, &host("c")).unwrap().is_none(), "it is taken");
    assert_eq!((parts(records, "b"), parts(records, "c")), (vec![(1, None)], vec![]));
    assert!(matches!(records.take_part("p-9", "slurm 7.0", 1, &host("b")), Err(RecordError::NoSuchJob { .. })));
}

fn a_job_that_needs_several_hosts_makes_all_hosts_and_running_jobs_known(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    records.register_host("a-id", "a", &HostOffer::default()).unwrap();
    records.submit(&new_job("p"), 1).unwrap();
    claim_again(records, &[host("b")]);
    records.submit(&new_job("p"), 2).unwrap();
    let state = records.placement_state(&query(&server("a"), 10)).unwrap();
    assert_eq!((state.hosts.len(), state.running.len(), state.running_elsewhere.len()), (0, 0, 1));
    let demand = SchedulingRequest { hosts: 2, ..SchedulingRequest::default() };
    records.submit(&NewJob { demand, ..new_job("p") }, 3).unwrap();
    let state = records.placement_state(&query(&server("a"), 10)).unwrap();
    assert_eq!((state.hosts.len(), state.running.len(), state.running_elsewhere.len()), (1, 1, 0));
}

lease_suite! {
    sqlite_attempt_hosts postgres_attempt_hosts:
    the_hosts_of_an_attempt_see_their_parts_until_it_is_over
    a_part_is_over_when_another_server_owns_the_job
    a_process_of_a_batch_job_takes_an_open_part_once
    a_job_that_needs_several_hosts_makes_all_hosts_and_running_jobs_known
}
