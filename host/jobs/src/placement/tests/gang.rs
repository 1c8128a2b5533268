//! Jobs whose ranks are on several hosts: all hosts at once or none, and never more than they have.

use saggar_store::records::{AttemptHost, HostDrain, HostState, PoolOffer};

use super::*;

/// A host with slots of the pool `any`.
fn host(name: &str, slots_milli: u32) -> HostRecord {
    let pools = BTreeMap::from([(ANY_POOL.to_owned(), PoolOffer { slots_milli, device: None })]);
    HostRecord {
        id: name.to_owned(),
        name: name.to_owned(),
        offer: HostOffer { slots_milli, pools, ..HostOffer::default() },
        drain: HostDrain::No,
        state: HostState::Ready,
        started_ms: 0,
        seen_ms: 0,
        unseen_ms: 0,
    }
}

fn gang(hosts: u32) -> SchedulingRequest {
    SchedulingRequest { hosts, ..SchedulingRequest::default() }
}

/// Returns a running job with slots of the pool `any` of these hosts.
fn running_on(name: &str, hosts: &[&str], demand: SchedulingRequest) -> ActiveJob {
    let part = |host: &&str| AttemptHost {
        host_id: (*host).to_owned(),
        host: (*host).to_owned(),
        pool: ANY_POOL.to_owned(),
        device: "auto".to_owned(),
    };
    let parts = if hosts.len() > 1 { hosts.iter().map(part).collect() } else { Vec::new() };
    ActiveJob { server_id: hosts[0].to_owned(), hosts: parts, ..running(name, ANY_POOL, demand) }
}

/// Returns the decisions of one of the hosts.
fn decide(own: &str, hosts: &[HostRecord], waiting: &[QueuedJob], running: &[ActiveJob]) -> Vec<PlacementDecision> {
    let own = hosts.iter().find(|host| host.id == own).unwrap();
    let layout = SchedulerConfig::single_queue(own.offer.slots_milli / 1000);
    let server = ServerIdentity { id: own.id.clone(), name: own.name.clone(), ..ServerIdentity::default() };
    let state = state_of(waiting, running);
    place_jobs(&PlacementInput { server: &server, host: &own.offer, hosts, ..input(&layout, &state) })
}

fn names(decision: &PlacementDecision) -> Vec<&str> {
    match decision {
        PlacementDecision::Start { hosts, .. } => hosts.iter().map(|host| host.host.as_str()).collect(),
        PlacementDecision::Wait { .. } => panic!("{decision:?}"),
    }
}

fn sentence(decision: &PlacementDecision) -> String {
    match decision {
        PlacementDecision::Wait { reason, .. } => format!("{}: {}", reason.code, reason.sentence),
        PlacementDecision::Start { .. } => panic!("{decision:?}"),
    }
}

#[test]
fn a_job_with_two_hosts_starts_on_both_or_waits_with_the_reason() {
    let hosts = [host("a", 1000), host("b", 1000), host("c", 1000)];
    let jobs = [waiting("g", gang(2))];
    assert_eq!(names(&decide("b", &hosts, &jobs, &[])[0]), ["b", "a"], "the host that claims it leads");
    let busy = [running_on("r", &["a"], SchedulingRequest::default())];
    assert_eq!(names(&decide("b", &hosts, &jobs, &busy)[0]), ["b", "c"]);
    assert_eq!(sentence(&decide("a", &hosts, &jobs, &busy)[0]), "WAITING_FOR_HOST: one of its hosts starts it: b, c");
    let busier = [busy[0].clone(), running_on("s", &["c"], SchedulingRequest::default())];
    let expected = "WAITING_FOR_SLOT: 2 hosts with 1 free slot each of pool any; 1 has: b";
    for own in ["a", "b", "c"] {
        assert_eq!(sentence(&decide(own, &hosts, &jobs, &busier)[0]), expected, "{own}");
    }
    let few = [waiting("g", gang(4))];
    let reason = sentence(&decide("a", &hosts, &few, &[])[0]);
    assert!(
        reason.starts_with("NO_MATCHING_HOST: it needs 4 hosts with 1 slot of pool any each; 3 hosts fit: a, b, c")
    );
    let alone = place_waiting(&SchedulerConfig::single_queue(4), &jobs, &[]);
    assert!(sentence(&alone[0]).contains("no host fits. `saggar worker join`"), "{alone:?}");
}

#[test]
fn only_hosts_that_could_run_a_part_are_chosen() {
    let jobs = [QueuedJob { storage: "s".to_owned(), ..waiting("g", gang(2)) }];
    let with = |change: &dyn Fn(&mut HostRecord)| {
        let mut hosts = ["a", "b", "c"].map(|name| host(name, 1000));
        hosts.iter_mut().for_each(|host| host.offer.storage = "s".to_owned());
        change(&mut hosts[1]);
        let layout = SchedulerConfig::single_queue(1);
        let server = ServerIdentity { id: "a".to_owned(), name: "a".to_owned(), storage: "s".to_owned() };
        let state = state_of(&jobs, &[]);
        let decisions = place_jobs(&PlacementInput {
            server: &server,
            host: &hosts[0].offer.clone(),
            hosts: &hosts,
            ..input(&layout, &state)
        });
        names(&decisions[0]).join(" ")
    };
    assert_eq!(with(&|_| {}), "a b");
    assert_eq!(with(&|host| host.state = HostState::Draining), "a c");
    assert_eq!(with(&|host| host.state = HostState::Lost), "a c");
    assert_eq!(with(&|host| host.unseen_ms = 12_001), "a c");
    assert_eq!(with(&|host| host.offer.version = "0.9".to_owned()), "a c");
    assert_eq!(with(&|host| host.offer.storage = "t".to_owned()), "a c");
    assert_eq!(with(&|host| host.offer.pools.clear()), "a c");
    assert_eq!(with(&|host| host.offer.reserve = saggar_store::records::HostReserve::PreemptibleOnly), "a c");
}

#[test]
fn later_jobs_do_not_starve_a_job_with_two_hosts() {
    let hosts = [host("a", 1000), host("b", 1000)];
    let jobs = [waiting("g", gang(2)), waiting("small", SchedulingRequest::default())];
    let busy = [running_on("r", &["b"], SchedulingRequest::default())];
    let decisions = decide("a", &hosts, &jobs, &busy);
    assert!(matches!(&decisions[1], PlacementDecision::Wait { .. }), "the free slot is reserved: {decisions:?}");
    // What can never run keeps nobody waiting.
    let never = [waiting("g", gang(3)), jobs[1].clone()];
    assert_eq!(decide("a", &hosts, &never, &busy)[1], start_on(ANY_POOL, "auto"));
}

#[test]
fn jobs_are_preempted_on_all_hosts_or_none() {
    let hosts = [host("a", 1000), host("b", 1000)];
    let urgent = [waiting("g", SchedulingRequest { priority: 9, ..gang(2) })];
    let low = |name: &str, at: &str| running_on(name, &[at], demand(1, true));
    let evicted = |running: &[ActiveJob]| match &decide("a", &hosts, &urgent, running)[0] {
        PlacementDecision::Wait { evict, .. } => evict.clone(),
        PlacementDecision::Start { .. } => panic!("there is no room"),
    };
    assert_eq!(evicted(&[low("x", "a"), low("y", "b")]), ["x", "y"]);
    assert_eq!(evicted(&[low("x", "a"), running_on("y", &["b"], demand(1, false))]), Vec::<String>::new());
    assert_eq!(
        evicted(&[running_on("both", &["a", "b"], SchedulingRequest { hosts: 2, ..demand(1, true) })]),
        ["both"]
    );
}

#[test]
fn the_first_process_of_a_batch_job_leaves_the_other_parts_open() {
    let layout = SchedulerConfig::single_queue(1);
    let state = state_of(&[waiting("g", gang(3))], &[]);
    let server = ServerIdentity { id: "n1".to_owned(), name: "node-1".to_owned(), ..ServerIdentity::default() };
    let decisions =
        place_jobs(&PlacementInput { server: &server, batch_job: Some("slurm 7.0"), ..input(&layout, &state) });
    assert_eq!(names(&decisions[0]), ["node-1", "slurm 7.0", "slurm 7.0"]);
}

/// A job to place: its number of hosts, its slots, and whether it is preemptible.
fn any_gang() -> impl Strategy<Value = SchedulingRequest> {
    let slots = prop_oneof![Just(500_u32), Just(1000), Just(2000)];
    (1..4_u32, slots, 0..3_i32, any::<bool>()).prop_map(|(hosts, slots_milli, priority, preemptible)| {
        SchedulingRequest { hosts, slots_milli, priority, preemptible, ..SchedulingRequest::default() }
    })
}

/// Returns the thousandths of slots that running jobs hold on a host.
fn held(host: &HostRecord, running: &[ActiveJob]) -> u32 {
    running.iter().filter(|job| job.pool_on(&host.id).is_some()).map(|job| job.demand.slots_milli).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// Hosts place the same queue in turns, in any order, while jobs end. No job has a part of its hosts, no host more jobs
    /// than slots, and at the end every job has run that could: no two of them wait for each other.
    #[test]
    fn gangs_are_never_partial_or_over_capacity_and_all_of_them_run(
        demands in prop::collection::vec(any_gang(), 1..10),
        slots in prop::collection::vec(1..4_u32, 1..5),
        turns in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
    ) {
        let hosts: Vec<_> = slots.iter().enumerate().map(|(at, slots)| host(&format!("h{at}"), slots * 1000)).collect();
        let mut left: Vec<_> = demands.iter().enumerate().map(|(at, demand)| waiting(&format!("j{at}"), demand.clone())).collect();
        left.sort_by_key(|job| (-job.demand.priority, job.demand.preemptible));
        let can_run = |job: &QueuedJob| {
            let fits = hosts.iter().filter(|host| host.offer.slots_milli >= job.demand.slots_milli).count();
            fits >= job.demand.hosts as usize
        };
        let (never, mut left): (Vec<_>, Vec<_>) = left.into_iter().partition(|job| !can_run(job));
        let mut running: Vec<ActiveJob> = Vec::new();
        let mut idle_rounds = 0;
        let some_order = turns.iter().map(|turn| turn.index(hosts.len()));
        for turn in some_order.chain((0..hosts.len()).cycle()) {
            if left.is_empty() {
                break;
            }
            let own = &hosts[turn];
            let mut queue: Vec<_> = never.iter().chain(&left).cloned().collect();
            queue.sort_by_key(|job| (-job.demand.priority, job.demand.preemptible));
            let decisions = decide(&own.id, &hosts, &queue, &running);
            let mut has_started = false;
            for (job, decision) in queue.iter().zip(decisions) {
                let PlacementDecision::Start { hosts: parts, .. } = decision else { continue };
                let chosen: Vec<&str> = match job.demand.hosts {
                    1 => vec![&own.id],
                    _ => parts.iter().map(|part| part.host_id.as_str()).collect(),
                };
                let distinct: std::collections::BTreeSet<_> = chosen.iter().collect();
                prop_assert_eq!(distinct.len(), job.demand.hosts as usize, "{:?}", chosen);
                prop_assert_eq!(chosen[0], own.id.as_str());
                running.push(running_on(&job.id, &chosen, job.demand.clone()));
                left.retain(|other| other.id != job.id);
                has_started = true;
            }
            for host in &hosts {
                prop_assert!(held(host, &running) <= host.offer.slots_milli, "{} holds {:?}", host.id, running);
            }
            idle_rounds = if has_started { 0 } else { idle_rounds + 1 };
            if idle_rounds > hosts.len() + turns.len() {
                // Every host had its turn, so jobs have to end before others start.
                prop_assert!(!running.is_empty(), "{} jobs wait although nothing runs", left.len());
                running.remove(0);
                idle_rounds = 0;
            }
        }
        prop_assert!(left.is_empty());
    }
}
