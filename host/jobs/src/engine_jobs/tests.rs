use parking_lot::Mutex;

use super::*;

/// An engine in memory, which records what it is asked.
#[derive(Debug, Default)]
struct RecordedEngine {
    calls: Mutex<Vec<String>>,
    states: Mutex<HashMap<String, EngineJobState>>,
    is_down: Mutex<bool>,
}

impl RecordedEngine {
    fn record(&self, call: String) -> Result<(), EngineError> {
        self.calls.lock().push(call);
        if *self.is_down.lock() {
            return Err(EngineError::Unavailable { engine: "Test", reason: "it is down".to_owned() });
        }
        Ok(())
    }

    fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock())
    }

    fn set_state(&self, name: &str, state: EngineJobState) {
        self.states.lock().insert(name.to_owned(), state);
    }
}

impl WorkerEngine for RecordedEngine {
    fn engine_name(&self) -> &'static str {
        "Test"
    }

    fn submit(&self, request: &EngineRequest) -> Result<(), EngineError> {
        self.record(format!("submit {}", request.engine_job()))?;
        self.set_state(&request.engine_job(), EngineJobState::Waiting("no quota".to_owned()));
        Ok(())
    }

    fn state(&self, engine_job: &str) -> Result<EngineJobState, EngineError> {
        self.record(format!("state {engine_job}"))?;
        Ok(self.states.lock().get(engine_job).cloned().unwrap_or(EngineJobState::Absent))
    }

    fn cancel(&self, engine_job: &str) -> Result<(), EngineError> {
        self.record(format!("cancel {engine_job}"))?;
        self.states.lock().remove(engine_job);
        Ok(())
    }
}

struct EngineScene {
    engine: Arc<RecordedEngine>,
    tracked: TrackedJobs,
    start: Instant,
}

impl EngineScene {
    fn new() -> EngineScene {
        EngineScene { engine: Arc::default(), tracked: TrackedJobs::default(), start: Instant::now() }
    }

    /// Follows a queue in which the first attempts of these jobs wait, and returns the calls.
    fn follow(&mut self, second: u64, wanted: &[(&str, u32)], running: &[&str]) -> Vec<String> {
        let want = |&(job, attempt): &(&str, u32)| WantedJob {
            id: job.to_owned(),
            engine: Arc::clone(&self.engine) as Arc<dyn WorkerEngine>,
            request: EngineRequest { job: job.to_owned(), attempt, project: "p".to_owned(), hosts: 1 },
        };
        let wanted: Vec<WantedJob> = wanted.iter().map(want).collect();
        let running = running.iter().map(|&id| id.to_owned()).collect();
        self.tracked.follow(&wanted, &running, self.start + Duration::from_secs(second));
        self.engine.take_calls()
    }

    fn reason(&self, id: &str) -> String {
        self.tracked.reasons().remove(id).unwrap_or_default()
    }
}

#[test]
fn a_waiting_job_is_submitted_once_and_its_state_is_asked_for_at_times() {
    let mut scene = EngineScene::new();
    assert_eq!(scene.follow(0, &[("a-1", 1)], &[]), ["submit saggar-a-1-1"]);
    assert_eq!(scene.reason("a-1"), "Test starts its worker: saggar-a-1-1 is submitted");
    assert!(scene.follow(9, &[("a-1", 1)], &[]).is_empty());
    assert_eq!(scene.follow(10, &[("a-1", 1)], &[]), ["state saggar-a-1-1"]);
    assert_eq!(scene.reason("a-1"), "Test starts its worker: saggar-a-1-1 waits: no quota");
}

#[test]
fn the_next_attempt_gets_its_own_engine_job() {
    let mut scene = EngineScene::new();
    scene.follow(0, &[("a-1", 1)], &[]);
    assert!(scene.follow(2, &[], &["a-1"]).is_empty(), "the engine job of a running attempt is its worker's");
    assert_eq!(scene.follow(4, &[("a-1", 2)], &[]), ["submit saggar-a-1-2"]);
}

#[test]
fn the_engine_job_of_a_stopped_job_is_removed_and_a_vanished_one_is_submitted_again() {
    let mut scene = EngineScene::new();
    scene.follow(0, &[("a-1", 1), ("b-1", 1)], &[]);
    assert_eq!(scene.follow(2, &[("b-1", 1)], &[]), ["cancel saggar-a-1-1"]);
    assert!(scene.follow(4, &[("b-1", 1)], &[]).is_empty());
    scene.engine.states.lock().clear();
    assert_eq!(scene.follow(10, &[("b-1", 1)], &[]), ["state saggar-b-1-1", "submit saggar-b-1-1"]);
}

#[test]
fn a_worker_that_ended_without_its_job_is_started_again_after_a_pause() {
    let mut scene = EngineScene::new();
    scene.follow(0, &[("a-1", 1)], &[]);
    scene.engine.set_state("saggar-a-1-1", EngineJobState::Ended("exit code 78".to_owned()));
    assert_eq!(scene.follow(10, &[("a-1", 1)], &[]), ["state saggar-a-1-1", "cancel saggar-a-1-1"]);
    assert!(scene.reason("a-1").contains("ended without running the job: exit code 78"), "{}", scene.reason("a-1"));
    assert!(scene.follow(39, &[("a-1", 1)], &[]).is_empty());
    assert_eq!(scene.follow(40, &[("a-1", 1)], &[]), ["submit saggar-a-1-1"]);
}

#[test]
fn requests_that_an_engine_fails_are_repeated_after_a_pause() {
    let mut scene = EngineScene::new();
    *scene.engine.is_down.lock() = true;
    assert_eq!(scene.follow(0, &[("a-1", 1)], &[]), ["submit saggar-a-1-1"]);
    assert_eq!(scene.reason("a-1"), "saggar-a-1-1: Test does not answer: it is down; trying again");
    assert!(scene.follow(29, &[("a-1", 1)], &[]).is_empty());
    *scene.engine.is_down.lock() = false;
    assert_eq!(scene.follow(30, &[("a-1", 1)], &[]), ["submit saggar-a-1-1"]);
    *scene.engine.is_down.lock() = true;
    assert_eq!(scene.follow(32, &[], &[]), ["cancel saggar-a-1-1"]);
    assert!(scene.follow(40, &[], &[]).is_empty());
    *scene.engine.is_down.lock() = false;
    assert_eq!(scene.follow(62, &[], &[]), ["cancel saggar-a-1-1"]);
    assert!(scene.follow(64, &[], &[]).is_empty());
}
