//! The supervisor of one attempt: starts its worker, records the worker's events, forwards stop requests, and decides
//! what happens to the job at the end.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

use saggar_store::records::{ClaimedJob, JobRecords, JobState, StateReason};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use crate::attempt_recorder::AttemptRecorder;
use crate::error::JobError;
use crate::limits::{COMMAND_TIME_MAX, EVENT_BYTES_MAX, STOP_GRACE, USAGE_INTERVAL};
use crate::outcome::{
    AttemptOutcome, FinalEvent, OutcomeContext, RetryDecision, WorkerExit, attempt_outcome, decide_retry,
};
use crate::protocol::{AttemptConfig, WorkerCommand, WorkerEvent};
use crate::scheduler;
use crate::shared::SharedState;
use crate::spec::{IDLE, JobSpec, RECYCLED, WORKER_LOST};
use deadlines::{AttemptDeadlines, DueAction};
use heartbeat_monitor::HeartbeatMonitor;
use oom_kills::OomKillCounter;
use utilization_monitor::UtilizationMonitor;

mod deadlines;
mod heartbeat_monitor;
mod oom_kills;
mod utilization_monitor;

/// The scheduler's requests to an attempt's supervisor.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AttemptControl {
    /// Save and return, because of a user's stop request or a server shutdown.
    pub(crate) stop: bool,
    /// The reason to save, return and queue the job again; `None` without such a request.
    pub(crate) requeue: Option<StateReason>,
    /// The number of checkpoint requests so far.
    pub(crate) checkpoints: u64,
}

/// Runs the claimed attempt to its end and records the job's next state.
///
/// `device` is the device of the pool whose slots the attempt holds.
pub(crate) async fn supervise_attempt(
    shared: Arc<SharedState>,
    claim: ClaimedJob,
    device: String,
    orders: watch::Receiver<AttemptControl>,
) {
    let (id, name, attempt) = (claim.job.id.clone(), claim.job.name.clone(), claim.lease.attempt);
    tracing::info!(job = %name, attempt, device, "attempt starts");
    if let Err(error) = drive_attempt(&shared, claim, device, orders).await {
        tracing::error!(job = %name, attempt, %error, "attempt lost");
        scheduler::requeue_after_supervisor_failure(&shared, &id, &error).await;
    }
    shared.notify_change();
}

async fn drive_attempt(
    shared: &Arc<SharedState>,
    claim: ClaimedJob,
    device: String,
    orders: watch::Receiver<AttemptControl>,
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
    let clock = AttemptDeadlines::start(&spec, history.wall_seconds, history.extensions);
    let jobs = match resolve_job_ids(shared, &spec).await {
        Ok(jobs) => jobs,
        Err(JobError::NotFound { name, .. }) => {
            let reason = StateReason::new("INPUT_GONE", format!("job {name}, which this job reads, was removed"));
            return recorder.finish(RetryDecision::Finish(JobState::Failed, reason)).await;
        }
        Err(error) => return Err(error),
    };
    let mut worker = match WorkerProcess::start(shared, &claim, spec.clone(), jobs, clock).await {
        Ok(worker) => worker,
        Err(error) => {
            let reason = StateReason::new("LAUNCH_FAILED", error.to_string());
            return recorder.finish(RetryDecision::Finish(JobState::Failed, reason)).await;
        }
    };
    let (last_word, exit) = worker.drive(&mut recorder, orders).await?;
    let situation = OutcomeContext {
        stop_reason: recorder.stop_reason().await?.or(worker.idle_reason),
        timed_out: worker.timed_out,
        requeue_reason: worker.requeue,
        interruptions: history.interruptions,
        retry: spec.retry,
        retry_on: &spec.retry_on,
    };
    let ended = match worker.heartbeat.timeout_message() {
        Some(sentence) => AttemptOutcome::Interrupted(StateReason::new(WORKER_LOST, sentence)),
        None => attempt_outcome(last_word, exit),
    };
    recorder.finish(decide_retry(ended, &situation)).await
}

/// Returns the identifiers of the jobs that a specification refers to, by name.
async fn resolve_job_ids(shared: &Arc<SharedState>, spec: &JobSpec) -> Result<BTreeMap<String, String>, JobError> {
    let names: Vec<String> = spec.referenced_jobs().map(str::to_owned).collect();
    let look = move |records: &dyn JobRecords| {
        let named = |name: String| Ok((name.clone(), records.get(&name)?.id));
        names.into_iter().map(named).collect()
    };
    shared.with_records(look).await
}

/// A worker process, and the commands that it was sent.
struct WorkerProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    clock: AttemptDeadlines,
    heartbeat: HeartbeatMonitor,
    memory_kills: Option<OomKillCounter>,
    kill_at: Option<Instant>,
    timed_out: bool,
    /// The reason of a request to save and requeue, or `None`.
    requeue: Option<StateReason>,
    checkpoints_requested: u64,
    utilization: Option<UtilizationMonitor>,
    /// The reason of a stop because the device was idle, or `None`.
    idle_reason: Option<StateReason>,
}

impl WorkerProcess {
    async fn start(
        shared: &SharedState,
        claim: &ClaimedJob,
        spec: JobSpec,
        jobs: BTreeMap<String, String>,
        clock: AttemptDeadlines,
    ) -> Result<WorkerProcess, JobError> {
        let mut child = shared.launcher.launch()?;
        let start = AttemptConfig {
            job: claim.job.id.clone(),
            name: claim.job.name.clone(),
            attempt: claim.lease.attempt,
            epoch: claim.lease.epoch,
            rank: 0,
            spec,
            jobs,
            rights: claim.job.rights.clone(),
        };
        let stdin = child.stdin.take();
        let mut worker = WorkerProcess {
            memory_kills: child.id().and_then(OomKillCounter::for_process),
            child,
            stdin,
            clock,
            heartbeat: HeartbeatMonitor::new(shared.worker_silence_max()),
            kill_at: None,
            timed_out: false,
            requeue: None,
            checkpoints_requested: 0,
            utilization: start.spec.utilization.map(UtilizationMonitor::new),
            idle_reason: None,
        };
        worker.send_command(&WorkerCommand::Start(Box::new(start))).await;
        Ok(worker)
    }

    /// Sends a command. If the worker no longer reads, it is about to end, and its exit is handled. If it does not read
    /// the command in time, its standard input is closed, which ends it.
    async fn send_command(&mut self, command: &WorkerCommand) {
        let Some(stdin) = &mut self.stdin else { return };
        let mut line = serde_json::to_vec(command).expect("commands are plain data");
        line.push(b'\n');
        let write = async {
            stdin.write_all(&line).await?;
            stdin.flush().await
        };
        if !matches!(tokio::time::timeout(COMMAND_TIME_MAX, write).await, Ok(Ok(()))) {
            self.stdin = None;
        }
    }

    /// Follows the worker until it has exited and all its output is recorded.
    async fn drive(
        &mut self,
        recorder: &mut AttemptRecorder,
        mut orders: watch::Receiver<AttemptControl>,
    ) -> Result<(FinalEvent, WorkerExit), JobError> {
        let mut events = BufReader::new(self.child.stdout.take().expect("launched with pipes"));
        let mut errors = BufReader::new(self.child.stderr.take().expect("launched with pipes"));
        let mut last_word = FinalEvent::Missing;
        let (mut events_open, mut errors_open) = (true, true);
        let (mut event_line, mut error_line) = (Vec::new(), Vec::new());
        let mut tick = tokio::time::interval(USAGE_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut orders_open = true;
        while events_open || errors_open {
            tokio::select! {
                read = read_line(&mut events, &mut event_line), if events_open => {
                    self.heartbeat.reset();
                    events_open = match read {
                        LineRead::Complete => self.handle_event(recorder, &event_line, &mut last_word).await?,
                        LineRead::TooLong => self.kill_for_protocol_error(recorder, "an event line is too long")?,
                        LineRead::EndOfStream => false,
                    };
                    event_line.clear();
                }
                read = read_line(&mut errors, &mut error_line), if errors_open => {
                    errors_open = read != LineRead::EndOfStream;
                    if !error_line.is_empty() {
                        recorder.log(&String::from_utf8_lossy(&error_line));
                    }
                    error_line.clear();
                }
                changed = orders.changed(), if orders_open => {
                    orders_open = changed.is_ok();
                    let now = orders.borrow().clone();
                    self.apply_control(recorder, &now).await?;
                }
                _ = tick.tick() => {
                    recorder.flush().await?;
                    if events_open && self.heartbeat.poll(Instant::now()) {
                        // SIGKILL also ends a stopped process.
                        self.child.start_kill()?;
                    }
                    self.check_deadlines(recorder).await?;
                }
            }
        }
        // The pipes are closed; the process must not outlive the attempt.
        let status = tokio::time::timeout(STOP_GRACE, self.child.wait()).await;
        let status = match status {
            Ok(status) => status?,
            Err(_) => {
                self.child.kill().await?;
                self.child.wait().await?
            }
        };
        let memory_ran_out = self.memory_kills.as_ref().is_some_and(OomKillCounter::has_increased);
        let exit = WorkerExit { code: status.code(), signal: status.signal(), memory_ran_out };
        Ok((last_word, exit))
    }

    /// Handles one line of the worker's output. Returns `false` if the attempt must end, because a worker that violates
    /// the protocol is killed.
    async fn handle_event(
        &mut self,
        recorder: &mut AttemptRecorder,
        line: &[u8],
        last: &mut FinalEvent,
    ) -> Result<bool, JobError> {
        match serde_json::from_slice(line) {
            Ok(WorkerEvent::Finished { stopped }) => *last = FinalEvent::Finished { stopped },
            Ok(WorkerEvent::Failed { reason, message }) => {
                recorder.log(&message);
                *last = FinalEvent::Failed(StateReason::new(reason, message));
            }
            Ok(event) => recorder.record_event(event).await?,
            Err(error) => return self.kill_for_protocol_error(recorder, &error.to_string()),
        }
        Ok(true)
    }

    /// Kills a worker that violated the protocol. Returns `false`, because no more events are read.
    fn kill_for_protocol_error(&mut self, recorder: &AttemptRecorder, error: &str) -> Result<bool, JobError> {
        tracing::error!(job = recorder.name(), error, "the worker violated the protocol");
        self.child.start_kill()?;
        Ok(false)
    }

    async fn apply_control(&mut self, recorder: &mut AttemptRecorder, orders: &AttemptControl) -> Result<(), JobError> {
        if orders.checkpoints != self.checkpoints_requested {
            self.checkpoints_requested = orders.checkpoints;
            self.send_command(&WorkerCommand::Checkpoint).await;
        }
        if self.kill_at.is_some() {
            return Ok(());
        }
        if orders.stop {
            return self.request_stop(recorder, "STOP_REQUESTED").await;
        }
        match &orders.requeue {
            Some(reason) => self.request_requeue(recorder, reason.clone()).await,
            None => Ok(()),
        }
    }

    async fn request_stop(&mut self, recorder: &mut AttemptRecorder, code: &str) -> Result<(), JobError> {
        self.kill_at = Some(Instant::now() + STOP_GRACE);
        self.send_command(&WorkerCommand::Stop).await;
        recorder.record_stopping(code).await
    }

    /// Asks the worker to save its state, after which the job is queued again.
    async fn request_requeue(&mut self, recorder: &mut AttemptRecorder, reason: StateReason) -> Result<(), JobError> {
        recorder.log(&format!("{}; saving its state", reason.sentence));
        let code = reason.code.clone();
        self.requeue = Some(reason);
        self.request_stop(recorder, &code).await
    }

    async fn check_deadlines(&mut self, recorder: &mut AttemptRecorder) -> Result<(), JobError> {
        let now = Instant::now();
        if let Some(at) = self.kill_at {
            if now >= at {
                self.child.start_kill()?;
            }
            return Ok(());
        }
        if let Some(share) = self.utilization.as_mut().and_then(|busy| busy.idle_share(now, recorder.device_seconds()))
        {
            let sentence =
                format!("the device was busy for {:.1} % of the time, less than the job must use", share * 100.0);
            recorder.log(&format!("{sentence}; saving its state"));
            self.idle_reason = Some(StateReason::new(IDLE, sentence));
            return self.request_stop(recorder, IDLE).await;
        }
        match self.clock.next_action(now) {
            DueAction::Nothing => Ok(()),
            DueAction::Extend { number, of } => recorder.record_extension(number, of).await,
            DueAction::Recycle => {
                let sentence = "the attempt reached its maximum running time";
                self.request_requeue(recorder, StateReason::new(RECYCLED, sentence)).await
            }
            DueAction::TimeOut => {
                self.timed_out = true;
                recorder.log("the job's running time is used up; saving its state");
                self.request_stop(recorder, "MAX_RUNTIME").await
            }
        }
    }
}

/// The result of reading a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineRead {
    /// The line is complete, without its line end.
    Complete,
    /// The line has the maximum number of bytes, without an end.
    TooLong,
    /// The stream has ended.
    EndOfStream,
}

/// Appends one line to `line`. May be dropped between reads without losing bytes: they are in `line`.
async fn read_line(reader: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> LineRead {
    let room = EVENT_BYTES_MAX.saturating_sub(line.len()) as u64;
    match reader.take(room).read_until(b'\n', line).await {
        Ok(_) if line.last() == Some(&b'\n') => {
            line.pop();
            LineRead::Complete
        }
        Ok(_) if line.len() >= EVENT_BYTES_MAX => LineRead::TooLong,
        Ok(_) | Err(_) => LineRead::EndOfStream,
    }
}
