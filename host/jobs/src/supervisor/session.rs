//! One worker from its launch to its exit: its connection, its output, and the commands that it is sent.

use std::time::Duration;

use saggar_store::records::{ClaimedJob, PausePoint, StateReason};
use tokio::io::BufReader;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::AttemptReferences;
use super::deadlines::{AttemptDeadlines, DueAction};
use super::heartbeat_monitor::HeartbeatMonitor;
use super::utilization_monitor::UtilizationMonitor;
use crate::attempt_control::AttemptControl;
use crate::attempt_recorder::AttemptRecorder;
use crate::error::JobError;
use crate::gateway::{CommandWriter, ConnectionResult, EventReader, HelloError, PendingConnection, WorkerConnection};
use crate::job_trace::JobTrace;
use crate::launcher::{AttemptResources, LaunchRequest, WorkerHandle, WorkerSignal};
use crate::limits::{EVENT_BYTES_MAX, LEASE_LOST_GRACE, STOP_GRACE, USAGE_INTERVAL, WORKER_HEARTBEAT_INTERVAL};
use crate::line_reader::{LineRead, LineStream};
use crate::outcome::{FinalEvent, WorkerExit};
use crate::protocol::{AttemptConfig, WorkerCommand, WorkerEvent};
use crate::shared::SharedState;
use crate::spec::{IDLE, JobSpec, RECYCLED};

/// The reason code of an attempt whose worker was refused.
const WORKER_REFUSED: &str = "WORKER_REFUSED";

/// A worker, and the commands that it was sent.
pub(super) struct WorkerSession {
    worker: Box<dyn WorkerHandle>,
    /// The connection that the worker has not made yet.
    pending: Option<PendingConnection>,
    /// Commands for when it has.
    unsent: Vec<WorkerCommand>,
    commands: Option<CommandWriter>,
    last_command: Instant,
    clock: AttemptDeadlines,
    heartbeat: HeartbeatMonitor,
    kill_at: Option<Instant>,
    /// Maximum time to save its state after a stop request.
    stop_grace: Duration,
    pub(super) timed_out: bool,
    /// The reason of a request to save and requeue, or `None`.
    pub(super) requeue: Option<StateReason>,
    checkpoints_requested: u64,
    /// The pause that the worker knows.
    pause: Option<PausePoint>,
    utilization: Option<UtilizationMonitor>,
    renewed_heartbeat: u64,
    /// Whether another server owns the job, or nobody.
    pub(super) is_lease_lost: bool,
    /// The reason of a stop because the device or the notebook was idle, or `None`.
    pub(super) idle_reason: Option<StateReason>,
}

/// Waits for the worker's connection. Never returns if none is expected.
async fn next_connection(pending: &mut Option<PendingConnection>) -> ConnectionResult {
    match pending {
        Some(pending) => pending.wait().await,
        None => std::future::pending().await,
    }
}

impl WorkerSession {
    /// Starts the worker of an attempt.
    ///
    /// # Errors
    /// `Launch`.
    pub(super) fn start(
        shared: &SharedState,
        claim: &ClaimedJob,
        spec: JobSpec,
        references: AttemptReferences,
        paused_from: Option<u64>,
        clock: AttemptDeadlines,
        trace: Option<&JobTrace>,
    ) -> Result<WorkerSession, JobError> {
        let (credentials, pending) = shared.gateway()?.expect(claim.lease.clone());
        let request = LaunchRequest {
            name: claim.job.name.clone(),
            lease: claim.lease.clone(),
            resources: AttemptResources {
                device: spec.device.clone(),
                slots_milli: claim.job.demand.slots_milli,
                processes: spec.replicas_on_each_host(),
                memory_bytes: spec.memory_bytes,
                gpu_memory_bytes: spec.gpu_memory_bytes,
            },
            credentials,
        };
        let worker = shared.launcher.launch(&request)?;
        tracing::info!(job = claim.job.name, attempt = claim.lease.attempt, worker = worker.description(), "launched");
        let utilization = spec.utilization.map(UtilizationMonitor::new);
        let start = AttemptConfig {
            job: claim.job.id.clone(),
            name: claim.job.name.clone(),
            attempt: claim.lease.attempt,
            epoch: claim.lease.epoch,
            rank: 0,
            rank_network: (spec.hosts > 1).then(|| shared.rank_network()),
            spec,
            jobs: references.jobs,
            kept_steps: references.kept_steps,
            rights: claim.job.rights.clone(),
            pause: claim.job.pause.clone(),
            paused_from,
            fetch: shared.fetch_policy(),
            server_url: shared.notebooks.server_url(),
            trace: trace.map(|trace| trace.attempt_context().traceparent()),
            renews_lease: shared.records.is_shared(),
        };
        Ok(WorkerSession {
            worker,
            pending: Some(pending),
            unsent: vec![WorkerCommand::Start(Box::new(start))],
            commands: None,
            last_command: Instant::now(),
            clock,
            heartbeat: HeartbeatMonitor::new(shared.worker_silence_max()),
            kill_at: None,
            stop_grace: shared.stop_grace(),
            timed_out: false,
            requeue: None,
            checkpoints_requested: 0,
            pause: claim.job.pause.clone(),
            utilization,
            renewed_heartbeat: 0,
            is_lease_lost: false,
            idle_reason: None,
        })
    }

    /// Returns a sentence about a worker that was silent for too long, or `None` if it was not.
    pub(super) fn timeout_message(&self) -> Option<String> {
        self.heartbeat.timeout_message()
    }

    /// Sends a command, or keeps it until the worker has connected. If the worker no longer reads, it is about to end,
    /// and its exit is handled. If it does not read the command in time, its connection is closed, which ends it.
    async fn send_command(&mut self, command: WorkerCommand) {
        if self.pending.is_some() {
            self.unsent.push(command);
            return;
        }
        let Some(commands) = &mut self.commands else { return };
        self.last_command = Instant::now();
        if commands.send(&command).await.is_err()
            && let Some(commands) = self.commands.take()
        {
            commands.close().await;
        }
    }

    /// Follows the worker until it has exited and all its output is recorded.
    ///
    /// # Errors
    /// `Records` if the records cannot be written; `Io` if the worker's end cannot be observed.
    pub(super) async fn drive(
        &mut self,
        recorder: &mut AttemptRecorder,
        mut orders: watch::Receiver<AttemptControl>,
    ) -> Result<(FinalEvent, WorkerExit), JobError> {
        let mut events: LineStream<EventReader> = LineStream::new(None);
        let mut output = LineStream::new(self.worker.take_output().map(BufReader::new));
        let mut last_word = FinalEvent::Missing;
        let mut exit = None;
        let mut tick = tokio::time::interval(USAGE_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut orders_open = true;
        while self.pending.is_some() || events.is_open() || output.is_open() {
            tokio::select! {
                connected = next_connection(&mut self.pending) => {
                    self.pending = None;
                    match connected {
                        Ok(connection) => events = LineStream::new(Some(self.begin(connection).await)),
                        Err(error) => last_word = record_refusal(recorder, &error),
                    }
                }
                read = events.read(EVENT_BYTES_MAX) => {
                    let line = events.take_line();
                    let is_open = self.handle_event(recorder, read, &line, &mut last_word).await?;
                    // Recording it can have taken long.
                    self.heartbeat.reset();
                    if !is_open {
                        events.close();
                        self.commands = None;
                    }
                }
                read = output.read(EVENT_BYTES_MAX) => {
                    let line = output.take_line();
                    if !line.is_empty() {
                        recorder.log(&String::from_utf8_lossy(&line));
                    }
                    if read == LineRead::EndOfStream {
                        output.close();
                    }
                }
                ended = self.worker.wait(), if exit.is_none() => {
                    exit = Some(ended?);
                    // A worker that has ended will not connect.
                    if let Some(error) = self.pending.take().and_then(PendingConnection::refusal) {
                        last_word = record_refusal(recorder, &error);
                    }
                }
                changed = orders.changed(), if orders_open => {
                    orders_open = changed.is_ok();
                    let now = orders.borrow().clone();
                    self.apply_control(recorder, &now).await?;
                }
                _ = tick.tick() => {
                    let began = Instant::now();
                    recorder.flush().await?;
                    if began.elapsed() >= WORKER_HEARTBEAT_INTERVAL {
                        // Meanwhile no heartbeat was read.
                        self.heartbeat.reset();
                    }
                    self.check_heartbeats(&mut events).await?;
                    self.check_deadlines(recorder).await?;
                }
            }
        }
        Ok((last_word, self.wait_or_kill(exit).await?))
    }

    /// Returns the exit of a worker whose connection and output are closed. It must not outlive the attempt.
    async fn wait_or_kill(&mut self, exit: Option<WorkerExit>) -> Result<WorkerExit, JobError> {
        if let Some(exit) = exit {
            return Ok(exit);
        }
        if let Ok(exit) = tokio::time::timeout(STOP_GRACE, self.worker.wait()).await {
            return Ok(exit?);
        }
        self.worker.signal(WorkerSignal::Kill)?;
        Ok(self.worker.wait().await?)
    }

    /// Ends a worker whose attempt was refused by the records. It is killed if it does not end in time.
    pub(super) async fn end_fenced(&mut self) {
        self.send_command(WorkerCommand::LeaseLost).await;
        if let Ok(Ok(exit)) = tokio::time::timeout(LEASE_LOST_GRACE, self.worker.wait()).await {
            tracing::warn!(exit_code = exit.code, "the worker of an attempt that lost its lease has ended");
        }
    }

    /// Sends what waited for the worker's connection. Returns the stream of the worker's events.
    async fn begin(&mut self, connection: WorkerConnection) -> EventReader {
        self.heartbeat.reset();
        self.commands = Some(connection.commands);
        for command in std::mem::take(&mut self.unsent) {
            self.send_command(command).await;
        }
        connection.events
    }

    /// Kills a worker that has been silent for too long, and shows it that its supervisor is alive.
    async fn check_heartbeats(&mut self, events: &mut LineStream<EventReader>) -> Result<(), JobError> {
        let is_expected = self.pending.is_some() || events.is_open();
        if is_expected && self.heartbeat.poll(Instant::now()) {
            // SIGKILL also ends a stopped process.
            self.worker.signal(WorkerSignal::Kill)?;
            // A connection to a machine that is gone would never end.
            (self.pending, self.commands) = (None, None);
            events.close();
        }
        if self.commands.is_some() && self.last_command.elapsed() >= WORKER_HEARTBEAT_INTERVAL {
            self.send_command(WorkerCommand::Alive).await;
        }
        Ok(())
    }

    /// Handles one line of the worker's events. Returns `false` if no more lines are read: the stream has ended, or the
    /// worker violated the protocol and is killed.
    async fn handle_event(
        &mut self,
        recorder: &mut AttemptRecorder,
        read: LineRead,
        line: &[u8],
        last: &mut FinalEvent,
    ) -> Result<bool, JobError> {
        match read {
            LineRead::Complete => {}
            LineRead::TooLong => return self.kill_for_protocol_error(recorder, "an event line is too long"),
            LineRead::EndOfStream => return Ok(false),
        }
        match serde_json::from_slice(line) {
            Ok(WorkerEvent::Finished { stopped }) => *last = FinalEvent::Finished { stopped },
            Ok(WorkerEvent::Paused { step, point }) => {
                recorder.set_paused_step(step);
                *last = FinalEvent::Paused(point);
            }
            Ok(WorkerEvent::Failed { reason, message }) => {
                recorder.log(&message);
                *last = FinalEvent::Failed(StateReason::new(reason, message));
            }
            Ok(WorkerEvent::NotebookIdle { sentence }) => self.stop_idle_notebook(recorder, sentence).await?,
            Ok(WorkerEvent::PermissionRequested { request, publication }) => {
                recorder.permit_write(publication).await?;
                self.send_command(WorkerCommand::PermissionGranted { request }).await;
            }
            Ok(WorkerEvent::Alive { heartbeat }) => recorder.record_heartbeat(heartbeat),
            Ok(event) => recorder.record_event(event).await?,
            Err(error) => return self.kill_for_protocol_error(recorder, &error.to_string()),
        }
        Ok(true)
    }

    /// Stops a notebook that was idle for too long, unless it is being stopped already.
    async fn stop_idle_notebook(&mut self, recorder: &mut AttemptRecorder, sentence: String) -> Result<(), JobError> {
        if self.kill_at.is_some() {
            return Ok(());
        }
        recorder.log(&format!("{sentence}; it stops"));
        self.idle_reason = Some(StateReason::new(IDLE, sentence));
        self.request_stop(recorder, IDLE).await
    }

    /// Kills a worker that violated the protocol. Returns `false`, because no more events are read.
    fn kill_for_protocol_error(&mut self, recorder: &AttemptRecorder, error: &str) -> Result<bool, JobError> {
        tracing::error!(job = recorder.name(), error, "the worker violated the protocol");
        self.worker.signal(WorkerSignal::Kill)?;
        Ok(false)
    }

    async fn apply_control(&mut self, recorder: &mut AttemptRecorder, orders: &AttemptControl) -> Result<(), JobError> {
        if orders.renewed_heartbeat != self.renewed_heartbeat {
            self.renewed_heartbeat = orders.renewed_heartbeat;
            let (heartbeat, bucket) = (orders.renewed_heartbeat, recorder.bucket_count());
            self.send_command(WorkerCommand::LeaseRenewed { heartbeat, bucket }).await;
        }
        if orders.is_lease_lost {
            if !self.is_lease_lost {
                self.is_lease_lost = true;
                self.kill_at = Some(Instant::now() + LEASE_LOST_GRACE);
                self.send_command(WorkerCommand::LeaseLost).await;
            }
            return Ok(());
        }
        if orders.checkpoints != self.checkpoints_requested {
            self.checkpoints_requested = orders.checkpoints;
            self.send_command(WorkerCommand::Checkpoint).await;
        }
        if orders.pause != self.pause {
            self.pause.clone_from(&orders.pause);
            self.send_command(WorkerCommand::Pause { point: orders.pause.clone() }).await;
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
        self.kill_at = Some(Instant::now() + self.stop_grace);
        self.send_command(WorkerCommand::Stop).await;
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
                self.worker.signal(WorkerSignal::Kill)?;
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

/// Records why the worker was refused. Its exit code is that of a job that cannot run.
fn record_refusal(recorder: &mut AttemptRecorder, error: &HelloError) -> FinalEvent {
    let message = error.to_string();
    recorder.log(&message);
    FinalEvent::Failed(StateReason::new(WORKER_REFUSED, message))
}
