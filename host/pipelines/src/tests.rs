//! Random pipelines, outcomes and kills: no step is done twice, none is lost, and the order is kept.

mod memory_records;
mod simulated_server;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use saggar_clock::{Clock, ManualClock, SystemClock};
use saggar_metrics::MetricsRegistry;
use saggar_project::{PipelinePlan, PipelineStep, StepKind, StepSource};
use saggar_store::AccessRights;
use saggar_store::records::{
    PipelineRecords, PipelineRunFilter, PipelineRunRecord, PipelineRunState, PipelineStepRecord, PipelineStepState,
    StateReason,
};
use serde_json::json;

use crate::driver::RunDriver;
use crate::engine::step_outcome;
use crate::error::PipelineError;
use crate::run_metrics::RunMetrics;
use crate::run_view::{RunGraph, current_attempts};
use crate::schedules::start_due_runs;
use crate::service::{PipelineService, RunRequest};
use memory_records::MemoryRecords;
use simulated_server::{KillSwitch, RandomNumbers, SimulatedServer};

/// Returns a random plan. Steps depend only on earlier ones.
fn random_plan(random: &mut RandomNumbers) -> PipelinePlan {
    let count = 1 + random.below(9);
    let mut steps: Vec<PipelineStep> = Vec::new();
    for at in 0..count {
        let kind =
            [StepKind::Train, StepKind::Train, StepKind::Plugin, StepKind::Data, StepKind::Deploy, StepKind::Approve]
                [random.below(6) as usize];
        let has_args = |kind: StepKind| matches!(kind, StepKind::Train | StepKind::Plugin);
        let mut step = PipelineStep { name: format!("s{at}"), kind, ..PipelineStep::default() };
        for source in 0..at {
            let source = &steps[source as usize];
            match random.below(6) {
                0 => step.after.push(source.name.clone()),
                1 if has_args(kind) && source.kind.is_job() => {
                    let output = format!("${{steps.{}.outputs.job}}", source.name);
                    step.args.insert(format!("from-{}", source.name), json!(output));
                }
                2 if source.kind.is_job() && source.for_each.is_none() => {
                    step.when.push(json!(format!("${{steps.{}.outputs.job}} != 'j-{}'", source.name, at)));
                }
                1 if kind == StepKind::Data && has_args(source.kind) && source.for_each.is_none() => {
                    step.from = Some(StepSource::Reference(format!("${{steps.{}.outputs.output}}", source.name)));
                }
                _ => {}
            }
        }
        if random.below(8) == 0 {
            step.when.push(json!("${params.go}"));
        }
        match kind {
            StepKind::Train | StepKind::Plugin => {
                step.spec.insert("plugin".to_owned(), json!("0".repeat(64)));
                if random.below(3) == 0 {
                    step.for_each = Some(json!((0..random.below(4)).collect::<Vec<_>>()));
                    step.args.insert("x".to_owned(), json!("${item}"));
                    step.max_parallel = (random.below(2) == 0).then_some(1);
                }
            }
            StepKind::Data => {
                step.dataset = Some("d".to_owned());
                step.from.get_or_insert(StepSource::Reference("job:a-1/output".to_owned()));
            }
            StepKind::Deploy => step.from = Some(StepSource::Reference("model:m@1".to_owned())),
            _ => {}
        }
        steps.push(step);
    }
    let params = json!({ "go": random.below(2) == 0 }).as_object().cloned().unwrap();
    PipelinePlan { name: "n".to_owned(), project: "p".to_owned(), params, steps }
}

/// A server that is killed and started again, with its records and jobs.
struct TestWorld {
    records: Arc<MemoryRecords>,
    server: Arc<SimulatedServer>,
    kills: Arc<KillSwitch>,
}

impl TestWorld {
    fn new(random: RandomNumbers, kill_percent: u64) -> TestWorld {
        let kills = Arc::new(KillSwitch::new(random, kill_percent));
        let records = Arc::new(MemoryRecords::new(Arc::clone(&kills)));
        let server = Arc::new(SimulatedServer::new(Arc::clone(&kills)));
        TestWorld { records, server, kills }
    }

    fn driver(&self) -> RunDriver {
        let records: Arc<dyn PipelineRecords> = Arc::<MemoryRecords>::clone(&self.records);
        let port = Arc::<SimulatedServer>::clone(&self.server);
        let metrics = RunMetrics::new(&MetricsRegistry::new());
        RunDriver { records, port, clock: Arc::new(SystemClock), metrics }
    }

    async fn start(&self, plan: &PipelinePlan) -> PipelineRunRecord {
        self.kills.without_kills(|| ());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let records: Arc<dyn PipelineRecords> = Arc::<MemoryRecords>::clone(&self.records);
        let service = PipelineService::new(records, clock, &MetricsRegistry::new());
        let request = RunRequest { plan: plan.clone(), ..RunRequest::default() };
        let run = service.start(&request, AccessRights::default(), None).await.unwrap();
        self.kills.enable();
        run
    }

    /// Drives the run to its end, over any number of kills. People approve what waits.
    async fn drive_to_end(&self, id: &str) -> PipelineRunRecord {
        for _ in 0..20_000 {
            // An error is a kill: the next turn is another server.
            let _ = self.driver().drive(id).await;
            self.kills.restart();
            self.server.work();
            let run = self.kills.without_kills(|| {
                self.records.approve_all(id);
                self.records.get_run(id).unwrap()
            });
            if run.state.is_final() {
                return run;
            }
        }
        panic!("the run does not end: {:#?}", self.kills.without_kills(|| self.records.steps(id)));
    }

    fn service(&self) -> PipelineService {
        let records: Arc<dyn PipelineRecords> = Arc::<MemoryRecords>::clone(&self.records);
        PipelineService::new(records, Arc::new(SystemClock), &MetricsRegistry::new())
    }
}

/// Checks the records of an ended run against the jobs that the server did.
fn check_ended(world: &TestWorld, run: &PipelineRunRecord) {
    let graph = RunGraph::read(run).unwrap();
    let attempts = world.kills.without_kills(|| world.records.steps(&run.id).unwrap());
    let states = graph.item_states(&attempts);
    for (position, items) in states.iter().enumerate() {
        let step = &graph.plan.steps[position];
        for state in items {
            assert!(state.is_final(), "{} is {}", step.name, state.name());
        }
    }
    for attempt in current_attempts(&attempts) {
        let (position, item) = (attempt.position as usize, attempt.item as usize);
        let successes = world.server.successes(&run.id, position, item);
        assert!(successes <= 1, "step {} item {item} succeeded {successes} times", attempt.step);
        let is_job = graph.plan.steps[position].kind.is_job();
        assert_eq!(successes == 1, is_job && attempt.state == PipelineStepState::Succeeded, "{attempt:?}");
    }
    // Every job belongs to the attempt that records it.
    let recorded = attempts.iter().filter_map(|attempt| attempt.job.as_deref()).count();
    assert_eq!(recorded, world.server.job_count(&run.id), "a job was lost");
    let outcomes: Vec<_> = states.iter().filter_map(|items| step_outcome(items)).collect();
    let has = |state: PipelineStepState| outcomes.contains(&state);
    let expected = match (has(PipelineStepState::Cancelled), has(PipelineStepState::Failed)) {
        (true, _) => PipelineRunState::Cancelled,
        (false, true) => PipelineRunState::Failed,
        (false, false) => PipelineRunState::Succeeded,
    };
    assert_eq!(run.state, expected);
}

/// Checks that every job began after the steps before it had ended well.
fn check_order(world: &TestWorld, run: &PipelineRunRecord) {
    let graph = RunGraph::read(run).unwrap();
    let starts = world.server.starts(&run.id);
    let ends = world.server.last_success(&run.id);
    for (position, begun) in &starts {
        for dependency in &graph.dependencies[*position] {
            if let Some(end) = ends.get(&dependency.step) {
                assert!(end < begun, "step {position} began at {begun}, and {} ended at {end}", dependency.step);
            }
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn no_step_is_done_twice_or_lost_whenever_the_server_is_killed(seed in any::<u64>(), kill_percent in 0_u64..40) {
        runtime().block_on(async {
            let mut random = RandomNumbers::new(seed);
            let plan = random_plan(&mut random);
            let world = TestWorld::new(random, kill_percent);
            let run = world.start(&plan).await;
            let ended = world.drive_to_end(&run.id).await;
            check_ended(&world, &ended);
            check_order(&world, &ended);
            // What failed is done again, and nothing else.
            if ended.state != PipelineRunState::Succeeded {
                let before: BTreeMap<_, _> = world.server.all_successes(&ended.id);
                world.server.succeed_from_now_on();
                world.kills.disable();
                world.service().restart(&ended, None).await.unwrap();
                world.kills.enable();
                let again = world.drive_to_end(&ended.id).await;
                assert_eq!(again.state, PipelineRunState::Succeeded, "{:?}", again.reason);
                check_ended(&world, &again);
                for (item, count) in before {
                    assert_eq!(world.server.all_successes(&ended.id)[&item], count, "{item:?} was done again");
                }
            }
        });
    }

    #[test]
    fn a_stopped_run_ends_whenever_the_server_is_killed(seed in any::<u64>(), kill_percent in 0_u64..40) {
        runtime().block_on(async {
            let mut random = RandomNumbers::new(seed);
            let plan = random_plan(&mut random);
            let turns = random.below(6);
            let world = TestWorld::new(random, kill_percent);
            let run = world.start(&plan).await;
            for _ in 0..turns {
                let _ = world.driver().drive(&run.id).await;
                world.kills.restart();
                world.server.work();
            }
            world.kills.disable();
            let is_over = world.service().stop(&run, "a test").await.is_err();
            world.kills.enable();
            let ended = world.drive_to_end(&run.id).await;
            check_ended(&world, &PipelineRunRecord { state: expected_state(&world, &ended), ..ended.clone() });
            assert!(is_over || ended.state != PipelineRunState::Succeeded, "{ended:?}");
        });
    }
}

/// Returns the state of a run by its steps alone: a stopped run is cancelled even if every step was over.
fn expected_state(world: &TestWorld, run: &PipelineRunRecord) -> PipelineRunState {
    let attempts = world.kills.without_kills(|| world.records.steps(&run.id).unwrap());
    let states = RunGraph::read(run).unwrap().item_states(&attempts);
    let has = |state: PipelineStepState| states.iter().any(|items| step_outcome(items) == Some(state));
    match (has(PipelineStepState::Cancelled), has(PipelineStepState::Failed)) {
        (true, _) => PipelineRunState::Cancelled,
        (false, true) => PipelineRunState::Failed,
        (false, false) => PipelineRunState::Succeeded,
    }
}

/// Returns a plan of training steps, each with these members.
fn plan(steps: &[serde_json::Value]) -> PipelinePlan {
    let steps = steps.iter().map(|step| {
        let mut step = step.clone();
        if step["kind"].is_null() {
            step["spec"] = json!({ "plugin": "0".repeat(64) });
        }
        step
    });
    serde_json::from_value(json!({ "name": "n", "project": "p", "steps": steps.collect::<Vec<_>>() })).unwrap()
}

#[test]
fn a_cached_step_uses_the_earlier_result_and_says_so() {
    runtime().block_on(async {
        let world = TestWorld::new(RandomNumbers::new(7), 0);
        world.server.succeed_from_now_on();
        let cached = plan(&[
            json!({ "name": "a", "cache": true, "args": { "x": 1, "y": 2 } }),
            json!({ "name": "b", "cache": true, "args": { "from": "${steps.a.outputs.job}" } }),
            json!({ "name": "c", "args": { "run": "${run.name}" } }),
        ]);
        let first = world.start(&cached).await;
        world.drive_to_end(&first.id).await;
        let second = world.start(&cached).await;
        world.drive_to_end(&second.id).await;
        let attempts = world.records.steps(&second.id).unwrap();
        let sources: Vec<_> = attempts.iter().map(|attempt| attempt.cached_from.as_deref()).collect();
        assert_eq!(sources, [Some("n-1"), Some("n-1"), None]);
        assert_eq!(attempts[0].reason.sentence, "computed by n-1");
        assert_eq!(world.server.job_count(&second.id), 1);
        // Another parameter, or a result that was removed, is computed.
        world.server.remove_outputs();
        let third = world.start(&cached).await;
        world.drive_to_end(&third.id).await;
        assert_eq!(world.server.job_count(&third.id), 3);
    });
}

#[test]
fn a_repeated_step_continues_from_its_own_checkpoint() {
    runtime().block_on(async {
        let world = TestWorld::new(RandomNumbers::new(7), 0);
        let once = plan(&[json!({ "name": "a", "init_from": "model:base@1" })]);
        world.server.fail_from_now_on();
        let run = world.start(&once).await;
        let failed = world.drive_to_end(&run.id).await;
        assert_eq!(failed.state, PipelineRunState::Failed);
        world.server.succeed_from_now_on();
        world.service().restart(&failed, None).await.unwrap();
        let ended = world.drive_to_end(&run.id).await;
        assert_eq!(ended.state, PipelineRunState::Succeeded);
        assert_eq!(world.server.initial_states(&run.id), ["model:base@1", "job:j-1/checkpoint@50"]);
        // Repeated after its success, it begins with the base again.
        world.service().restart(&ended, Some("a")).await.unwrap();
        world.drive_to_end(&run.id).await;
        assert_eq!(world.server.initial_states(&run.id)[2], "model:base@1");
    });
}

#[test]
fn a_job_that_succeeds_without_a_used_output_fails_its_step() {
    runtime().block_on(async {
        let world = TestWorld::new(RandomNumbers::new(7), 0);
        world.server.succeed_from_now_on();
        let steps = |when: bool| {
            plan(&[
                json!({ "name": "a" }),
                json!({ "name": "b", "args": { "job": "${steps.a.outputs.job}" } }),
                json!({ "name": "c", "init_from": "${steps.a.outputs.model}", "when": [when] }),
            ])
        };
        let run = world.start(&steps(true)).await;
        let failed = world.drive_to_end(&run.id).await;
        let attempts = world.records.steps(&run.id).unwrap();
        let reason = "job j-1 succeeded without the output `model`, which step c uses; its plugin published no model";
        assert_eq!((failed.state, attempts[0].reason.code.as_str()), (PipelineRunState::Failed, "MISSING_OUTPUT"));
        assert_eq!(attempts[0].reason.sentence, reason);
        assert_eq!(attempts[1].reason.sentence, "step a failed");
        // A step that is skipped needs nothing.
        let run = world.start(&steps(false)).await;
        assert_eq!(world.drive_to_end(&run.id).await.state, PipelineRunState::Succeeded);
    });
}

#[test]
fn a_rejected_approval_fails_what_comes_after_it() {
    runtime().block_on(async {
        let world = TestWorld::new(RandomNumbers::new(7), 0);
        let guarded = plan(&[
            json!({ "name": "ask", "kind": "approve", "message": "deploy ${run.name}?" }),
            json!({ "name": "serve", "kind": "deploy", "from": "model:m@1", "after": ["ask"] }),
        ]);
        let run = world.start(&guarded).await;
        world.driver().drive(&run.id).await.unwrap();
        let waiting = world.records.steps(&run.id).unwrap().remove(0);
        assert_eq!((waiting.state, waiting.reason.sentence.as_str()), (PipelineStepState::Waiting, "deploy n-1?"));
        let service = world.service();
        assert!(service.decide_approval(&run, "serve", true, "me").await.is_err());
        assert!(service.decide_approval(&run, "nothing", true, "me").await.is_err());
        service.decide_approval(&run, "ask", false, "me").await.unwrap();
        assert!(service.decide_approval(&run, "ask", true, "me").await.is_err(), "it was decided");
        world.driver().drive(&run.id).await.unwrap();
        let steps = world.records.steps(&run.id).unwrap();
        assert_eq!((steps[0].reason.code.as_str(), steps[1].reason.sentence.as_str()), ("REJECTED", "step ask failed"));
        assert_eq!(world.records.get_run(&run.id).unwrap().state, PipelineRunState::Failed);
        assert_eq!(world.server.deployments(), 0);
    });
}

#[test]
fn skipped_steps_skip_only_what_uses_their_outputs() {
    runtime().block_on(async {
        let world = TestWorld::new(RandomNumbers::new(7), 0);
        world.server.succeed_from_now_on();
        let steps = plan(&[
            json!({ "name": "a", "when": [false] }),
            json!({ "name": "uses", "args": { "x": "${steps.a.outputs.job}" } }),
            json!({ "name": "after", "after": ["a"] }),
            json!({ "name": "none", "for_each": [] }),
        ]);
        let run = world.start(&steps).await;
        let ended = world.drive_to_end(&run.id).await;
        let reasons: Vec<_> =
            world.records.steps(&run.id).unwrap().iter().map(|it| (it.state.name(), it.reason.code.clone())).collect();
        let skipped = |code: &str| ("SKIPPED", code.to_owned());
        assert_eq!(ended.state, PipelineRunState::Succeeded);
        assert_eq!(reasons[0], skipped("CONDITION_FALSE"));
        assert_eq!(reasons[1], skipped("INPUT_SKIPPED"));
        assert_eq!(reasons[2].0, "SUCCEEDED");
        assert_eq!(reasons[3], skipped("NO_ITEMS"));
    });
}

#[test]
fn conditions_on_outputs_are_decided_once_the_outputs_exist() {
    runtime().block_on(async {
        let world = TestWorld::new(RandomNumbers::new(7), 0);
        world.server.succeed_from_now_on();
        let go = json!(["${steps.a.outputs.job} == 'j-1'"]);
        let steps = plan(&[
            json!({ "name": "a" }),
            json!({ "name": "yes", "when": go }),
            json!({ "name": "no", "when": ["${steps.a.outputs.job} != 'j-1'"] }),
            json!({ "name": "uses", "args": { "x": "${steps.no.outputs.job}" } }),
            json!({ "name": "after", "after": ["no"] }),
            json!({ "name": "compares", "when": ["${steps.no.outputs.job} == 'x'"] }),
        ]);
        let run = world.start(&steps).await;
        let ended = world.drive_to_end(&run.id).await;
        assert_eq!(ended.state, PipelineRunState::Succeeded);
        let reasons = |attempts: Vec<PipelineStepRecord>| -> Vec<String> {
            attempts.iter().map(|it| format!("{} {}", it.state.name(), it.reason.code)).collect()
        };
        let expected = [
            "SUCCEEDED ",
            "SUCCEEDED ",
            "SKIPPED CONDITION_FALSE",
            "SKIPPED INPUT_SKIPPED",
            "SUCCEEDED ",
            "SKIPPED INPUT_SKIPPED",
        ];
        assert_eq!(reasons(world.records.steps(&run.id).unwrap()), expected);

        // A step that fails decides no condition.
        world.server.fail_from_now_on();
        let steps = plan(&[json!({ "name": "a" }), json!({ "name": "b", "when": ["${steps.a.outputs.job} == 'x'"] })]);
        let run = world.start(&steps).await;
        assert_eq!(world.drive_to_end(&run.id).await.state, PipelineRunState::Failed);
        let failed = reasons(world.records.steps(&run.id).unwrap());
        assert_eq!(failed[1], "FAILED UPSTREAM_FAILED");

        // An output of another type than expected, which only a plugin without declarations can have.
        world.server.succeed_from_now_on();
        let steps = plan(&[
            json!({ "name": "a", "kind": "plugin", "spec": { "plugin": "0".repeat(64) } }),
            json!({ "name": "b", "when": ["${steps.a.outputs.dataset} > 0.5"] }),
        ]);
        let run = world.start(&steps).await;
        world.drive_to_end(&run.id).await;
        let steps = world.records.steps(&run.id).unwrap();
        assert_eq!((steps[1].state, steps[1].reason.code.as_str()), (PipelineStepState::Failed, "CONDITION_INVALID"));
        assert!(steps[1].reason.sentence.contains("\"d/1\" is not a number"), "{:?}", steps[1].reason);
    });
}

#[test]
fn plans_whose_jobs_cannot_be_described_are_refused() {
    let check = |step: serde_json::Value| {
        let request = RunRequest { plan: plan(&[step]), ..RunRequest::default() };
        PipelineService::check(&request).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(check(json!({ "name": "a" })), Ok(()));
    let bad = json!({ "name": "a", "args": { "x": "y".repeat(70_000) } });
    assert!(check(bad).unwrap_err().contains("bytes"));
    let bad = json!({ "name": "a", "kind": "train", "spec": { "plugin": "x" } });
    assert!(check(bad).unwrap_err().contains("64 hexadecimal digits"));
    let bad = json!({ "name": "a", "kind": "train", "spec": { "plugin": "0".repeat(64), "project": "other" } });
    assert!(check(bad).unwrap_err().contains("project"));
    let bad = json!({ "name": "a", "kind": "approve", "spec": { "plugin": "x" } });
    assert!(check(bad).unwrap_err().contains("no specification of a job"));
}

#[test]
fn a_scheduled_pipeline_starts_once_for_each_time_and_not_beside_its_previous_run() {
    const NOON: u64 = 1_795_262_400_000;
    const DAY: u64 = 24 * 3_600_000;
    runtime().block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let records: Arc<dyn PipelineRecords> =
            saggar_store::records::open(directory.path().join("saggar.db")).unwrap();
        let clock = Arc::new(ManualClock::new(NOON));
        let service =
            PipelineService::new(Arc::clone(&records), Arc::<ManualClock>::clone(&clock), &MetricsRegistry::new());
        let request = RunRequest { plan: plan(&[json!({ "name": "a" })]), ..RunRequest::default() };
        assert!(service.set_schedule("61 * * * *", &request, AccessRights::default()).await.is_err());
        let reusing = RunRequest { from_failed: Some("n-1".to_owned()), ..request.clone() };
        let refused = service.set_schedule("15 1 * * *", &reusing, AccessRights::default()).await;
        assert!(matches!(refused, Err(PipelineError::ScheduledReuse { run }) if run == "n-1"));
        service.set_schedule("15 1 * * *", &request, AccessRights::default()).await.unwrap();
        let runs = async || {
            start_due_runs(&service).await;
            service.list(PipelineRunFilter::default()).await.unwrap().len()
        };
        assert_eq!(runs().await, 0);
        clock.set(NOON + DAY);
        assert_eq!((runs().await, runs().await), (1, 1));
        // The run is not over: the next night is skipped.
        clock.set(NOON + 2 * DAY);
        assert_eq!(runs().await, 1);
        let first = service.get("n-1").await.unwrap();
        records.finish_run(&first.id, PipelineRunState::Succeeded, &StateReason::default(), NOON).unwrap();
        clock.set(NOON + 5 * DAY);
        assert_eq!(runs().await, 2, "of three missed nights, the last one counts");
        let (schedule, next) = service.schedules().await.unwrap().remove(0);
        assert_eq!(schedule.last_run.as_deref(), Some("n-2"));
        assert!(next.unwrap() > clock.now_ms());
        service.remove_schedule("n").await.unwrap();
        assert!(service.remove_schedule("n").await.is_err());
    });
}
