use proptest::prelude::*;
use saggar_store::records::Demand;

use super::*;
use crate::layout::{ANY_POOL, DEFAULT_QUEUE};

fn waiting(name: &str, demand: Demand) -> Waiting {
    Waiting {
        id: name.to_owned(),
        name: name.to_owned(),
        project: "p".to_owned(),
        owner: None,
        demand,
        not_before_ms: 0,
        backoff_ms: 0,
        reason: Reason::default(),
    }
}

fn running(name: &str, pool: &str, demand: Demand) -> Running {
    Running {
        id: name.to_owned(),
        name: name.to_owned(),
        project: "p".to_owned(),
        owner: None,
        demand,
        pool: pool.to_owned(),
        started_ms: 0,
        state: JobState::Running,
    }
}

fn demand(priority: i32, preemptible: bool) -> Demand {
    Demand { priority, preemptible, ..Demand::default() }
}

fn on(queue: &str, device: &str) -> Demand {
    Demand { queue: queue.to_owned(), device: device.to_owned(), ..Demand::default() }
}

fn decide(layout: &Layout, waiting: &[Waiting], running: &[Running]) -> Vec<Verdict> {
    place(&Situation { layout, waiting, running, spent: &[], now_ms: 0 })
}

fn start(pool: &str, device: &str) -> Verdict {
    Verdict::Start { pool: pool.to_owned(), device: device.to_owned() }
}

/// Position, code and evicted jobs of a verdict that is to wait.
fn waits(verdict: &Verdict) -> (u64, &str, Vec<&str>) {
    match verdict {
        Verdict::Wait { position, reason, evict } => {
            assert!(!reason.sentence.is_empty());
            (*position, &reason.code, evict.iter().map(String::as_str).collect())
        }
        Verdict::Start { .. } => panic!("{verdict:?} starts"),
    }
}

fn two_pools(spill: bool) -> Layout {
    let pools = vec!["vulkan:0".to_owned(), "cpu".to_owned()];
    Layout::simple(1).with_queue("gpu", Queue { pools, spill, max_running_jobs: None })
}

#[test]
fn as_many_start_as_there_are_slots() {
    let jobs = ["a", "b", "c"].map(|name| waiting(name, Demand::default()));
    let verdicts = decide(&Layout::simple(2), &jobs, &[]);
    assert_eq!(verdicts[..2], [start(ANY_POOL, "auto"), start(ANY_POOL, "auto")]);
    assert_eq!(waits(&verdicts[2]), (1, "WAITING_FOR_SLOT", vec![]));
}

#[test]
fn a_full_pool_spills_to_the_next_in_order() {
    let jobs = ["a", "b", "c"].map(|name| waiting(name, on("gpu", "auto")));
    let verdicts = decide(&two_pools(true), &jobs, &[]);
    assert_eq!(verdicts[..2], [start("vulkan:0", "vulkan:0"), start("cpu", "cpu")]);
    assert_eq!(waits(&verdicts[2]).1, "WAITING_FOR_SLOT");
    let verdicts = decide(&two_pools(false), &jobs, &[]);
    assert_eq!(verdicts[0], start("vulkan:0", "vulkan:0"));
    assert_eq!((waits(&verdicts[1]).0, waits(&verdicts[2]).0), (1, 2));
    // A job that asks for the processor goes there at once, past those that wait for the other pool.
    let asks = [waiting("a", on("gpu", "gpu")), waiting("b", on("gpu", "gpu")), waiting("c", on("gpu", "cpu"))];
    let verdicts = decide(&two_pools(true), &asks, &[]);
    assert_eq!((&verdicts[0], &verdicts[2]), (&start("vulkan:0", "vulkan:0"), &start("cpu", "cpu")));
    assert_eq!(waits(&verdicts[1]).1, "WAITING_FOR_SLOT");
}

#[test]
fn who_asks_for_what_is_not_there_is_told() {
    let jobs = [waiting("a", on("nowhere", "auto")), waiting("b", on("gpu", "vulkan:7"))];
    let verdicts = decide(&two_pools(true), &jobs, &[]);
    assert_eq!(waits(&verdicts[0]).1, "NO_SUCH_QUEUE");
    assert_eq!(waits(&verdicts[1]).1, "NO_SUCH_DEVICE");
    let large = [waiting("a", Demand { slots_milli: 4000, ..Demand::default() }), waiting("b", Demand::default())];
    let verdicts = decide(&Layout::simple(2), &large, &[]);
    assert_eq!(waits(&verdicts[0]).1, "INSUFFICIENT_GPU");
    assert_eq!(verdicts[1], start(ANY_POOL, "auto"), "what can never run keeps nobody waiting");
}

#[test]
fn who_needs_many_slots_is_not_passed_by_those_that_need_few() {
    let many = Demand { slots_milli: 2000, ..Demand::default() };
    let jobs = [waiting("many", many), waiting("few", Demand::default())];
    let verdicts = decide(&Layout::simple(2), &jobs, &[running("r", ANY_POOL, Demand::default())]);
    assert_eq!((waits(&verdicts[0]).0, waits(&verdicts[1]).0), (1, 2));
}

#[test]
fn shares_of_a_slot_add_up() {
    let share = Demand { slots_milli: 250, ..Demand::default() };
    let jobs: Vec<_> = ["a", "b", "c", "d", "e"].map(|name| waiting(name, share.clone())).into();
    let verdicts = decide(&Layout::simple(1), &jobs, &[]);
    assert!(verdicts[..4].iter().all(|verdict| *verdict == start(ANY_POOL, "auto")));
    assert_eq!(waits(&verdicts[4]).1, "WAITING_FOR_SLOT");
}

#[test]
fn only_preemptible_jobs_that_come_after_make_room() {
    let layout = Layout::simple(1);
    let evicts = |waits_for: Demand, runs: Demand| {
        let verdicts = decide(&layout, &[waiting("w", waits_for)], &[running("r", ANY_POOL, runs)]);
        !waits(&verdicts[0]).2.is_empty()
    };
    assert!(evicts(demand(50, false), demand(50, true)), "a dedicated job takes the place of a preemptible one");
    assert!(evicts(demand(60, true), demand(50, true)));
    assert!(evicts(demand(60, false), demand(50, true)));
    assert!(!evicts(demand(50, true), demand(50, true)));
    assert!(!evicts(demand(40, false), demand(50, true)));
    assert!(!evicts(demand(100, false), demand(0, false)), "a dedicated job is never evicted");
}

#[test]
fn one_job_makes_room_for_one() {
    let layout = Layout::simple(2);
    let runs = [running("low", ANY_POOL, demand(10, true)), running("lower", ANY_POOL, demand(5, true))];
    let jobs = ["a", "b", "c"].map(|name| waiting(name, demand(50, false)));
    let verdicts = decide(&layout, &jobs, &runs);
    assert_eq!(waits(&verdicts[0]).2, ["lower"]);
    assert_eq!(waits(&verdicts[1]).2, ["low"]);
    assert!(waits(&verdicts[2]).2.is_empty());
    // While it saves its state, nobody else has to.
    let ending = Running { state: JobState::Stopping, ..runs[1].clone() };
    let verdicts = decide(&layout, &jobs[..1], &[runs[0].clone(), ending]);
    assert!(waits(&verdicts[0]).2.is_empty());
}

#[test]
fn limits_queue_instead_of_failing() {
    let mut layout = Layout::simple(9);
    layout.owners.insert("ci".to_owned(), Allowance { max_running_jobs: Some(1), gpu_seconds: None });
    layout.projects.insert("q".to_owned(), Allowance { max_running_jobs: None, gpu_seconds: Some(100.0) });
    let of_key = |name: &str| Waiting { owner: Some("ci".to_owned()), ..waiting(name, Demand::default()) };
    let verdicts = decide(&layout, &[of_key("a"), of_key("b"), waiting("c", Demand::default())], &[]);
    assert_eq!(waits(&verdicts[1]), (1, "QUOTA_RUNNING_JOBS", vec![]));
    assert_eq!(verdicts[2], start(ANY_POOL, "auto"));

    let spent = [Spent { project: "q".to_owned(), owner: None, gpu_seconds: 100.0, wall_seconds: 200.0 }];
    let jobs = [Waiting { project: "q".to_owned(), ..waiting("a", Demand::default()) }];
    let runs = [Running { project: "q".to_owned(), ..running("r", ANY_POOL, Demand::default()) }];
    let situation = Situation { layout: &layout, waiting: &jobs, running: &runs, spent: &spent, now_ms: 0 };
    assert_eq!(waits(&place(&situation)[0]).1, "QUOTA_GPU_SECONDS");
    assert_eq!(over_budget(&situation), ["r"]);
    let less = [Spent { gpu_seconds: 99.9, ..spent[0].clone() }];
    assert!(over_budget(&Situation { spent: &less, ..situation }).is_empty());

    let queue = Queue { max_running_jobs: Some(1), ..Layout::simple(1).queues[DEFAULT_QUEUE].clone() };
    let layout = Layout::simple(9).with_queue(DEFAULT_QUEUE, queue);
    let verdicts = decide(&layout, &["a", "b"].map(|name| waiting(name, Demand::default())), &[]);
    assert_eq!(waits(&verdicts[1]).1, "QUOTA_RUNNING_JOBS");
}

#[test]
fn who_failed_waits_its_time() {
    let late = Waiting { not_before_ms: 5_000, backoff_ms: 5_000, ..waiting("a", Demand::default()) };
    let layout = Layout::simple(1);
    let jobs = [late, waiting("b", Demand::default())];
    let at = |now_ms| place(&Situation { layout: &layout, waiting: &jobs, running: &[], spent: &[], now_ms });
    assert_eq!((waits(&at(0)[0]).1, &at(0)[1]), ("BACKOFF", &start(ANY_POOL, "auto")));
    assert_eq!(at(5_000)[0], start(ANY_POOL, "auto"));
}

#[test]
fn a_clock_that_is_set_back_makes_nobody_wait_longer() {
    let hour_ms = 3_600_000;
    let late = Waiting { not_before_ms: hour_ms + 2_000, backoff_ms: 2_000, ..waiting("a", Demand::default()) };
    let layout = Layout::simple(1);
    let at = |now_ms| {
        let situation =
            Situation { layout: &layout, waiting: std::slice::from_ref(&late), running: &[], spent: &[], now_ms };
        place(&situation).remove(0)
    };
    assert_eq!(waits(&at(hour_ms)).1, "BACKOFF");
    assert_eq!(at(hour_ms - 1), start(ANY_POOL, "auto"), "it was not queued yet by this clock");
    assert_eq!(at(0), start(ANY_POOL, "auto"));
}

fn any_demand() -> impl Strategy<Value = Demand> {
    let queue = prop_oneof![Just("default"), Just("gpu"), Just("strict")];
    let device = prop_oneof![Just("auto"), Just("cpu"), Just("gpu"), Just("vulkan:0")];
    let slots = prop_oneof![Just(250_u32), Just(1000), Just(2000)];
    (queue, 0..3_i32, any::<bool>(), device, slots).prop_map(|(queue, priority, preemptible, device, slots_milli)| {
        Demand { queue: queue.to_owned(), priority, preemptible, device: device.to_owned(), slots_milli }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever waits and runs: no pool is overfull, nobody is evicted who must not be, and nobody for nothing.
    #[test]
    fn no_decision_breaks_a_promise(
        waits_for in prop::collection::vec(any_demand(), 0..12),
        runs in prop::collection::vec((any_demand(), 0..3_usize, any::<bool>(), 0..50_u64), 0..8),
    ) {
        let strict = Queue { pools: vec!["vulkan:0".to_owned(), "cpu".to_owned()], spill: false, max_running_jobs: Some(2) };
        let layout = two_pools(true).with_queue("strict", strict).with_pool("vulkan:0", Some("vulkan:0"), 2.0);
        let mut jobs: Vec<_> = waits_for.iter().enumerate().map(|(at, demand)| waiting(&format!("w{at}"), demand.clone())).collect();
        jobs.sort_by_key(|job| (-job.demand.priority, job.demand.preemptible));
        let mut held: BTreeMap<&str, u32> = BTreeMap::new();
        let mut active = Vec::new();
        for (at, (demand, pool, ending, started_ms)) in runs.iter().enumerate() {
            let pool = ["any", "vulkan:0", "cpu"][*pool];
            let room = layout.pools[pool].slots_milli - held.get(pool).copied().unwrap_or(0);
            if demand.slots_milli <= room {
                *held.entry(pool).or_default() += demand.slots_milli;
                let state = if *ending { JobState::Stopping } else { JobState::Running };
                active.push(Running { state, started_ms: *started_ms, ..running(&format!("r{at}"), pool, demand.clone()) });
            }
        }
        let verdicts = decide(&layout, &jobs, &active);
        prop_assert_eq!(verdicts.len(), jobs.len());
        let mut evicted = Vec::new();
        for (job, verdict) in jobs.iter().zip(&verdicts) {
            match verdict {
                Verdict::Start { pool, device } => {
                    prop_assert!(layout.queues[&job.demand.queue].pools.contains(pool));
                    prop_assert!(layout.pools[pool].takes(&job.demand.device));
                    prop_assert_eq!(device, &layout.pools[pool].gives(&job.demand.device));
                    *held.entry(layout.pools.get_key_value(pool).unwrap().0).or_default() += job.demand.slots_milli;
                }
                Verdict::Wait { evict, .. } => for id in evict {
                    let victim = active.iter().find(|running| running.id == *id).unwrap();
                    prop_assert!(victim.demand.preemptible && victim.state != JobState::Stopping);
                    prop_assert!(victim.demand.priority <= job.demand.priority);
                    evicted.push(id);
                },
            }
        }
        for (pool, slots) in &held {
            prop_assert!(*slots <= layout.pools[*pool].slots_milli, "{} holds {}", pool, slots);
        }
        let count = evicted.len();
        evicted.sort();
        evicted.dedup();
        prop_assert_eq!(evicted.len(), count);
        // Turns are kept: among jobs that ask for the same, none starts that comes after one which waits for a slot.
        for (at, later) in jobs.iter().enumerate() {
            if matches!(verdicts[at], Verdict::Start { .. }) {
                for (earlier, verdict) in jobs[..at].iter().zip(&verdicts) {
                    let same = (&earlier.demand.queue, &earlier.demand.device, earlier.demand.slots_milli)
                        == (&later.demand.queue, &later.demand.device, later.demand.slots_milli);
                    let waits_for_slot =
                        matches!(verdict, Verdict::Wait { reason, .. } if reason.code == "WAITING_FOR_SLOT");
                    prop_assert!(!(same && waits_for_slot), "{} passes {}", later.name, earlier.name);
                }
            }
        }
    }
}
