//! The supervisor of one attempt: starts its worker, records the worker's events, forwards stop requests, and decides
//! what happens to the job at the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use saggar_store::error::RecordError;
use saggar_store::records::{ClaimedJob, JobRecords, JobState, StateReason};
use tokio::sync::watch;
use tracing::Instrument;

use crate::attempt_control::AttemptControl;
use crate::attempt_recorder::AttemptRecorder;
use crate::error::JobError;
use crate::job_trace::JobTrace;
use crate::outcome::{AttemptOutcome, OutcomeContext, RetryDecision, attempt_outcome, decide_retry};
use crate::reclaim;
use crate::shared::SharedState;
use crate::spec::{CheckpointSelector, InitFrom, JobSpec, WORKER_LOST};
use deadlines::AttemptDeadlines;
use session::WorkerSession;

mod deadlines;
mod heartbeat_monitor;
mod session;
mod utilization_monitor;

/// Runs the claimed attempt to its end and records the job's next state.
///
/// `device` is the device of the pool whose slots the attempt holds.
pub(crate) async fn supervise_attempt(
    shared: Arc<SharedState>,
    claim: ClaimedJob,
    device: String,
    orders: watch::Receiver<AttemptControl>,
) {
    let (name, attempt) = (claim.job.name.clone(), claim.lease.attempt);
    let trace = JobTrace::read(&shared, &claim).await;
    let trace_id = trace.as_ref().map(|trace| tracing::field::display(trace.attempt_context().trace));
    let span = tracing::info_span!("attempt", job = %name, attempt, trace_id);
    let drive = async {
        tracing::info!(device, "attempt starts");
        let lease = claim.lease.clone();
        if let Err(error) = drive_attempt(&shared, claim, device, orders, trace.as_ref()).await {
            tracing::error!(%error, "attempt lost");
            reclaim::requeue_after_supervisor_failure(&shared, lease, &error).await;
        }
        if let Some(trace) = &trace {
            trace.record_end(&shared).await;
        }
    };
    drive.instrument(span).await;
    shared.notify_change();
}

async fn drive_attempt(
    shared: &Arc<SharedState>,
    claim: ClaimedJob,
    device: String,
    orders: watch::Receiver<AttemptControl>,
    trace: Option<&JobTrace>,
) -> Result<(), JobError> {
    let mut recorder = AttemptRecorder::open(Arc::clone(shared), &claim)?;
    let mut spec: JobSpec = match serde_json::from_str(&claim.job.spec) {
        Ok(spec) => spec,
        Err(error) => {
            let reason = StateReason::new("BAD_SPEC", format!("the job's record cannot be read: {error}"));
            return recorder.finish(RetryDecision::Finish(JobState::Failed, reason)).await;
        }
    };
    spec.device = device;
    let history = recorder.history().await?;
    let paused_from = recorder.paused_from(&claim.job).await?;
    let clock = AttemptDeadlines::start(&spec, history.wall_seconds, history.extensions);
    let references = match resolve_references(shared, &claim.job.name, &spec).await {
        Ok(references) => references,
        Err(JobError::NotFound { name, .. }) => {
            let reason = StateReason::new("INPUT_GONE", format!("job {name}, which this job reads, was removed"));
            return recorder.finish(RetryDecision::Finish(JobState::Failed, reason)).await;
        }
        Err(error) => return Err(error),
    };
    let mut worker = match WorkerSession::start(shared, &claim, spec.clone(), references, paused_from, clock, trace) {
        Ok(worker) => worker,
        Err(error) => {
            let reason = StateReason::new("LAUNCH_FAILED", error.to_string());
            return recorder.finish(RetryDecision::Finish(JobState::Failed, reason)).await;
        }
    };
    let lease = claim.lease.clone();
    let driven = worker.drive(&mut recorder, orders).await;
    if matches!(driven, Err(JobError::Records(RecordError::Fenced { .. }))) {
        worker.end_fenced().await;
    }
    let (last_word, exit) = driven?;
    if worker.is_lease_lost {
        tracing::warn!(exit_code = exit.code, "the worker of an attempt that lost its lease has ended");
        // Returns the error that names the owner.
        shared.with_records(move |records| records.check_lease(&lease)).await?;
    }
    let ended = match worker.timeout_message() {
        Some(sentence) => AttemptOutcome::Interrupted(StateReason::new(WORKER_LOST, sentence)),
        None => attempt_outcome(last_word, exit),
    };
    let situation = OutcomeContext {
        stop_reason: recorder.stop_reason().await?.or(worker.idle_reason),
        timed_out: worker.timed_out,
        requeue_reason: worker.requeue,
        interruptions: history.interruptions,
        retry: spec.retry,
        retry_on: &spec.retry_on,
    };
    recorder.finish(decide_retry(ended, &situation)).await
}

/// How a job depends on others, and others on it.
struct AttemptReferences {
    /// The identifiers of the jobs that its specification refers to, by name.
    jobs: BTreeMap<String, String>,
    /// The steps of its checkpoints that unfinished jobs start from. A job that is submitted later than this is read finds
    /// the newest checkpoint, and is not waited for.
    kept_steps: Vec<u64>,
}

async fn resolve_references(
    shared: &Arc<SharedState>,
    name: &str,
    spec: &JobSpec,
) -> Result<AttemptReferences, JobError> {
    let names: Vec<String> = spec.referenced_jobs().map(str::to_owned).collect();
    let own = name.to_owned();
    let look = move |records: &dyn JobRecords| {
        let named = |name: String| Ok((name.clone(), records.get(&name)?.id));
        let jobs = names.into_iter().map(named).collect::<Result<_, RecordError>>()?;
        let specs = records.unfinished_specs_with(&format!("\"job:{own}/checkpoint@"))?;
        let kept_steps = specs.iter().filter_map(|spec| start_step(spec, &own)).collect();
        Ok(AttemptReferences { jobs, kept_steps })
    };
    shared.with_records(look).await
}

/// Returns the step of the checkpoint of `job` that a specification starts from, or `None`.
fn start_step(spec: &str, job: &str) -> Option<u64> {
    match serde_json::from_str::<JobSpec>(spec).ok()?.init_from? {
        InitFrom::Checkpoint { job: named, which: CheckpointSelector::Step(step) } if named == job => Some(step),
        InitFrom::Checkpoint { .. } | InitFrom::Model { .. } => None,
    }
}
