//! Drives one run: observes its jobs, applies the engine's decisions, and records each change on its own.
//!
//! Every change is a compare-and-set of one attempt's state, and every effect is repeatable, so the driver can be ended
//! between any two operations. What an attempt does is recorded before its effect only for deployments, which are
//! repeated if their result is missing.

use std::sync::Arc;

use saggar_clock::Clock;
use saggar_project::{PipelineStep, StepKind};
use saggar_store::JobState;
use saggar_store::error::RecordError;
use saggar_store::records::{
    PipelineRecords, PipelineRunRecord, PipelineStepRecord, PipelineStepState, StateReason, StepChange,
};

use crate::engine::{self, RunDecision};
use crate::error::PipelineError;
use crate::port::{JobObservation, PLUGIN_INPUT, PipelinePort, StepFailure, StepInput};
use crate::required_outputs::missing_output;
use crate::run_metrics::RunMetrics;
use crate::run_view::{RunGraph, current_attempts};
use crate::step_conditions::step_conditions;
use crate::step_job::{cache_key, deploy_request, job_spec};
use crate::step_values::StepValues;

/// The reason of a step whose job was removed before its result was recorded.
const JOB_REMOVED: &str = "JOB_REMOVED";
/// The reason of a step that uses the result of an earlier run.
pub(crate) const CACHED: &str = "CACHED";

/// What a driver needs.
#[derive(Clone)]
pub(crate) struct RunDriver {
    pub(crate) records: Arc<dyn PipelineRecords>,
    pub(crate) port: Arc<dyn PipelinePort>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: RunMetrics,
}

/// A run that is driven, as last read.
struct DrivenRun {
    run: PipelineRunRecord,
    graph: RunGraph,
    attempts: Vec<PipelineStepRecord>,
}

impl DrivenRun {
    fn step(&self, attempt: &PipelineStepRecord) -> &PipelineStep {
        &self.graph.plan.steps[attempt.position as usize]
    }

    fn values(&self, attempt: &PipelineStepRecord) -> StepValues<'_> {
        StepValues {
            run: &self.run,
            graph: &self.graph,
            attempts: &self.attempts,
            position: attempt.position as usize,
            item: attempt.item as usize,
        }
    }

    /// Returns the key under which the job of an attempt is submitted.
    fn idempotency_key(&self, attempt: &PipelineStepRecord) -> String {
        let PipelineStepRecord { position, item, attempt, .. } = attempt;
        format!("pipeline {} {position} {item} {attempt}", self.run.id)
    }

    /// Returns the jobs of earlier attempts of the same item that did not succeed, newest first. Attempts before a
    /// success were complete.
    fn unsuccessful_jobs(&self, attempt: &PipelineStepRecord) -> Vec<String> {
        let same = |it: &&PipelineStepRecord| {
            (it.position, it.item) == (attempt.position, attempt.item) && it.attempt < attempt.attempt
        };
        let earlier = self.attempts.iter().filter(same).rev();
        let is_incomplete =
            |it: &&PipelineStepRecord| matches!(it.state, PipelineStepState::Failed | PipelineStepState::Cancelled);
        earlier.take_while(is_incomplete).filter_map(|it| it.job.clone()).collect()
    }
}

impl RunDriver {
    /// Drives a run until there is nothing to do but wait.
    ///
    /// # Errors
    /// `Records`; `Io`.
    pub(crate) async fn drive(&self, id: &str) -> Result<(), PipelineError> {
        while self.advance(id).await? {}
        Ok(())
    }

    /// Observes the jobs of a run and applies the decisions that follow. Returns whether anything changed.
    async fn advance(&self, id: &str) -> Result<bool, PipelineError> {
        let driven = self.read(id).await?;
        if driven.run.state.is_final() {
            return Ok(false);
        }
        let mut has_changed = false;
        for attempt in current_attempts(&driven.attempts).filter(|it| it.state == PipelineStepState::Running) {
            has_changed |= self.observe(&driven, attempt).await?;
        }
        if has_changed {
            return Ok(true);
        }
        let items = driven.graph.item_states(&driven.attempts);
        let conditions = step_conditions(&driven.graph, &driven.run, &driven.attempts);
        for decision in engine::decide(&driven.graph.state(&items, &conditions, driven.run.stop.is_some())) {
            has_changed |= self.apply(&driven, decision).await?;
        }
        Ok(has_changed)
    }

    async fn read(&self, id: &str) -> Result<DrivenRun, PipelineError> {
        let id = id.to_owned();
        let (run, attempts) = self
            .with_records(move |records| {
                let run = records.get_run(&id)?;
                let attempts = records.steps(&run.id)?;
                Ok((run, attempts))
            })
            .await?;
        let graph = RunGraph::read(&run)?;
        Ok(DrivenRun { run, graph, attempts })
    }

    /// Records the result of a running attempt if there is one. Returns whether there was.
    async fn observe(&self, driven: &DrivenRun, attempt: &PipelineStepRecord) -> Result<bool, PipelineError> {
        let Some(name) = &attempt.job else {
            // A deployment whose server ended: it is done again, which changes nothing if it was done.
            return self.deploy(driven, attempt).await;
        };
        let job = match self.port.job(name).await {
            Ok(Some(job)) => job,
            Ok(None) => {
                let reason = StateReason::new(JOB_REMOVED, format!("job {name} was removed"));
                return self.change(driven, attempt, ended(PipelineStepState::Failed, reason)).await;
            }
            Err(failure) => return Ok(defer(driven, attempt, &failure)),
        };
        match job.state {
            JobState::Succeeded => match self.port.outputs(&job.name).await {
                Ok(outputs) => {
                    if let Some(reason) = missing_output(&driven.graph, attempt.position as usize, &job.name, &outputs)
                    {
                        return self.change(driven, attempt, ended(PipelineStepState::Failed, reason)).await;
                    }
                    let outputs = serde_json::to_string(&outputs).map_err(std::io::Error::other)?;
                    let change = ended(PipelineStepState::Succeeded, job.reason);
                    self.change(driven, attempt, StepChange { outputs: Some(outputs), ..change }).await
                }
                Err(failure) => Ok(defer(driven, attempt, &failure)),
            },
            JobState::Failed | JobState::TimedOut => {
                let sentence = format!("job {} {}: {}", job.name, job.state, job.reason.sentence);
                let reason = StateReason::new(job.reason.code, sentence);
                self.change(driven, attempt, ended(PipelineStepState::Failed, reason)).await
            }
            JobState::Cancelled => self.change(driven, attempt, ended(PipelineStepState::Cancelled, job.reason)).await,
            JobState::Queued | JobState::Starting | JobState::Running | JobState::Stopping => {
                if let Some(reason) = driven.run.stop.as_ref().filter(|_| job.state != JobState::Stopping)
                    && let Err(failure) = self.port.stop_job(&job.name, reason).await
                {
                    defer(driven, attempt, &failure);
                }
                Ok(false)
            }
        }
    }

    async fn apply(&self, driven: &DrivenRun, decision: RunDecision) -> Result<bool, PipelineError> {
        let find = |position: usize, item: usize| {
            current_attempts(&driven.attempts).find(|it| (it.position as usize, it.item as usize) == (position, item))
        };
        match decision {
            RunDecision::Start { position, item } => match find(position, item) {
                Some(attempt) => self.start(driven, attempt).await,
                None => Ok(false),
            },
            RunDecision::Settle { position, item, state, reason } => match find(position, item) {
                Some(attempt) => self.settle(driven, attempt, StepChange::new(attempt.state, state, reason)).await,
                None => Ok(false),
            },
            RunDecision::Finish { state, reason } => {
                let (id, now_ms) = (driven.run.id.clone(), self.clock.now_ms());
                tracing::info!(
                    run = driven.run.name,
                    state = state.name(),
                    reason = reason.sentence,
                    "pipeline run ended"
                );
                let ended = self.with_records(move |records| records.finish_run(&id, state, &reason, now_ms)).await?;
                if ended {
                    self.metrics.end_run(&driven.run, state, now_ms);
                }
                Ok(ended)
            }
        }
    }

    /// Ends an item that did not start. If a killed server had submitted its job, that is recorded instead, and the job
    /// is stopped.
    async fn settle(
        &self,
        driven: &DrivenRun,
        attempt: &PipelineStepRecord,
        change: StepChange,
    ) -> Result<bool, PipelineError> {
        let may_have_job = change.from == PipelineStepState::Pending && driven.step(attempt).kind.is_job();
        if may_have_job && change.to == PipelineStepState::Cancelled {
            match self.port.find_job(&driven.idempotency_key(attempt)).await {
                Ok(Some(job)) => return self.change(driven, attempt, running(job)).await,
                Ok(None) => {}
                Err(failure) => return Ok(defer(driven, attempt, &failure)),
            }
        }
        self.change(driven, attempt, change).await
    }

    async fn start(&self, driven: &DrivenRun, attempt: &PipelineStepRecord) -> Result<bool, PipelineError> {
        let step = driven.step(attempt);
        match step.kind {
            StepKind::Train | StepKind::Predict | StepKind::Plugin | StepKind::Data => {
                match self.start_job(driven, attempt).await? {
                    Ok(change) => self.change(driven, attempt, change).await,
                    Err(StepFailure::Permanent(reason)) => {
                        let change = StepChange::new(PipelineStepState::Pending, PipelineStepState::Failed, reason);
                        self.change(driven, attempt, change).await
                    }
                    Err(failure) => Ok(defer(driven, attempt, &failure)),
                }
            }
            StepKind::Deploy => {
                let running = engine::started_state(step.kind);
                let change = StepChange::new(PipelineStepState::Pending, running, StateReason::default());
                self.change(driven, attempt, change).await
            }
            StepKind::Approve | StepKind::Pipeline => {
                let question = step.message.clone().unwrap_or_default();
                let question = saggar_project::render_template(&question.into(), &driven.values(attempt));
                let question = question.ok().and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default();
                let reason = StateReason::new("WAITING_FOR_APPROVAL", question);
                let change = StepChange::new(PipelineStepState::Pending, engine::started_state(step.kind), reason);
                self.change(driven, attempt, change).await
            }
        }
    }

    /// Submits the job of an attempt, or finds an earlier result. Returns the change to record.
    async fn start_job(
        &self,
        driven: &DrivenRun,
        attempt: &PipelineStepRecord,
    ) -> Result<Result<StepChange, StepFailure>, PipelineError> {
        let key = driven.idempotency_key(attempt);
        // A server that was killed after the submission has not recorded it.
        match self.port.find_job(&key).await {
            Ok(Some(job)) => return Ok(Ok(running(job))),
            Ok(None) => {}
            Err(failure) => return Ok(Err(failure)),
        }
        let step = driven.step(attempt);
        let mut spec = match job_spec(&driven.graph.plan, step, &driven.values(attempt)) {
            Ok(spec) => spec,
            Err(reason) => return Ok(Err(StepFailure::Permanent(reason))),
        };
        // Only a training begins with the checkpoint of another job.
        let earlier = if step.kind == StepKind::Train { driven.unsuccessful_jobs(attempt) } else { Vec::new() };
        for job in earlier {
            match self.port.newest_checkpoint(&job).await.map(|found| found.map(|text| text.parse())) {
                Ok(Some(Ok(checkpoint))) => {
                    spec.init_from = Some(checkpoint);
                    break;
                }
                Ok(_) => {}
                Err(failure) => return Ok(Err(failure)),
            }
        }
        let prepared = match self.port.prepare(spec, &driven.run.rights).await {
            Ok(prepared) => prepared,
            Err(failure) => return Ok(Err(failure)),
        };
        let digest = cache_key(&prepared);
        let inputs = Some(serde_json::to_string(&named_inputs(step, prepared.inputs)).map_err(std::io::Error::other)?);
        if step.cache || driven.run.reuse_from.is_some() {
            match self.find_result(driven, step, &digest).await? {
                Ok(Some(change)) => return Ok(Ok(StepChange { inputs, ..change })),
                Ok(None) => {}
                Err(failure) => return Ok(Err(failure)),
            }
        }
        let submitted = self.port.submit(prepared.spec, &driven.run.rights, &key).await;
        Ok(submitted.map(|job| StepChange { inputs, cache_key: Some(digest), ..running(job) }))
    }

    /// Returns the change that uses an earlier result, if there is one whose outputs still exist: that of the run that
    /// this one takes results from, or any of the project if the step is cached.
    async fn find_result(
        &self,
        driven: &DrivenRun,
        step: &PipelineStep,
        digest: &str,
    ) -> Result<Result<Option<StepChange>, StepFailure>, PipelineError> {
        let (project, key, is_cached) = (driven.run.project.clone(), digest.to_owned(), step.cache);
        let reuse_from = driven.run.reuse_from.clone();
        let find = move |records: &dyn PipelineRecords| {
            let reused = match &reuse_from {
                Some(run) => find_in_run(records, run, &key)?,
                None => None,
            };
            match reused {
                None if is_cached => records.find_cached_step(&project, &key),
                reused => Ok(reused),
            }
        };
        let Some((run, earlier)) = self.with_records(find).await? else { return Ok(Ok(None)) };
        let Ok(outputs) = serde_json::from_str(&earlier.outputs) else { return Ok(Ok(None)) };
        match self.port.has_outputs(&outputs).await {
            Ok(true) => {
                let reason = StateReason::new(CACHED, format!("computed by {run}"));
                let change = StepChange::new(PipelineStepState::Pending, PipelineStepState::Succeeded, reason);
                let (job, outputs) = (earlier.job, Some(earlier.outputs));
                let (cached_from, cache_key) = (Some(run), Some(digest.to_owned()));
                Ok(Ok(Some(StepChange { job, outputs, cached_from, cache_key, ..change })))
            }
            Ok(false) => Ok(Ok(None)),
            Err(failure) => Ok(Err(failure)),
        }
    }

    /// Deploys what a running attempt deploys, and records the result.
    async fn deploy(&self, driven: &DrivenRun, attempt: &PipelineStepRecord) -> Result<bool, PipelineError> {
        let deployed = match deploy_request(driven.step(attempt), &driven.values(attempt)) {
            Ok(request) => self.port.deploy(&request, &driven.run.rights).await,
            Err(reason) => Err(StepFailure::Permanent(reason)),
        };
        match deployed {
            Ok(output) => {
                let outputs = serde_json::json!({ "model": output }).to_string();
                let version = output.value.as_str().unwrap_or_default();
                let reason = StateReason::new("DEPLOYED", format!("{version} serves"));
                let change = ended(PipelineStepState::Succeeded, reason);
                self.change(driven, attempt, StepChange { outputs: Some(outputs), ..change }).await
            }
            Err(StepFailure::Permanent(reason)) => {
                self.change(driven, attempt, ended(PipelineStepState::Failed, reason)).await
            }
            Err(failure) => Ok(defer(driven, attempt, &failure)),
        }
    }

    /// Records a change. Returns whether the attempt still had the expected state.
    async fn change(
        &self,
        driven: &DrivenRun,
        attempt: &PipelineStepRecord,
        change: StepChange,
    ) -> Result<bool, PipelineError> {
        let (id, key, now_ms) = (driven.run.id.clone(), attempt.key(), self.clock.now_ms());
        let (to, job) = (change.to, change.job.clone().unwrap_or_default());
        let changed = self.with_records(move |records| records.change_step(&id, key, &change, now_ms)).await?;
        if changed {
            self.metrics.change_step(driven.step(attempt).kind, attempt, to, now_ms);
            tracing::info!(
                run = driven.run.name,
                step = attempt.step,
                item = attempt.item,
                state = to.name(),
                job,
                "pipeline step"
            );
        }
        Ok(changed)
    }

    async fn with_records<T: Send + 'static>(
        &self,
        use_them: impl FnOnce(&dyn PipelineRecords) -> Result<T, RecordError> + Send + 'static,
    ) -> Result<T, PipelineError> {
        let records = Arc::clone(&self.records);
        let done = tokio::task::spawn_blocking(move || use_them(&*records)).await;
        Ok(done.map_err(std::io::Error::other)??)
    }
}

/// Returns the newest success of a run with this key, with the name of the run that computed it. A run that was removed
/// has none.
fn find_in_run(
    records: &dyn PipelineRecords,
    run: &str,
    key: &str,
) -> Result<Option<(String, PipelineStepRecord)>, RecordError> {
    let run = match records.get_run(run) {
        Ok(run) => run,
        Err(RecordError::NoSuchRun { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let fits =
        |it: &PipelineStepRecord| it.state == PipelineStepState::Succeeded && it.cache_key.as_deref() == Some(key);
    let found = records.steps(&run.id)?.into_iter().rev().find(fits);
    Ok(found.map(|attempt| (attempt.cached_from.clone().unwrap_or(run.name), attempt)))
}

/// Returns the inputs with the name of the component, which is not part of the cache key.
fn named_inputs(step: &PipelineStep, mut inputs: Vec<StepInput>) -> Vec<StepInput> {
    let plugin = inputs.iter_mut().find(|input| input.name == PLUGIN_INPUT);
    if let (Some(plugin), Some(component)) = (plugin, &step.component) {
        plugin.reference.clone_from(component);
    }
    inputs
}

/// Returns the change of a pending attempt whose job was submitted.
fn running(job: JobObservation) -> StepChange {
    let change = StepChange::new(PipelineStepState::Pending, PipelineStepState::Running, StateReason::default());
    StepChange { job: Some(job.name), ..change }
}

/// Returns the change that ends a running attempt.
fn ended(state: PipelineStepState, reason: StateReason) -> StepChange {
    StepChange::new(PipelineStepState::Running, state, reason)
}

/// Logs a failure after which the step is tried again. Nothing has changed.
fn defer(driven: &DrivenRun, attempt: &PipelineStepRecord, failure: &StepFailure) -> bool {
    tracing::warn!(run = driven.run.name, step = attempt.step, %failure, "a pipeline step is tried again");
    false
}
