//! Placement by labels, reserve and devices of hosts, and room that another host makes.

use saggar_store::records::{HostDrain, HostKind, HostLabels, HostReserve, HostState};

use super::*;

fn labels(pairs: &[(&str, &str)]) -> HostLabels {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn offer(pairs: &[(&str, &str)], devices: &[&str]) -> HostOffer {
    let devices: Vec<String> = devices.iter().map(|device| (*device).to_owned()).collect();
    let has_gpu = devices.len() > 1;
    HostOffer { labels: labels(pairs), devices: Some(devices), has_gpu, slots_milli: 1000, ..HostOffer::default() }
}

fn record(name: &str, offer: HostOffer) -> HostRecord {
    HostRecord {
        id: name.to_owned(),
        name: name.to_owned(),
        offer: HostOffer { kind: HostKind::Worker, ..offer },
        drain: HostDrain::No,
        state: HostState::Ready,
        started_ms: 0,
        seen_ms: 0,
        unseen_ms: 0,
    }
}

fn labelled(pairs: &[(&str, &str)]) -> SchedulingRequest {
    SchedulingRequest { labels: labels(pairs), ..SchedulingRequest::default() }
}

/// Returns the code and the sentence of a job's wait on a host, or two empty texts if it starts.
fn wait_on(layout: &SchedulerConfig, job: &QueuedJob, host: &HostOffer, hosts: &[HostRecord]) -> (String, String) {
    let input = input(layout, std::slice::from_ref(job), &[]);
    match place_jobs(&PlacementInput { host, hosts, ..input }).remove(0) {
        PlacementDecision::Start { .. } => (String::new(), String::new()),
        PlacementDecision::Wait { reason, .. } => (reason.code, reason.sentence),
    }
}

#[test]
fn a_job_starts_only_on_a_host_with_all_its_labels() {
    let layout = SchedulerConfig::single_queue(1);
    let host = offer(&[("gpu", "a100"), ("zone", "1")], &["cpu"]);
    for (asked, starts) in [
        (vec![], true),
        (vec![("gpu", "a100")], true),
        (vec![("gpu", "a100"), ("zone", "1")], true),
        (vec![("gpu", "t4")], false),
        (vec![("gpu", "a100"), ("rack", "7")], false),
        // These are set by the host's devices and by whether it is preemptible.
        (vec![("device", "cpu"), ("preemptible", "false")], true),
        (vec![("device", "gpu")], false),
        (vec![("preemptible", "true")], false),
    ] {
        let (code, _) = wait_on(&layout, &waiting("a", labelled(&asked)), &host, &[]);
        assert_eq!(code.is_empty(), starts, "{asked:?} {code}");
    }
    let gpu = offer(&[], &["cpu", "vulkan:0"]);
    assert_eq!(wait_on(&layout, &waiting("a", labelled(&[("device", "gpu")])), &gpu, &[]).0, "");
}

#[test]
fn the_reason_names_the_missing_labels_and_the_hosts() {
    let layout = SchedulerConfig::single_queue(1);
    let here = offer(&[], &["cpu"]);
    let job = waiting("a", labelled(&[("gpu", "a100"), ("zone", "1")]));
    let (code, sentence) = wait_on(&layout, &job, &here, &[]);
    assert_eq!(
        (code.as_str(), sentence.as_str()),
        ("NO_MATCHING_HOST", "no host has the labels gpu=a100, zone=1; the hosts are: this one")
    );
    let hosts = [record("a", here.clone()), record("w1", offer(&[("gpu", "t4")], &["cpu"]))];
    let (code, sentence) = wait_on(&layout, &job, &here, &hosts);
    assert_eq!(
        (code.as_str(), sentence.as_str()),
        ("NO_MATCHING_HOST", "no host has the labels gpu=a100, zone=1; the hosts are: a, w1 (gpu=t4)")
    );
    let fitting = record("w2", offer(&[("gpu", "a100"), ("zone", "1")], &["cpu"]));
    let (code, sentence) = wait_on(&layout, &job, &here, &[fitting.clone(), hosts[1].clone()]);
    assert_eq!((code.as_str(), sentence.as_str()), ("WAITING_FOR_HOST", "a slot of w2"));
    // A host that is lost or draining takes no job.
    for state in [HostState::Lost, HostState::Draining] {
        let gone = HostRecord { state, ..fitting.clone() };
        assert_eq!(wait_on(&layout, &job, &here, &[gone]).0, "NO_MATCHING_HOST");
    }
}

#[test]
fn a_pool_with_labels_exists_only_on_hosts_that_have_them() {
    let queue = |spill| JobQueue { pools: vec!["large".to_owned(), "cpu".to_owned()], spill, max_running_jobs: None };
    let layout = |spill| {
        let config = SchedulerConfig::single_queue(1).with_pool("large", Some("cpu"), 1.0);
        config.with_pool_rules("large", labels(&[("gpu", "a100")]), HostReserve::None).with_queue("gpu", queue(spill))
    };
    let job = waiting("a", demand_on("gpu", "cpu"));
    let place = |spill, host: &HostOffer| {
        let layout = layout(spill);
        place_jobs(&PlacementInput { host, ..input(&layout, std::slice::from_ref(&job), &[]) }).remove(0)
    };
    assert_eq!(place(true, &offer(&[("gpu", "a100")], &["cpu"])), start_on("large", "cpu"));
    // Without spill, the first pool that this host has counts.
    for spill in [true, false] {
        assert_eq!(place(spill, &offer(&[], &["cpu"])), start_on("cpu", "cpu"));
    }
    let only = JobQueue { pools: vec!["large".to_owned()], spill: false, max_running_jobs: None };
    let (code, sentence) = wait_on(&layout(true).with_queue("gpu", only), &job, &offer(&[], &["cpu"]), &[]);
    assert_eq!(code, "NO_MATCHING_HOST");
    assert!(sentence.starts_with("no host has the labels gpu=a100;"), "{sentence}");
}

#[test]
fn a_reserved_host_or_pool_runs_only_preemptible_jobs() {
    let (reserve, slots_milli) = (HostReserve::PreemptibleOnly, 8000);
    let spot = HostOffer { reserve, preemptible: true, slots_milli, ..offer(&[], &["cpu"]) };
    let open = offer(&[], &["cpu"]);
    let pools = SchedulerConfig::single_queue(8);
    let reserved = SchedulerConfig::single_queue(8).with_pool_rules(ANY_POOL, HostLabels::new(), reserve);
    for (layout, host, is_reserved) in [(&pools, &spot, true), (&reserved, &open, true), (&pools, &open, false)] {
        for preemptible in [true, false] {
            let job = waiting("a", demand(50, preemptible));
            let (code, sentence) = wait_on(layout, &job, host, &[record("spot", host.clone())]);
            assert_eq!(code.is_empty(), preemptible || !is_reserved, "{code}");
            if !code.is_empty() {
                assert_eq!(code, "NO_MATCHING_HOST");
                assert!(sentence.contains("reserved for preemptible jobs") && sentence.contains("spot"), "{sentence}");
            }
        }
    }
}

#[test]
fn a_job_is_not_placed_on_a_host_without_its_device() {
    let layout = SchedulerConfig::single_queue(1);
    let (cpu, gpu) = (offer(&[], &["cpu"]), offer(&[], &["cpu", "vulkan:0"]));
    for (device, on_cpu, on_gpu) in [
        ("auto", true, true),
        ("cpu", true, true),
        ("gpu", false, true),
        ("vulkan:0", false, true),
        ("vulkan:1", false, false),
    ] {
        let job = waiting("a", demand_on(DEFAULT_QUEUE, device));
        for (host, starts) in [(&cpu, on_cpu), (&gpu, on_gpu)] {
            assert_eq!(wait_on(&layout, &job, host, &[]).0.is_empty(), starts, "{device}");
        }
    }
    let job = waiting("a", demand_on(DEFAULT_QUEUE, "gpu"));
    assert_eq!(
        wait_on(&layout, &job, &cpu, &[record("w1", gpu)]),
        ("WAITING_FOR_HOST".to_owned(), "a slot of w1".to_owned())
    );
    assert_eq!(wait_on(&layout, &job, &cpu, &[]).0, "NO_SUCH_DEVICE");
    // A host that does not know its devices places every job, whose attempt then names the missing one.
    assert_eq!(wait_on(&layout, &job, &HostOffer::default(), &[]).0, "");
}

#[test]
fn one_host_makes_room_for_a_waiting_job() {
    let layout = SchedulerConfig::single_queue(1);
    let runs = [running("low", ANY_POOL, demand(10, true))];
    let at = |room: Option<RoomClaim>, now_ms, runs: &[ActiveJob]| {
        let job = QueuedJob { room, ..waiting("high", demand(90, false)) };
        let input = input(&layout, std::slice::from_ref(&job), runs);
        place_jobs(&PlacementInput { now_ms, ..input }).remove(0)
    };
    let room = |server: &str| Some(RoomClaim { server_id: server.to_owned(), until_ms: 50_000 });
    assert_eq!(wait_details(&at(None, 10_000, &runs)).2, ["low"]);
    assert!(wait_details(&at(room("other"), 10_000, &runs)).2.is_empty());
    // This host may have to preempt a second job for it.
    assert_eq!(wait_details(&at(room(""), 10_000, &runs)).2, ["low"]);
    // The other host is gone, or could not start it; or the clock was set back.
    assert_eq!(wait_details(&at(room("other"), 50_000, &runs)).2, ["low"]);
    assert_eq!(wait_details(&at(room("other"), 4_999, &runs)).2, ["low"]);
    // Free slots are taken at once.
    assert_eq!(at(room("other"), 10_000, &[]), start_on(ANY_POOL, "auto"));
    // A job that is ordered to make room is not preempted twice.
    let orders = JobOrders { preempt: Some(StateReason::new("PREEMPTED", "room")), ..JobOrders::default() };
    let ordered = [ActiveJob { orders, ..running("low", ANY_POOL, demand(10, true)) }];
    assert_eq!(wait_details(&at(room(""), 10_000, &ordered)), (1, "WAITING_FOR_SLOT", vec![]));
}
