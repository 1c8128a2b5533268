//! A queue of jobs with random outcomes, and a switch that kills the server at random operations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use saggar_jobs::JobSpec;
use saggar_project::OutputType;
use saggar_store::records::StateReason;
use saggar_store::{AccessRights, JobState};

use crate::port::{DeployRequest, JobObservation, OutputReference, PipelinePort, PreparedJob, StepFailure, StepInput};

/// Random numbers from a seed. Source: Knuth's constants of a linear congruential generator of 64 bits.
#[derive(Clone, Debug)]
pub(super) struct RandomNumbers(u64);

impl RandomNumbers {
    pub(super) fn new(seed: u64) -> RandomNumbers {
        RandomNumbers(seed ^ 0x9E37_79B9_7F4A_7C15)
    }

    /// Returns a number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Kills the server at random operations, before or after their effect. A killed server does nothing until it is
/// started again.
#[derive(Debug)]
pub(super) struct KillSwitch {
    state: Mutex<(RandomNumbers, bool, bool)>,
    percent: u64,
}

impl KillSwitch {
    pub(super) fn new(random: RandomNumbers, percent: u64) -> KillSwitch {
        KillSwitch { state: Mutex::new((random, false, false)), percent }
    }

    pub(super) fn enable(&self) {
        self.state.lock().1 = true;
    }

    pub(super) fn disable(&self) {
        let mut state = self.state.lock();
        (state.1, state.2) = (false, false);
    }

    /// Starts the server again after a kill.
    pub(super) fn restart(&self) {
        self.state.lock().2 = false;
    }

    pub(super) fn without_kills<T>(&self, work: impl FnOnce() -> T) -> T {
        let was_enabled = std::mem::replace(&mut self.state.lock().1, false);
        let done = work();
        self.state.lock().1 = was_enabled;
        done
    }

    pub(super) fn below(&self, end: u64) -> u64 {
        self.state.lock().0.below(end)
    }

    fn kills_now(&self) -> bool {
        let mut state = self.state.lock();
        if state.1 && state.0.below(200) < self.percent {
            state.2 = true;
        }
        state.2
    }

    /// Runs an operation. Returns `None` if the server is killed before it, or before its answer arrives.
    pub(super) fn operate<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        if self.kills_now() {
            return None;
        }
        let done = work();
        (!self.kills_now()).then_some(done)
    }
}

#[derive(Clone, Debug)]
struct SimulatedJob {
    name: String,
    key: String,
    state: JobState,
    spec: JobSpec,
    begun: u64,
    ended: u64,
}

impl SimulatedJob {
    /// Returns the run, the position of the step and the item that the job's key names.
    fn place(&self) -> (String, usize, usize) {
        let mut words = self.key.split(' ').skip(1);
        let mut next = || words.next().unwrap().to_owned();
        (next(), next().parse().unwrap(), next().parse().unwrap())
    }

    fn observation(&self) -> JobObservation {
        JobObservation { name: self.name.clone(), state: self.state, reason: StateReason::default() }
    }
}

/// How jobs end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum JobOutcomes {
    Random,
    Success,
    Failure,
}

pub(super) struct SimulatedServer {
    kills: Arc<KillSwitch>,
    jobs: Mutex<Vec<SimulatedJob>>,
    outcomes: Mutex<JobOutcomes>,
    deployed: Mutex<Vec<DeployRequest>>,
    removed: Mutex<bool>,
    time: AtomicU64,
}

impl SimulatedServer {
    pub(super) fn new(kills: Arc<KillSwitch>) -> SimulatedServer {
        let (jobs, outcomes, deployed) = (Mutex::default(), Mutex::new(JobOutcomes::Random), Mutex::default());
        SimulatedServer { kills, jobs, outcomes, deployed, removed: Mutex::new(false), time: AtomicU64::new(0) }
    }

    pub(super) fn succeed_from_now_on(&self) {
        *self.outcomes.lock() = JobOutcomes::Success;
    }

    pub(super) fn fail_from_now_on(&self) {
        *self.outcomes.lock() = JobOutcomes::Failure;
    }

    pub(super) fn remove_outputs(&self) {
        *self.removed.lock() = true;
    }

    pub(super) fn deployments(&self) -> usize {
        self.deployed.lock().len()
    }

    /// Lets each job advance, perhaps. Workers survive the server's kills, as far as a run can see.
    pub(super) fn work(&self) {
        let outcomes = *self.outcomes.lock();
        for job in self.jobs.lock().iter_mut() {
            let luck = self.kills.below(100);
            job.state = match (job.state, outcomes) {
                (JobState::Queued, _) if luck < 60 => JobState::Running,
                (JobState::Stopping, _) => JobState::Cancelled,
                (JobState::Running, JobOutcomes::Success) => JobState::Succeeded,
                (JobState::Running, JobOutcomes::Failure) => JobState::Failed,
                (JobState::Running, JobOutcomes::Random) => match luck {
                    0..60 => JobState::Succeeded,
                    60..67 => JobState::Failed,
                    67..70 => JobState::Cancelled,
                    _ => JobState::Running,
                },
                (state, _) => state,
            };
            if job.state.is_final() && job.ended == 0 {
                job.ended = self.now();
            }
        }
    }

    fn now(&self) -> u64 {
        self.time.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn jobs_of(&self, run: &str) -> Vec<SimulatedJob> {
        self.jobs.lock().iter().filter(|job| job.place().0 == run).cloned().collect()
    }

    pub(super) fn job_count(&self, run: &str) -> usize {
        self.jobs_of(run).len()
    }

    pub(super) fn successes(&self, run: &str, position: usize, item: usize) -> usize {
        self.all_successes(run).get(&(position, item)).copied().unwrap_or(0)
    }

    /// Returns the number of successful jobs by position and item.
    pub(super) fn all_successes(&self, run: &str) -> BTreeMap<(usize, usize), usize> {
        let mut counts = BTreeMap::new();
        for job in self.jobs_of(run).iter().filter(|job| job.state == JobState::Succeeded) {
            let (_, position, item) = job.place();
            *counts.entry((position, item)).or_default() += 1;
        }
        counts
    }

    /// Returns the position of each job's step and when the job began.
    pub(super) fn starts(&self, run: &str) -> Vec<(usize, u64)> {
        self.jobs_of(run).iter().map(|job| (job.place().1, job.begun)).collect()
    }

    /// Returns when the last item of each step ended.
    pub(super) fn last_success(&self, run: &str) -> BTreeMap<usize, u64> {
        let mut ends = BTreeMap::new();
        for job in self.jobs_of(run) {
            let end: &mut u64 = ends.entry(job.place().1).or_default();
            *end = (*end).max(job.ended);
        }
        ends
    }

    /// Returns the initial state of each job, in order.
    pub(super) fn initial_states(&self, run: &str) -> Vec<String> {
        let text = |job: &SimulatedJob| job.spec.init_from.as_ref().map(ToString::to_string).unwrap_or_default();
        self.jobs_of(run).iter().map(text).collect()
    }

    /// Runs an operation of a server that can be killed or fail for a while.
    fn operate<T>(&self, work: impl FnOnce() -> T) -> Result<T, StepFailure> {
        self.kills.operate(work).ok_or_else(|| StepFailure::Transient("killed".to_owned()))
    }
}

#[async_trait]
impl PipelinePort for SimulatedServer {
    async fn find_job(&self, key: &str) -> Result<Option<JobObservation>, StepFailure> {
        self.operate(|| self.jobs.lock().iter().find(|job| job.key == key).map(SimulatedJob::observation))
    }

    async fn job(&self, name: &str) -> Result<Option<JobObservation>, StepFailure> {
        self.operate(|| self.jobs.lock().iter().find(|job| job.name == name).map(SimulatedJob::observation))
    }

    async fn prepare(&self, spec: JobSpec, _: &AccessRights) -> Result<PreparedJob, StepFailure> {
        let init_from = spec.init_from.as_ref().map(ToString::to_string).unwrap_or_default();
        let inputs = vec![StepInput { name: "init_from".to_owned(), reference: init_from, digest: None }];
        self.operate(|| PreparedJob { spec, inputs })
    }

    async fn submit(&self, spec: JobSpec, _: &AccessRights, key: &str) -> Result<JobObservation, StepFailure> {
        self.operate(|| {
            let mut jobs = self.jobs.lock();
            if let Some(job) = jobs.iter().find(|job| job.key == key) {
                return job.observation();
            }
            let (name, key) = (format!("j-{}", jobs.len() + 1), key.to_owned());
            jobs.push(SimulatedJob { name, key, state: JobState::Queued, spec, begun: self.now(), ended: 0 });
            jobs[jobs.len() - 1].observation()
        })
    }

    async fn stop_job(&self, name: &str, _: &StateReason) -> Result<(), StepFailure> {
        self.operate(|| {
            let mut jobs = self.jobs.lock();
            if let Some(job) = jobs.iter_mut().find(|job| job.name == name && !job.state.is_final()) {
                job.state = JobState::Stopping;
            }
        })
    }

    async fn outputs(&self, job: &str) -> Result<BTreeMap<String, OutputReference>, StepFailure> {
        let outputs = [
            ("job", OutputReference::new(OutputType::Text, job, None)),
            ("output", OutputReference::new(OutputType::Files, format!("job:{job}/output"), None)),
            ("dataset", OutputReference::new(OutputType::Dataset, "d/1", None)),
        ];
        self.operate(|| outputs.map(|(name, output)| (name.to_owned(), output)).into())
    }

    async fn newest_checkpoint(&self, job: &str) -> Result<Option<String>, StepFailure> {
        self.operate(|| Some(format!("job:{job}/checkpoint@50")))
    }

    async fn has_outputs(&self, _: &BTreeMap<String, OutputReference>) -> Result<bool, StepFailure> {
        self.operate(|| !*self.removed.lock())
    }

    async fn deploy(&self, request: &DeployRequest, _: &AccessRights) -> Result<OutputReference, StepFailure> {
        self.operate(|| {
            self.deployed.lock().push(request.clone());
            OutputReference::new(OutputType::Model, request.from.clone(), None)
        })
    }
}
