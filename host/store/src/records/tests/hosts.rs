//! Tests of hosts: registration, renewal, loss, and drains.

use super::lease_clock::{LeaseFixture, lease_suite};
use super::leases::{place_all, query, server};
use super::*;
use crate::records::{
    HostDrain, HostKind, HostOffer, HostReserve, HostState, JobOrders, JobPlacements, PlacedPreemption, PlacementState,
    PoolOffer, RoomClaim,
};

fn offer() -> HostOffer {
    HostOffer {
        kind: HostKind::Worker,
        labels: [("gpu".to_owned(), "a100".to_owned())].into(),
        preemptible: true,
        reserve: HostReserve::PreemptibleOnly,
        devices: Some(vec!["cpu".to_owned()]),
        has_gpu: false,
        slots_milli: 1500,
        pools: [("any".to_owned(), PoolOffer { slots_milli: 1500, device: None })].into(),
        storage: "s".to_owned(),
        version: "1".to_owned(),
    }
}

fn states(records: &dyn JobRecords) -> Vec<(String, HostState)> {
    records.hosts().unwrap().into_iter().map(|host| (host.name, host.state)).collect()
}

fn a_host_is_listed_until_it_is_removed_or_lost_for_a_day(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    assert_eq!(records.renew_host("a-id").unwrap(), None, "it is not registered");
    records.register_host("a-id", "a", &offer()).unwrap();
    records.register_host("b-id", "b", &HostOffer::default()).unwrap();
    let listed = records.hosts().unwrap().remove(0);
    assert_eq!((listed.id.as_str(), listed.name.as_str(), &listed.offer), ("a-id", "a", &offer()));
    assert_eq!((listed.state, listed.drain, listed.unseen_ms), (HostState::Ready, HostDrain::No, 0));
    fixture.clock.advance(25_000);
    assert_eq!(states(records), [("a".to_owned(), HostState::Ready), ("b".to_owned(), HostState::Ready)]);
    assert_eq!(records.renew_host("b-id").unwrap(), Some(HostDrain::No));
    fixture.clock.advance(1);
    assert_eq!(states(records), [("a".to_owned(), HostState::Lost), ("b".to_owned(), HostState::Ready)]);
    let lost = records.hosts().unwrap().remove(0);
    assert_eq!((lost.seen_ms, lost.unseen_ms), (listed.seen_ms, 25_001));
    assert!(records.set_host_drain("a", HostDrain::Finish).unwrap().is_empty(), "it is lost");
    // It comes back, with another name.
    records.register_host("a-id", "c", &offer()).unwrap();
    assert_eq!(states(records), [("b".to_owned(), HostState::Ready), ("c".to_owned(), HostState::Ready)]);
    fixture.clock.advance(24 * 3600 * 1000);
    records.renew_host("b-id").unwrap();
    assert_eq!(states(records).len(), 2, "a day is not over");
    fixture.clock.advance(1);
    records.renew_host("b-id").unwrap();
    assert_eq!(states(records), [("b".to_owned(), HostState::Ready)]);
    records.remove_host("b-id").unwrap();
    records.remove_host("b-id").unwrap();
    assert!(records.hosts().unwrap().is_empty());
}

fn a_draining_host_claims_nothing_until_it_is_resumed(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    records.register_host("a-id", "a", &offer()).unwrap();
    records.submit(&new_job("p"), 1).unwrap();
    let drained = records.set_host_drain("a", HostDrain::Requeue).unwrap();
    assert_eq!((drained.len(), drained[0].state, drained[0].drain), (1, HostState::Draining, HostDrain::Requeue));
    assert_eq!(records.renew_host("a-id").unwrap(), Some(HostDrain::Requeue));
    let claim = || records.claim_placed(&query(&server("a"), 10), &place_all).unwrap().len();
    assert_eq!(claim(), 0);
    assert_eq!(records.set_host_drain("a", HostDrain::No).unwrap()[0].state, HostState::Ready);
    assert_eq!(claim(), 1);
    assert!(records.set_host_drain("nobody", HostDrain::Finish).unwrap().is_empty());
    // A new start ends a drain.
    records.set_host_drain("a", HostDrain::Finish).unwrap();
    records.register_host("a-id", "a", &offer()).unwrap();
    assert_eq!(records.renew_host("a-id").unwrap(), Some(HostDrain::No));
}

fn a_preemption_is_ordered_and_its_server_recorded_with_the_waiting_job(fixture: &LeaseFixture) {
    let records = &*fixture.records;
    let victim = records.submit(&new_job("p"), 1).unwrap().id;
    records.claim_placed(&query(&server("a"), 2), &place_all).unwrap();
    let waiting = records.submit(&new_job("p"), 3).unwrap().id;
    let preempt =
        |id: &str, code: &str| PlacedPreemption { id: id.to_owned(), waiting: waiting.clone(), reason: reason(code) };
    let place = |_: &PlacementState| JobPlacements {
        start: Vec::new(),
        // A job that has ended meanwhile is left out.
        preempt: vec![preempt("gone", "PREEMPTED"), preempt(&waiting, "PREEMPTED"), preempt(&victim, "PREEMPTED")],
    };
    records.claim_placed(&query(&server("a"), 4), &place).unwrap();
    assert_eq!(records.active_jobs().unwrap().remove(0).orders.preempt, Some(reason("PREEMPTED")));
    let room = RoomClaim { server_id: "a-id".to_owned(), until_ms: 45_004 };
    assert_eq!(records.queued_jobs().unwrap().remove(0).room, Some(room));
    // The claim of a job ends that of its room.
    assert_eq!(
        records.claim_placed(&query(&server("b"), 5), &place_all).unwrap()[0].claim.job.orders,
        JobOrders::default()
    );
}

lease_suite! {
    sqlite_hosts postgres_hosts:
    a_host_is_listed_until_it_is_removed_or_lost_for_a_day
    a_draining_host_claims_nothing_until_it_is_resumed
    a_preemption_is_ordered_and_its_server_recorded_with_the_waiting_job
}
