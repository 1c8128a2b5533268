use std::sync::LazyLock;

use proptest::prelude::*;
use saggar_store::records::{JobOrders, SchedulingRequest};

use super::*;
use crate::scheduler_config::{ANY_POOL, DEFAULT_QUEUE};

mod gang;
mod hosts;

/// The only server.
static HERE: ServerIdentity = ServerIdentity { name: String::new(), id: String::new(), storage: String::new() };
/// What it offers.
static OFFER: LazyLock<HostOffer> = LazyLock::new(HostOffer::default);

fn waiting(name: &str, demand: SchedulingRequest) -> QueuedJob {
    QueuedJob {
        id: name.to_owned(),
        name: name.to_owned(),
        project: "p".to_owned(),
        owner: None,
        demand,
        not_before_ms: 0,
        backoff_ms: 0,
        reason: StateReason::default(),
        storage: String::new(),
        room: None,
        attempts: 0,
    }
}

fn running(name: &str, pool: &str, demand: SchedulingRequest) -> ActiveJob {
    ActiveJob {
        id: name.to_owned(),
        name: name.to_owned(),
        project: "p".to_owned(),
        owner: None,
        demand,
        pool: pool.to_owned(),
        server_id: String::new(),
        hosts: Vec::new(),
        started_ms: 0,
        state: JobState::Running,
        orders: JobOrders::default(),
    }
}

fn demand(priority: i32, preemptible: bool) -> SchedulingRequest {
    SchedulingRequest { priority, preemptible, ..SchedulingRequest::default() }
}

fn demand_on(queue: &str, device: &str) -> SchedulingRequest {
    SchedulingRequest { queue: queue.to_owned(), device: device.to_owned(), ..SchedulingRequest::default() }
}

fn input<'a>(layout: &'a SchedulerConfig, state: &'a PlacementState) -> PlacementInput<'a> {
    PlacementInput { layout, state, now_ms: 0, server: &HERE, host: &OFFER, hosts: &[], batch_job: None }
}

fn state_of(waiting: &[QueuedJob], running: &[ActiveJob]) -> PlacementState {
    PlacementState { waiting: waiting.to_vec(), running: running.to_vec(), ..PlacementState::default() }
}

fn place_waiting(layout: &SchedulerConfig, waiting: &[QueuedJob], running: &[ActiveJob]) -> Vec<PlacementDecision> {
    place_jobs(&input(layout, &state_of(waiting, running)))
}

fn start_on(pool: &str, device: &str) -> PlacementDecision {
    PlacementDecision::Start { pool: pool.to_owned(), device: device.to_owned(), hosts: Vec::new() }
}

/// Returns the position, code and preempted jobs of a wait.
fn wait_details(verdict: &PlacementDecision) -> (u64, &str, Vec<&str>) {
    match verdict {
        PlacementDecision::Wait { position, reason, evict } => {
            assert!(!reason.sentence.is_empty());
            (*position, &reason.code, evict.iter().map(String::as_str).collect())
        }
        PlacementDecision::Start { .. } => panic!("{verdict:?} starts"),
    }
}

fn two_pools(spill: bool) -> SchedulerConfig {
    let pools = vec!["vulkan:0".to_owned(), "cpu".to_owned()];
    SchedulerConfig::single_queue(1).with_queue("gpu", JobQueue { pools, spill, max_running_jobs: None })
}

#[test]
fn jobs_start_until_the_slots_are_used_up() {
    let jobs = ["a", "b", "c"].map(|name| waiting(name, SchedulingRequest::default()));
    let verdicts = place_waiting(&SchedulerConfig::single_queue(2), &jobs, &[]);
    assert_eq!(verdicts[..2], [start_on(ANY_POOL, "auto"), start_on(ANY_POOL, "auto")]);
    assert_eq!(wait_details(&verdicts[2]), (1, "WAITING_FOR_SLOT", vec![]));
}

#[test]
fn a_full_pool_spills_to_the_next_in_order() {
    let jobs = ["a", "b", "c"].map(|name| waiting(name, demand_on("gpu", "auto")));
    let verdicts = place_waiting(&two_pools(true), &jobs, &[]);
    assert_eq!(verdicts[..2], [start_on("vulkan:0", "vulkan:0"), start_on("cpu", "cpu")]);
    assert_eq!(wait_details(&verdicts[2]).1, "WAITING_FOR_SLOT");
    let verdicts = place_waiting(&two_pools(false), &jobs, &[]);
    assert_eq!(verdicts[0], start_on("vulkan:0", "vulkan:0"));
    assert_eq!((wait_details(&verdicts[1]).0, wait_details(&verdicts[2]).0), (1, 2));
    // A job that requests the CPU starts there at once, ahead of jobs that wait for the other pool.
    let asks = [
        waiting("a", demand_on("gpu", "gpu")),
        waiting("b", demand_on("gpu", "gpu")),
        waiting("c", demand_on("gpu", "cpu")),
    ];
    let verdicts = place_waiting(&two_pools(true), &asks, &[]);
    assert_eq!((&verdicts[0], &verdicts[2]), (&start_on("vulkan:0", "vulkan:0"), &start_on("cpu", "cpu")));
    assert_eq!(wait_details(&verdicts[1]).1, "WAITING_FOR_SLOT");
}

#[test]
fn a_job_that_can_never_run_waits_with_the_reason() {
    let jobs = [waiting("a", demand_on("nowhere", "auto")), waiting("b", demand_on("gpu", "vulkan:7"))];
    let verdicts = place_waiting(&two_pools(true), &jobs, &[]);
    assert_eq!(wait_details(&verdicts[0]).1, "NO_SUCH_QUEUE");
    assert_eq!(wait_details(&verdicts[1]).1, "NO_SUCH_DEVICE");
    let large = [
        waiting("a", SchedulingRequest { slots_milli: 4000, ..SchedulingRequest::default() }),
        waiting("b", SchedulingRequest::default()),
    ];
    let verdicts = place_waiting(&SchedulerConfig::single_queue(2), &large, &[]);
    assert_eq!(wait_details(&verdicts[0]).1, "INSUFFICIENT_GPU");
    assert_eq!(verdicts[1], start_on(ANY_POOL, "auto"), "what can never run keeps nobody waiting");
}

#[test]
fn a_large_job_is_not_overtaken_by_small_ones() {
    let many = SchedulingRequest { slots_milli: 2000, ..SchedulingRequest::default() };
    let jobs = [waiting("many", many), waiting("few", SchedulingRequest::default())];
    let verdicts = place_waiting(
        &SchedulerConfig::single_queue(2),
        &jobs,
        &[running("r", ANY_POOL, SchedulingRequest::default())],
    );
    assert_eq!((wait_details(&verdicts[0]).0, wait_details(&verdicts[1]).0), (1, 2));
}

#[test]
fn fractional_slots_add_up_to_a_whole_slot() {
    let share = SchedulingRequest { slots_milli: 250, ..SchedulingRequest::default() };
    let jobs: Vec<_> = ["a", "b", "c", "d", "e"].map(|name| waiting(name, share.clone())).into();
    let verdicts = place_waiting(&SchedulerConfig::single_queue(1), &jobs, &[]);
    assert!(verdicts[..4].iter().all(|verdict| *verdict == start_on(ANY_POOL, "auto")));
    assert_eq!(wait_details(&verdicts[4]).1, "WAITING_FOR_SLOT");
}

#[test]
fn only_preemptible_jobs_of_lower_rank_are_evicted() {
    let layout = SchedulerConfig::single_queue(1);
    let evicts = |waits_for: SchedulingRequest, runs: SchedulingRequest| {
        let verdicts = place_waiting(&layout, &[waiting("w", waits_for)], &[running("r", ANY_POOL, runs)]);
        !wait_details(&verdicts[0]).2.is_empty()
    };
    assert!(evicts(demand(50, false), demand(50, true)), "a dedicated job takes the place of a preemptible one");
    assert!(evicts(demand(60, true), demand(50, true)));
    assert!(evicts(demand(60, false), demand(50, true)));
    assert!(!evicts(demand(50, true), demand(50, true)));
    assert!(!evicts(demand(40, false), demand(50, true)));
    assert!(!evicts(demand(100, false), demand(0, false)), "a dedicated job is never evicted");
}

#[test]
fn one_job_is_evicted_per_waiting_job() {
    let layout = SchedulerConfig::single_queue(2);
    let runs = [running("low", ANY_POOL, demand(10, true)), running("lower", ANY_POOL, demand(5, true))];
    let jobs = ["a", "b", "c"].map(|name| waiting(name, demand(50, false)));
    let verdicts = place_waiting(&layout, &jobs, &runs);
    assert_eq!(wait_details(&verdicts[0]).2, ["lower"]);
    assert_eq!(wait_details(&verdicts[1]).2, ["low"]);
    assert!(wait_details(&verdicts[2]).2.is_empty());
    // While it saves its state, no other job is preempted.
    let ending = ActiveJob { state: JobState::Stopping, ..runs[1].clone() };
    let verdicts = place_waiting(&layout, &jobs[..1], &[runs[0].clone(), ending]);
    assert!(wait_details(&verdicts[0]).2.is_empty());
}

#[test]
fn jobs_over_a_quota_wait_instead_of_failing() {
    let mut layout = SchedulerConfig::single_queue(9);
    layout.owners.insert("ci".to_owned(), ResourceQuota { max_running_jobs: Some(1), gpu_seconds: None });
    layout.projects.insert("q".to_owned(), ResourceQuota { max_running_jobs: None, gpu_seconds: Some(100.0) });
    let of_key = |name: &str| QueuedJob { owner: Some("ci".to_owned()), ..waiting(name, SchedulingRequest::default()) };
    let verdicts = place_waiting(&layout, &[of_key("a"), of_key("b"), waiting("c", SchedulingRequest::default())], &[]);
    assert_eq!(wait_details(&verdicts[1]), (1, "QUOTA_RUNNING_JOBS", vec![]));
    assert_eq!(verdicts[2], start_on(ANY_POOL, "auto"));

    let spent = UsageTotal { project: "q".to_owned(), owner: None, gpu_seconds: 100.0, wall_seconds: 200.0 };
    let state = PlacementState {
        waiting: vec![QueuedJob { project: "q".to_owned(), ..waiting("a", SchedulingRequest::default()) }],
        running: vec![ActiveJob { project: "q".to_owned(), ..running("r", ANY_POOL, SchedulingRequest::default()) }],
        spent: vec![spent.clone()],
        ..PlacementState::default()
    };
    let situation = input(&layout, &state);
    assert_eq!(wait_details(&place_jobs(&situation)[0]).1, "QUOTA_GPU_SECONDS");
    assert_eq!(jobs_over_budget(&situation), ["r"]);
    let less = PlacementState { spent: vec![UsageTotal { gpu_seconds: 99.9, ..spent }], ..state.clone() };
    assert!(jobs_over_budget(&PlacementInput { state: &less, ..situation }).is_empty());

    let queue =
        JobQueue { max_running_jobs: Some(1), ..SchedulerConfig::single_queue(1).queues[DEFAULT_QUEUE].clone() };
    let layout = SchedulerConfig::single_queue(9).with_queue(DEFAULT_QUEUE, queue);
    let verdicts = place_waiting(&layout, &["a", "b"].map(|name| waiting(name, SchedulingRequest::default())), &[]);
    assert_eq!(wait_details(&verdicts[1]).1, "QUOTA_RUNNING_JOBS");
}

#[test]
fn a_failed_job_waits_for_its_backoff() {
    let late = QueuedJob { not_before_ms: 5_000, backoff_ms: 5_000, ..waiting("a", SchedulingRequest::default()) };
    let layout = SchedulerConfig::single_queue(1);
    let waiting = vec![late, waiting("b", SchedulingRequest::default())];
    let state = PlacementState { waiting, ..PlacementState::default() };
    let at = |now_ms| place_jobs(&PlacementInput { now_ms, ..input(&layout, &state) });
    assert_eq!((wait_details(&at(0)[0]).1, &at(0)[1]), ("BACKOFF", &start_on(ANY_POOL, "auto")));
    assert_eq!(at(5_000)[0], start_on(ANY_POOL, "auto"));
}

#[test]
fn a_clock_set_back_does_not_lengthen_the_backoff() {
    let hour_ms = 3_600_000;
    let late =
        QueuedJob { not_before_ms: hour_ms + 2_000, backoff_ms: 2_000, ..waiting("a", SchedulingRequest::default()) };
    let layout = SchedulerConfig::single_queue(1);
    let state = PlacementState { waiting: vec![late], ..PlacementState::default() };
    let at = |now_ms| place_jobs(&PlacementInput { now_ms, ..input(&layout, &state) }).remove(0);
    assert_eq!(wait_details(&at(hour_ms)).1, "BACKOFF");
    assert_eq!(at(hour_ms - 1), start_on(ANY_POOL, "auto"), "it was not queued yet by this clock");
    assert_eq!(at(0), start_on(ANY_POOL, "auto"));
}

fn any_demand() -> impl Strategy<Value = SchedulingRequest> {
    let queue = prop_oneof![Just("default"), Just("gpu"), Just("strict")];
    let device = prop_oneof![Just("auto"), Just("cpu"), Just("gpu"), Just("vulkan:0")];
    let slots = prop_oneof![Just(250_u32), Just(1000), Just(2000)];
    (queue, 0..3_i32, any::<bool>(), device, slots).prop_map(|(queue, priority, preemptible, device, slots_milli)| {
        let (queue, device) = (queue.to_owned(), device.to_owned());
        SchedulingRequest { queue, priority, preemptible, device, slots_milli, ..SchedulingRequest::default() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// In any situation, no pool is overfull, only allowed jobs are preempted, and none without need.
    #[test]
    fn placement_never_overfills_a_pool_or_evicts_without_cause(
        waits_for in prop::collection::vec(any_demand(), 0..12),
        runs in prop::collection::vec((any_demand(), 0..3_usize, any::<bool>(), 0..50_u64), 0..8),
    ) {
        let strict = JobQueue { pools: vec!["vulkan:0".to_owned(), "cpu".to_owned()], spill: false, max_running_jobs: Some(2) };
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
                active.push(ActiveJob { state, started_ms: *started_ms, ..running(&format!("r{at}"), pool, demand.clone()) });
            }
        }
        let verdicts = place_waiting(&layout, &jobs, &active);
        prop_assert_eq!(verdicts.len(), jobs.len());
        let mut evicted = Vec::new();
        for (job, verdict) in jobs.iter().zip(&verdicts) {
            match verdict {
                PlacementDecision::Start { pool, device, .. } => {
                    prop_assert!(layout.queues[&job.demand.queue].pools.contains(pool));
                    prop_assert!(layout.pools[pool].accepts_device(&job.demand.device));
                    prop_assert_eq!(device, &layout.pools[pool].device_for(&job.demand.device));
                    *held.entry(layout.pools.get_key_value(pool).unwrap().0).or_default() += job.demand.slots_milli;
                }
                PlacementDecision::Wait { evict, .. } => for id in evict {
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
        // The order is kept: of jobs with the same request, none starts before an earlier one that waits for a slot.
        for (at, later) in jobs.iter().enumerate() {
            if matches!(verdicts[at], PlacementDecision::Start { .. }) {
                for (earlier, verdict) in jobs[..at].iter().zip(&verdicts) {
                    let same = (&earlier.demand.queue, &earlier.demand.device, earlier.demand.slots_milli)
                        == (&later.demand.queue, &later.demand.device, later.demand.slots_milli);
                    let waits_for_slot =
                        matches!(verdict, PlacementDecision::Wait { reason, .. } if reason.code == "WAITING_FOR_SLOT");
                    prop_assert!(!(same && waits_for_slot), "{} passes {}", later.name, earlier.name);
                }
            }
        }
    }

    /// Placing with the first jobs of all or else of each group, again and again, starts the jobs that placing the whole queue
    /// starts. Limits of running jobs are left out: a job that reaches one no longer reserves slots, which depends on the moment.
    #[test]
    fn a_queue_that_is_read_in_parts_starts_the_same_jobs(
        waits_for in prop::collection::vec((any_demand(), 0..3_usize), 0..24),
        slots in 1..6_u32,
        first_max in 1..8_usize,
        read_max in 1..4_usize,
    ) {
        let strict = JobQueue { spill: false, ..two_pools(true).queues["gpu"].clone() };
        let layout =
            two_pools(true).with_queue("strict", strict).with_pool(ANY_POOL, None, f64::from(slots));
        let mut jobs: Vec<_> = waits_for.iter().enumerate().map(|(at, (demand, project))| {
            QueuedJob { project: ["p", "q", "r"][*project].to_owned(), ..waiting(&format!("w{at}"), demand.clone()) }
        }).collect();
        jobs.sort_by_key(|job| (-job.demand.priority, job.demand.preemptible));
        let whole = place_in_parts(&layout, &jobs, usize::MAX, usize::MAX);
        prop_assert_eq!(place_in_parts(&layout, &jobs, first_max, read_max), whole);
    }
}

/// Places jobs until none starts. Reads the first `first_max` jobs each time and, if none of them starts and there is room,
/// the first `read_max` jobs of each group. Returns each job that started with its pool.
fn place_in_parts(
    layout: &SchedulerConfig,
    jobs: &[QueuedJob],
    first_max: usize,
    read_max: usize,
) -> BTreeMap<String, String> {
    let (mut left, mut running_jobs, mut started) = (jobs.to_vec(), Vec::new(), BTreeMap::new());
    let starts = |state: &PlacementState| {
        let decisions = place_jobs(&input(layout, state));
        decisions.iter().any(|decision| matches!(decision, PlacementDecision::Start { .. }))
    };
    loop {
        let mut counts: HashMap<_, usize> = HashMap::new();
        let empty = || PlacementState { running: running_jobs.clone(), ..PlacementState::default() };
        let mut first = empty();
        first.waiting.extend(left.iter().take(first_max).cloned());
        if left.len() > first_max {
            first.unread_after.insert(first.waiting[first_max - 1].id.clone());
        }
        let mut state = empty();
        for job in &left {
            let count = counts.entry((job.project.clone(), format!("{:?}", job.demand))).or_default();
            *count += 1;
            if *count <= read_max {
                state.waiting.push(job.clone());
            }
            if *count == read_max {
                state.unread_after.insert(job.id.clone());
            }
        }
        let is_first_enough = first.unread_after.is_empty() || !has_room(&input(layout, &first)) || starts(&first);
        if is_first_enough {
            state = first;
        }
        let verdicts = place_jobs(&input(layout, &state));
        let before = started.len();
        for (job, verdict) in state.waiting.iter().zip(verdicts) {
            let PlacementDecision::Start { pool, .. } = verdict else { continue };
            left.retain(|other| other.id != job.id);
            running_jobs
                .push(ActiveJob { project: job.project.clone(), ..running(&job.id, &pool, job.demand.clone()) });
            started.insert(job.id.clone(), pool);
        }
        if started.len() == before {
            return started;
        }
    }
}
