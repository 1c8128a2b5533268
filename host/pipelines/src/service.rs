//! The pipeline runs of one server, and the commands of users.

use std::sync::{Arc, OnceLock};

use saggar_clock::{Clock, UnixMillis};
use saggar_jobs::JobSpec;
use saggar_metrics::MetricsRegistry;
use saggar_project::{PipelinePlan, PlanMistake, StepKind, bind_parameters};
use saggar_store::AccessRights;
use saggar_store::error::RecordError;
use saggar_store::records::{
    NewPipelineRun, PipelineRecords, PipelineRunFilter, PipelineRunRecord, PipelineRunState, PipelineStepRecord,
    PipelineStepState, StateReason, StepChange,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::Notify;

use crate::driver::RunDriver;
use crate::engine::{self, STOPPED};
use crate::error::PipelineError;
use crate::port::PipelinePort;
use crate::run_metrics::RunMetrics;
use crate::run_view::{RunGraph, current_attempts};
use crate::step_conditions::step_conditions;
use crate::step_job::job_spec;
use crate::step_values::SampleValues;

/// The reason of an approval that was given.
const APPROVED: &str = "APPROVED";
/// The reason of an approval that was refused.
const REJECTED: &str = "REJECTED";

/// A request to run a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// The plan.
    pub plan: PipelinePlan,
    /// Values of parameters, instead of the defaults.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// The name of a run of the same pipeline that did not succeed. Its results are used where the plugin, the
    /// parameters and the contents of the inputs are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_failed: Option<String>,
}

/// The pipeline runs of one server. Cheap to clone.
#[derive(Clone)]
pub struct PipelineService {
    shared: Arc<SharedRuns>,
}

struct SharedRuns {
    records: Arc<dyn PipelineRecords>,
    clock: Arc<dyn Clock>,
    metrics: RunMetrics,
    port: OnceLock<Arc<dyn PipelinePort>>,
    wake: Notify,
}

impl std::fmt::Debug for PipelineService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PipelineService").finish_non_exhaustive()
    }
}

/// A request that has no mistakes.
#[derive(Clone, Debug)]
pub struct CheckedRun {
    /// The values of all parameters.
    pub params: Map<String, Value>,
    /// The specifications of the jobs of all steps, with a sample value for each output of a step.
    pub sample_specs: Vec<JobSpec>,
}

impl PipelineService {
    /// Creates the service for runs in `records`. No run advances before [`PipelineService::run`].
    pub fn new(records: Arc<dyn PipelineRecords>, clock: Arc<dyn Clock>, metrics: &MetricsRegistry) -> PipelineService {
        let (port, wake, metrics) = (OnceLock::new(), Notify::new(), RunMetrics::new(metrics));
        PipelineService { shared: Arc::new(SharedRuns { records, clock, metrics, port, wake }) }
    }

    /// Sets the parts of the server that run steps. Only the first call has an effect.
    pub fn set_port(&self, port: Arc<dyn PipelinePort>) {
        let _ = self.shared.port.set(port);
    }

    /// Checks a plan and the parameters of a run.
    ///
    /// # Errors
    /// `Plan`; `Parameter`; `Step` if the job of a step cannot be described.
    pub fn check(request: &RunRequest) -> Result<CheckedRun, PipelineError> {
        let RunRequest { plan, params, .. } = request;
        let name = |mistake: &PlanMistake| match mistake.step.and_then(|at| plan.steps.get(at)) {
            Some(step) => step.name.chars().take(80).collect(),
            None => String::new(),
        };
        let named = |mistakes: Vec<PlanMistake>| PipelineError::Plan {
            mistakes: mistakes.into_iter().map(|mistake| (name(&mistake), mistake)).collect(),
        };
        plan.check().map_err(named)?;
        let params = bind_parameters(&plan.params, params)?;
        // Lists given for this run can be longer than the defaults.
        let bound = PipelinePlan { params, ..plan.clone() };
        bound.check().map_err(named)?;
        let sample_specs = sample_specs(&bound)?;
        Ok(CheckedRun { params: bound.params, sample_specs })
    }

    /// Starts a run. A second request with the same idempotency key returns the run of the first one.
    ///
    /// # Errors
    /// The errors of [`PipelineService::check`]; `NotFound` or `State` if there is no run to take results from, or it
    /// cannot be one; `Records`, also if too many runs are not over.
    pub async fn start(
        &self,
        request: &RunRequest,
        rights: AccessRights,
        idempotency_key: Option<String>,
    ) -> Result<PipelineRunRecord, PipelineError> {
        let CheckedRun { params, .. } = PipelineService::check(request)?;
        let plan = &request.plan;
        let reuse_from = match &request.from_failed {
            Some(earlier) => Some(self.failed_run(plan, earlier).await?),
            None => None,
        };
        // A step without items has one, which is skipped.
        let items = |step| PipelinePlan::items(step, &params).map_or(1, |items| items.len().max(1) as u32);
        let run = NewPipelineRun {
            pipeline: plan.name.clone(),
            project: plan.project.clone(),
            plan: serde_json::to_string(plan).map_err(std::io::Error::other)?,
            params: serde_json::to_string(&params).map_err(std::io::Error::other)?,
            steps: plan.steps.iter().map(|step| (step.name.clone(), items(step))).collect(),
            owner: rights.key().map(str::to_owned),
            rights,
            idempotency_key,
            reuse_from,
        };
        let now_ms = self.shared.clock.now_ms();
        let run = self.with_records(move |records| records.create_run(&run, now_ms)).await?;
        self.shared.metrics.begin_run(&run.pipeline);
        self.shared.wake.notify_one();
        Ok(run)
    }

    /// Returns the name of the run that did not succeed, from which a run of `plan` takes results. A run of another
    /// pipeline or project looks like a missing one.
    async fn failed_run(&self, plan: &PipelinePlan, name: &str) -> Result<String, PipelineError> {
        let missing = || PipelineError::NotFound { name: name.chars().take(80).collect() };
        let run = self.get(name).await?;
        if run.pipeline != plan.name || run.project != plan.project {
            return Err(missing());
        }
        match run.state {
            PipelineRunState::Failed | PipelineRunState::Cancelled => Ok(run.name),
            PipelineRunState::Succeeded => Err(over(&run, "nothing is left to do; start a run without it")),
            PipelineRunState::Running => Err(over(&run, "it is not over; `saggar pipeline stop RUN` stops it first")),
        }
    }

    /// Returns the run that was started under this idempotency key, or `None`.
    ///
    /// # Errors
    /// `Records`.
    pub async fn run_by_idempotency_key(&self, key: &str) -> Result<Option<PipelineRunRecord>, PipelineError> {
        let key = key.to_owned();
        self.with_records(move |records| records.find_run_by_idempotency_key(&key)).await
    }

    /// Returns the run with this name or identifier.
    ///
    /// # Errors
    /// `NotFound`; `Records`.
    pub async fn get(&self, name: &str) -> Result<PipelineRunRecord, PipelineError> {
        let name = name.to_owned();
        self.with_records(move |records| records.get_run(&name)).await
    }

    /// Returns runs, newest first.
    ///
    /// # Errors
    /// `Records`.
    pub async fn list(&self, filter: PipelineRunFilter) -> Result<Vec<PipelineRunRecord>, PipelineError> {
        self.with_records(move |records| records.list_runs(&filter)).await
    }

    /// Returns every attempt of every step of a run.
    ///
    /// # Errors
    /// `Records`.
    pub async fn steps(&self, id: &str) -> Result<Vec<PipelineStepRecord>, PipelineError> {
        let id = id.to_owned();
        self.with_records(move |records| records.steps(&id)).await
    }

    /// Returns the name of an unfinished run that a job belongs to.
    ///
    /// # Errors
    /// `Records`.
    pub async fn unfinished_run_of_job(&self, job: &str) -> Result<Option<String>, PipelineError> {
        let job = job.to_owned();
        self.with_records(move |records| records.unfinished_run_of_job(&job)).await
    }

    /// Asks a run to stop: its jobs save their state and end.
    ///
    /// # Errors
    /// `State` if it is over; `Records`.
    pub async fn stop(&self, run: &PipelineRunRecord, who: &str) -> Result<(), PipelineError> {
        let (id, reason) = (run.id.clone(), StateReason::new(STOPPED, format!("the run was stopped by {who}")));
        if !self.with_records(move |records| records.request_run_stop(&id, &reason)).await? {
            return Err(over(run, "only a run that is not over can be stopped"));
        }
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Approves or rejects a step that waits for a person.
    ///
    /// # Errors
    /// `State` if the step does not wait; `Step` if there is no such step; `Records`.
    pub async fn decide_approval(
        &self,
        run: &PipelineRunRecord,
        step: &str,
        is_approved: bool,
        who: &str,
    ) -> Result<(), PipelineError> {
        let attempts = self.steps(&run.id).await?;
        let Some(attempt) = current_attempts(&attempts).find(|attempt| attempt.step == step) else {
            return Err(no_step(&attempts, step));
        };
        let (state, code) = match is_approved {
            true => (PipelineStepState::Succeeded, APPROVED),
            false => (PipelineStepState::Failed, REJECTED),
        };
        let reason = StateReason::new(code, format!("{} by {who}", code.to_lowercase()));
        let change = StepChange::new(PipelineStepState::Waiting, state, reason);
        let (id, key, now_ms) = (run.id.clone(), attempt.key(), self.shared.clock.now_ms());
        if !self.with_records(move |records| records.change_step(&id, key, &change, now_ms)).await? {
            let hint = "only a step of kind approve that is WAITING can be approved or rejected".to_owned();
            let (name, state) = (format!("step {step} of {}", run.name), attempt.state.name().to_owned());
            return Err(PipelineError::State { name, state, hint });
        }
        self.shared.metrics.change_step(StepKind::Approve, attempt, state, now_ms);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Makes a run that is over continue: steps that did not succeed begin another attempt, and with `from` also that
    /// step and all that depend on it. Other results stay.
    ///
    /// # Errors
    /// `State` if it is not over, or nothing is left to do; `Step` if there is no such step; `Records`.
    pub async fn restart(&self, run: &PipelineRunRecord, from: Option<&str>) -> Result<(), PipelineError> {
        let attempts = self.steps(&run.id).await?;
        let graph = RunGraph::read(run)?;
        let from = match from {
            Some(step) => {
                let position = graph.plan.steps.iter().position(|it| it.name == step);
                Some(position.ok_or_else(|| no_step(&attempts, step))?)
            }
            None => None,
        };
        if !run.state.is_final() {
            return Err(over(run, "`saggar pipeline stop RUN` stops it first"));
        }
        let states = graph.item_states(&attempts);
        let conditions = step_conditions(&graph, run, &attempts);
        let items = engine::items_to_restart(&graph.state(&states, &conditions, false), from);
        if items.is_empty() {
            return Err(over(run, "every step succeeded or was skipped; name the step to begin with"));
        }
        let items: Vec<(u32, u32)> = items.into_iter().map(|(position, item)| (position as u32, item as u32)).collect();
        let id = run.id.clone();
        if !self.with_records(move |records| records.restart_run(&id, &items)).await? {
            return Err(over(run, "it was restarted meanwhile"));
        }
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Removes the record of a run that is over. Its jobs stay.
    ///
    /// # Errors
    /// `State` if it is not over; `Records`.
    pub async fn remove(&self, run: &PipelineRunRecord) -> Result<(), PipelineError> {
        let id = run.id.clone();
        match self.with_records(move |records| records.remove_run(&id)).await? {
            true => Ok(()),
            false => Err(over(run, "`saggar pipeline stop RUN` stops it first")),
        }
    }

    /// Returns what drives runs, or `None` before the parts of the server that run steps are set.
    pub(crate) fn driver(&self) -> Option<RunDriver> {
        let (records, clock) = (Arc::clone(&self.shared.records), Arc::clone(&self.shared.clock));
        let metrics = self.shared.metrics.clone();
        Some(RunDriver { records, port: Arc::clone(self.shared.port.get()?), clock, metrics })
    }

    /// Waits until a command changed a run.
    pub(crate) async fn wait_for_command(&self) {
        self.shared.wake.notified().await;
    }

    pub(crate) fn metrics(&self) -> &RunMetrics {
        &self.shared.metrics
    }

    pub(crate) fn now_ms(&self) -> UnixMillis {
        self.shared.clock.now_ms()
    }

    pub(crate) fn wake(&self) {
        self.shared.wake.notify_one();
    }

    pub(crate) async fn with_records<T: Send + 'static>(
        &self,
        use_them: impl FnOnce(&dyn PipelineRecords) -> Result<T, RecordError> + Send + 'static,
    ) -> Result<T, PipelineError> {
        let records = Arc::clone(&self.shared.records);
        let done = tokio::task::spawn_blocking(move || use_them(&*records)).await;
        Ok(done.map_err(std::io::Error::other)??)
    }
}

/// Returns the specifications of the jobs of all steps, with a sample value for each output. The plan has the values of
/// the parameters.
fn sample_specs(plan: &PipelinePlan) -> Result<Vec<JobSpec>, PipelineError> {
    let mut specs = Vec::new();
    for step in plan.steps.iter().filter(|step| step.kind.is_job()) {
        let wrong = |reason: String| PipelineError::Step { step: step.name.clone(), reason };
        let values = SampleValues { plan, step };
        let spec = job_spec(plan, step, &values).map_err(|reason| wrong(reason.sentence))?;
        spec.validate().map_err(|error| wrong(error.to_string()))?;
        specs.push(spec);
    }
    if let Some(step) = plan.steps.iter().find(|step| !step.kind.is_job() && !step.spec.is_empty()) {
        let reason = format!("a step of kind {} has no specification of a job", StepKind::name(step.kind));
        return Err(PipelineError::Step { step: step.name.clone(), reason });
    }
    Ok(specs)
}

fn over(run: &PipelineRunRecord, hint: &str) -> PipelineError {
    PipelineError::State { name: run.name.clone(), state: run.state.name().to_owned(), hint: hint.to_owned() }
}

fn no_step(attempts: &[PipelineStepRecord], step: &str) -> PipelineError {
    const NAMES_SHOWN: usize = 20;
    let mut names: Vec<&str> = attempts.iter().map(|attempt| attempt.step.as_str()).collect();
    names.dedup();
    names.truncate(NAMES_SHOWN);
    let reason = format!("there is no such step; the steps are {}", names.join(", "));
    PipelineError::Step { step: step.chars().take(80).collect(), reason }
}
