//! One attempt: starts its worker, writes down what it says as it says it, tells it to stop, and decides what comes next.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

use saggar_store::records::{Claim, JobState, Reason, Records};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use crate::ending::{Ending, Exit, LastWord, Next, Situation, ending, next};
use crate::error::JobError;
use crate::limits::{COMMAND_TIME_MAX, EVENT_BYTES_MAX, STOP_GRACE, USAGE_INTERVAL};
use crate::protocol::{Command, Event, Start};
use crate::recorder::Recorder;
use crate::scheduler;
use crate::shared::Shared;
use crate::spec::{IDLE, JobSpec, RECYCLED, WORKER_LOST};
use clock::{AttemptClock, Due};
use memory_kills::MemoryKills;
use silence::WorkerSilence;
use utilization::Busy;

mod clock;
mod memory_kills;
mod silence;
mod utilization;

/// What the scheduler tells an attempt's supervisor.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Orders {
    /// Save and return; with the user's reason, or none where the server shuts down.
    pub(crate) stop: bool,
    /// Save and return, for the job to be queued again, and why.
    pub(crate) requeue: Option<Reason>,
    /// Counts requests for a checkpoint.
    pub(crate) checkpoints: u64,
}

/// Runs the claimed attempt to its end and records what becomes of the job.
///
/// `device` is that of the pool which the attempt has its slots from.
pub(crate) async fn supervise(shared: Arc<Shared>, claim: Claim, device: String, orders: watch::Receiver<Orders>) {
    let (id, name, attempt) = (claim.job.id.clone(), claim.job.name.clone(), claim.lease.attempt);
    tracing::info!(job = %name, attempt, device, "attempt starts");
    if let Err(error) = attend(&shared, claim, device, orders).await {
        tracing::error!(job = %name, attempt, %error, "attempt lost");
        scheduler::give_back(&shared, &id, &error).await;
    }
    shared.touch();
}

async fn attend(
    shared: &Arc<Shared>,
    claim: Claim,
    device: String,
    orders: watch::Receiver<Orders>,
) -> Result<(), JobError> {
    let mut recorder = Recorder::open(Arc::clone(shared), &claim)?;
    let mut spec: JobSpec = match serde_json::from_str(&claim.job.spec) {
        Ok(spec) => spec,
        Err(error) => {
            let reason = Reason::new("BAD_SPEC", format!("the job's record cannot be read: {error}"));
            return recorder.conclude(Next::Over(JobState::Failed, reason)).await;
        }
    };
    spec.device = device;
    let history = recorder.history().await?;
    let clock = AttemptClock::start(&spec, history.wall_seconds, history.extensions);
    let jobs = match named_jobs(shared, &spec).await {
        Ok(jobs) => jobs,
        Err(JobError::NotFound { name, .. }) => {
            let reason = Reason::new("INPUT_GONE", format!("job {name}, which it was to read, was removed"));
            return recorder.conclude(Next::Over(JobState::Failed, reason)).await;
        }
        Err(error) => return Err(error),
    };
    let mut worker = match Worker::start(shared, &claim, spec.clone(), jobs, clock).await {
        Ok(worker) => worker,
        Err(error) => {
            let reason = Reason::new("LAUNCH_FAILED", error.to_string());
            return recorder.conclude(Next::Over(JobState::Failed, reason)).await;
        }
    };
    let (last_word, exit) = worker.attend(&mut recorder, orders).await?;
    let situation = Situation {
        stop: recorder.stop_asked().await?.or(worker.idle),
        timed_out: worker.timed_out,
        requeue: worker.requeue,
        interruptions: history.interruptions,
        retry: spec.retry,
        retry_on: &spec.retry_on,
    };
    let ended = match worker.silence.sentence() {
        Some(sentence) => Ending::Interrupted(Reason::new(WORKER_LOST, sentence)),
        None => ending(last_word, exit),
    };
    recorder.conclude(next(ended, &situation)).await
}

/// The identifiers of the jobs that a specification names.
async fn named_jobs(shared: &Arc<Shared>, spec: &JobSpec) -> Result<BTreeMap<String, String>, JobError> {
    let names: Vec<String> = spec.named_jobs().map(str::to_owned).collect();
    let look = move |records: &dyn Records| {
        let named = |name: String| Ok((name.clone(), records.get(&name)?.id));
        names.into_iter().map(named).collect()
    };
    shared.records(look).await
}

/// A worker process and what it was told.
struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    clock: AttemptClock,
    silence: WorkerSilence,
    memory_kills: Option<MemoryKills>,
    kill_at: Option<Instant>,
    timed_out: bool,
    /// Why it was told to make room.
    requeue: Option<Reason>,
    checkpoints_asked: u64,
    busy: Option<Busy>,
    /// Why it was told to end, where it left its device idle.
    idle: Option<Reason>,
}

impl Worker {
    async fn start(
        shared: &Shared,
        claim: &Claim,
        spec: JobSpec,
        jobs: BTreeMap<String, String>,
        clock: AttemptClock,
    ) -> Result<Worker, JobError> {
        let mut child = shared.launcher.launch()?;
        let start = Start {
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
        let mut worker = Worker {
            memory_kills: child.id().and_then(MemoryKills::of),
            child,
            stdin,
            clock,
            silence: WorkerSilence::new(shared.worker_silence_max()),
            kill_at: None,
            timed_out: false,
            requeue: None,
            checkpoints_asked: 0,
            busy: start.spec.utilization.map(Busy::new),
            idle: None,
        };
        worker.tell(&Command::Start(Box::new(start))).await;
        Ok(worker)
    }

    /// Sends a command. A worker that no longer listens is about to end, which its exit will tell; one that does not read it
    /// in time is told to end by the end of its commands.
    async fn tell(&mut self, command: &Command) {
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

    /// Follows the worker until it has exited and all it wrote is recorded.
    async fn attend(
        &mut self,
        recorder: &mut Recorder,
        mut orders: watch::Receiver<Orders>,
    ) -> Result<(LastWord, Exit), JobError> {
        let mut events = BufReader::new(self.child.stdout.take().expect("launched with pipes"));
        let mut errors = BufReader::new(self.child.stderr.take().expect("launched with pipes"));
        let mut last_word = LastWord::Silence;
        let (mut events_open, mut errors_open) = (true, true);
        let (mut event_line, mut error_line) = (Vec::new(), Vec::new());
        let mut tick = tokio::time::interval(USAGE_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut orders_open = true;
        while events_open || errors_open {
            tokio::select! {
                read = read_line(&mut events, &mut event_line), if events_open => {
                    self.silence.heard();
                    events_open = match read {
                        Read::Whole => self.event(recorder, &event_line, &mut last_word).await?,
                        Read::Half => self.break_off(recorder, "an event has no end")?,
                        Read::End => false,
                    };
                    event_line.clear();
                }
                read = read_line(&mut errors, &mut error_line), if errors_open => {
                    errors_open = read != Read::End;
                    if !error_line.is_empty() {
                        recorder.log(&String::from_utf8_lossy(&error_line));
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
                    if events_open && self.silence.look(Instant::now()) {
                        // Also a stopped process ends by this.
                        self.child.start_kill()?;
                    }
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
        let memory_ran_out = self.memory_kills.as_ref().is_some_and(MemoryKills::has_grown);
        let exit = Exit { code: status.code(), signal: status.signal(), memory_ran_out };
        Ok((last_word, exit))
    }

    /// Handles one line of the worker's. False ends the attempt: a worker that does not keep to the protocol is killed.
    async fn event(&mut self, recorder: &mut Recorder, line: &[u8], last: &mut LastWord) -> Result<bool, JobError> {
        match serde_json::from_slice(line) {
            Ok(Event::Finished { stopped }) => *last = LastWord::Finished { stopped },
            Ok(Event::Failed { reason, message }) => {
                recorder.log(&message);
                *last = LastWord::Failed(Reason::new(reason, message));
            }
            Ok(event) => recorder.event(event).await?,
            Err(error) => return self.break_off(recorder, &error.to_string()),
        }
        Ok(true)
    }

    /// Kills a worker that does not keep to the protocol. False: nothing more is heard.
    fn break_off(&mut self, recorder: &Recorder, error: &str) -> Result<bool, JobError> {
        tracing::error!(job = recorder.name(), error, "worker does not keep to the protocol");
        self.child.start_kill()?;
        Ok(false)
    }

    async fn obey(&mut self, recorder: &mut Recorder, orders: &Orders) -> Result<(), JobError> {
        if orders.checkpoints != self.checkpoints_asked {
            self.checkpoints_asked = orders.checkpoints;
            self.tell(&Command::Checkpoint).await;
        }
        if self.kill_at.is_some() {
            return Ok(());
        }
        if orders.stop {
            return self.stop(recorder, "STOP_REQUESTED").await;
        }
        match &orders.requeue {
            Some(reason) => self.make_room(recorder, reason.clone()).await,
            None => Ok(()),
        }
    }

    async fn stop(&mut self, recorder: &mut Recorder, code: &str) -> Result<(), JobError> {
        self.kill_at = Some(Instant::now() + STOP_GRACE);
        self.tell(&Command::Stop).await;
        recorder.stopping(code).await
    }

    /// Has the state saved and the job queued again.
    async fn make_room(&mut self, recorder: &mut Recorder, reason: Reason) -> Result<(), JobError> {
        recorder.log(&format!("{}; saving its state", reason.sentence));
        let code = reason.code.clone();
        self.requeue = Some(reason);
        self.stop(recorder, &code).await
    }

    async fn watch_the_clock(&mut self, recorder: &mut Recorder) -> Result<(), JobError> {
        let now = Instant::now();
        if let Some(at) = self.kill_at {
            if now >= at {
                self.child.start_kill()?;
            }
            return Ok(());
        }
        if let Some(share) = self.busy.as_mut().and_then(|busy| busy.idle(now, recorder.device_seconds())) {
            let sentence =
                format!("the device was busy for {:.1} % of the time, less than the job must use", share * 100.0);
            recorder.log(&format!("{sentence}; saving its state"));
            self.idle = Some(Reason::new(IDLE, sentence));
            return self.stop(recorder, IDLE).await;
        }
        match self.clock.due(now) {
            Due::Nothing => Ok(()),
            Due::Extend { number, of } => recorder.extended(number, of).await,
            Due::Recycle => {
                let sentence = "the attempt has run for its longest time";
                self.make_room(recorder, Reason::new(RECYCLED, sentence)).await
            }
            Due::TimeOut => {
                self.timed_out = true;
                recorder.log("the job's running time is used up; saving its state");
                self.stop(recorder, "MAX_RUNTIME").await
            }
        }
    }
}

/// How far a line was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    /// It is there, without its end.
    Whole,
    /// As many bytes of it as a line may have.
    Half,
    /// The stream has ended.
    End,
}

/// Appends one line to `line`. May be dropped between reads without losing bytes: they are in `line`.
async fn read_line(reader: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> Read {
    let room = EVENT_BYTES_MAX.saturating_sub(line.len()) as u64;
    match reader.take(room).read_until(b'\n', line).await {
        Ok(_) if line.last() == Some(&b'\n') => {
            line.pop();
            Read::Whole
        }
        Ok(_) if line.len() >= EVENT_BYTES_MAX => Read::Half,
        Ok(_) | Err(_) => Read::End,
    }
}
