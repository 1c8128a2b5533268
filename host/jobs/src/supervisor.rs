//! One attempt: starts its worker, writes down what it says as it says it, tells it to stop, and decides what comes next.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::Duration;

use saggar_store::records::{Claim, JobState, Reason};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::ending::{Exit, LastWord, Next, Situation, ending, next};
use crate::error::JobError;
use crate::limits::{EVENT_BYTES_MAX, STOP_GRACE, USAGE_INTERVAL};
use crate::protocol::{Command, Event, Start};
use crate::recorder::Recorder;
use crate::scheduler::Shared;
use crate::spec::JobSpec;

/// What the scheduler tells an attempt's supervisor.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Orders {
    /// Save and return; with the user's reason, or none where the server shuts down.
    pub(crate) stop: bool,
    /// Counts requests for a checkpoint.
    pub(crate) checkpoints: u64,
}

/// Runs the claimed attempt to its end and records what becomes of the job.
pub(crate) async fn supervise(shared: Arc<Shared>, claim: Claim, orders: watch::Receiver<Orders>) {
    let name = claim.job.name.clone();
    let attempt = claim.lease.attempt;
    tracing::info!(job = %name, attempt, "attempt starts");
    match attend(&shared, claim, orders).await {
        Ok(()) => {}
        // The records say what happened to the job, or the next start of the server takes it over.
        Err(error) => tracing::error!(job = %name, attempt, %error, "attempt lost"),
    }
    shared.touch();
}

async fn attend(shared: &Arc<Shared>, claim: Claim, orders: watch::Receiver<Orders>) -> Result<(), JobError> {
    let mut recorder = Recorder::open(Arc::clone(shared), &claim)?;
    let spec: JobSpec = match serde_json::from_str(&claim.job.spec) {
        Ok(spec) => spec,
        Err(error) => {
            let reason = Reason::new("BAD_SPEC", format!("the job's record cannot be read: {error}"));
            return recorder.conclude(Next::Over(JobState::Failed, reason)).await;
        }
    };
    let used = recorder.wall_seconds_before().await?;
    let time_left = spec.max_runtime_seconds.map(|max| Duration::from_secs_f64((max - used).max(0.0)));
    let mut worker = match Worker::start(shared, &claim, spec.clone(), time_left).await {
        Ok(worker) => worker,
        Err(error) => {
            let reason = Reason::new("LAUNCH_FAILED", error.to_string());
            return recorder.conclude(Next::Over(JobState::Failed, reason)).await;
        }
    };
    let (last_word, exit, timed_out) = worker.attend(&mut recorder, orders).await?;
    let situation = Situation {
        stop: recorder.stop_asked().await?,
        timed_out,
        attempts: claim.lease.attempt - recorder.shutdowns_before().await?,
        retry: spec.retry,
    };
    recorder.conclude(next(ending(last_word, exit), &situation)).await
}

/// A worker process and what it was told.
struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    deadline: Option<Instant>,
    kill_at: Option<Instant>,
    timed_out: bool,
    checkpoints_asked: u64,
}

impl Worker {
    async fn start(
        shared: &Shared,
        claim: &Claim,
        spec: JobSpec,
        time_left: Option<Duration>,
    ) -> Result<Worker, JobError> {
        let mut child = shared.launcher.launch()?;
        let start = Start {
            job: claim.job.id.clone(),
            name: claim.job.name.clone(),
            attempt: claim.lease.attempt,
            epoch: claim.lease.epoch,
            spec,
        };
        let stdin = child.stdin.take();
        let deadline = time_left.map(|left| Instant::now() + left);
        let mut worker = Worker { child, stdin, deadline, kill_at: None, timed_out: false, checkpoints_asked: 0 };
        worker.tell(&Command::Start(Box::new(start))).await;
        Ok(worker)
    }

    /// Sends a command. A worker that no longer listens is about to end, which its exit will tell.
    async fn tell(&mut self, command: &Command) {
        let Some(stdin) = &mut self.stdin else { return };
        let mut line = serde_json::to_vec(command).expect("commands are plain data");
        line.push(b'\n');
        if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
            self.stdin = None;
        }
    }

    /// Follows the worker until it has exited and all it wrote is recorded.
    async fn attend(
        &mut self,
        recorder: &mut Recorder,
        mut orders: watch::Receiver<Orders>,
    ) -> Result<(LastWord, Exit, bool), JobError> {
        let mut events = BufReader::new(self.child.stdout.take().expect("launched with pipes"));
        let mut errors = BufReader::new(self.child.stderr.take().expect("launched with pipes"));
        let mut last_word = LastWord::Silence;
        let (mut events_open, mut errors_open) = (true, true);
        let (mut event_line, mut error_line) = (Vec::new(), Vec::new());
        let mut tick = tokio::time::interval(USAGE_INTERVAL);
        let mut orders_open = true;
        while events_open || errors_open {
            tokio::select! {
                more = read_line(&mut events, &mut event_line), if events_open => {
                    events_open = more && self.event(recorder, &event_line, &mut last_word).await?;
                    event_line.clear();
                }
                more = read_line(&mut errors, &mut error_line), if errors_open => {
                    errors_open = more;
                    if more {
                        recorder.log(&String::from_utf8_lossy(&error_line))?;
                    }
                    error_line.clear();
                }
                changed = orders.changed(), if orders_open => {
                    orders_open = changed.is_ok();
                    let now = orders.borrow().clone();
                    self.obey(recorder, &now).await?;
                }
                _ = tick.tick() => {
                    recorder.flush().await?;
                    self.watch_the_clock(recorder).await?;
                }
            }
        }
        // Its pipes are closed; what is left of it must not outlive the attempt.
        let status = tokio::time::timeout(STOP_GRACE, self.child.wait()).await;
        let status = match status {
            Ok(status) => status?,
            Err(_) => {
                self.child.kill().await?;
                self.child.wait().await?
            }
        };
        let exit = Exit { code: status.code(), signal: status.signal() };
        Ok((last_word, exit, self.timed_out))
    }

    /// Handles one line of the worker's. False ends the attempt: a worker that does not keep to the protocol is killed.
    async fn event(&mut self, recorder: &mut Recorder, line: &[u8], last: &mut LastWord) -> Result<bool, JobError> {
        match serde_json::from_slice(line) {
            Ok(Event::Finished { stopped }) => *last = LastWord::Finished { stopped },
            Ok(Event::Failed { reason, message }) => {
                recorder.log(&message)?;
                *last = LastWord::Failed(Reason::new(reason, message));
            }
            Ok(event) => recorder.event(event).await?,
            Err(error) => {
                tracing::error!(job = recorder.name(), %error, "worker does not keep to the protocol");
                self.child.start_kill()?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn obey(&mut self, recorder: &mut Recorder, orders: &Orders) -> Result<(), JobError> {
        if orders.checkpoints != self.checkpoints_asked {
            self.checkpoints_asked = orders.checkpoints;
            self.tell(&Command::Checkpoint).await;
        }
        if orders.stop && self.kill_at.is_none() {
            self.stop(recorder).await?;
        }
        Ok(())
    }

    async fn stop(&mut self, recorder: &mut Recorder) -> Result<(), JobError> {
        self.kill_at = Some(Instant::now() + STOP_GRACE);
        self.tell(&Command::Stop).await;
        recorder.stopping().await
    }

    async fn watch_the_clock(&mut self, recorder: &mut Recorder) -> Result<(), JobError> {
        let now = Instant::now();
        if self.kill_at.is_some_and(|at| now >= at) {
            self.child.start_kill()?;
        }
        let late = self.deadline.is_some_and(|deadline| now >= deadline);
        if late && self.kill_at.is_none() {
            self.timed_out = true;
            recorder.log("the job's running time is used up; saving its state")?;
            self.stop(recorder).await?;
        }
        Ok(())
    }
}

/// Appends one line, without its end, to `line`. False at the end of the stream, or where the line is too long. May be
/// dropped between reads without losing bytes: they are in `line`.
async fn read_line(reader: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> bool {
    let room = EVENT_BYTES_MAX.saturating_sub(line.len()) as u64;
    match reader.take(room).read_until(b'\n', line).await {
        Ok(_) if line.last() == Some(&b'\n') => {
            line.pop();
            true
        }
        Ok(_) | Err(_) => false,
    }
}
