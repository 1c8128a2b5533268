//! The worker's end of its pipes to the supervisor.

use std::cmp::Reverse;
use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use saggar_device::Meter;

use super::metering::UsageCounters;
use super::ranks::rank_link::RankLink;
use super::ranks::{self, RankGroup};
use crate::limits::{EVENT_BYTES_MAX, LOG_LINE_BYTES_MAX, USAGE_INTERVAL, WORKER_HEARTBEAT_INTERVAL};
use crate::protocol::{AttemptConfig, EXIT_TRY_AGAIN, WorkerCommand, WorkerEvent, WorkerUsage};

/// A channel for events. Clones share the pipe, and each event is written as one complete line.
#[derive(Clone, Debug)]
pub(crate) struct EventChannel(EventSink);

#[derive(Clone, Debug)]
enum EventSink {
    /// To the supervisor.
    Supervisor(Arc<Mutex<SupervisorPipe>>),
    /// To the attempt's first worker process, which forwards the relevant ones.
    Leader(Arc<RankLink>),
}

#[derive(Debug)]
struct SupervisorPipe {
    out: io::Stdout,
    /// Secret values to redact from all text, the longest first, because one can be a prefix of another.
    secrets: Vec<String>,
}

impl SupervisorPipe {
    fn send(&mut self, event: &WorkerEvent) -> io::Result<()> {
        let mut event = event.clone();
        if let Some(text) = event.text_mut() {
            for secret in &self.secrets {
                if text.contains(secret) {
                    *text = text.replace(secret, REDACTED);
                }
            }
            // Redacted before cutting, because a cut could leave a part of a secret.
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        }
        let mut line = serde_json::to_string(&event).expect("events are plain data");
        line.push('\n');
        self.out.write_all(line.as_bytes())?;
        self.out.flush()
    }
}

/// Maximum bytes of an event's text; the rest is cut. More than a log line, so that the log's writer marks the cut.
const TEXT_BYTES_MAX: usize = 2 * LOG_LINE_BYTES_MAX;

// In JSON a byte can take six bytes.
const _: () = assert!(8 * TEXT_BYTES_MAX < EVENT_BYTES_MAX);

/// The replacement of a secret.
const REDACTED: &str = "[secret]";

/// The supervisor's requests since the attempt began.
#[derive(Debug, Default)]
pub(crate) struct WorkerControl {
    /// Save and return.
    pub(crate) stop: AtomicBool,
    /// Save and continue; reset when done.
    pub(crate) checkpoint: AtomicBool,
}

impl EventChannel {
    pub(crate) fn new() -> EventChannel {
        EventChannel(EventSink::Supervisor(Arc::new(Mutex::new(SupervisorPipe {
            out: io::stdout(),
            secrets: Vec::new(),
        }))))
    }

    /// Returns a channel to the attempt's first worker process, which started this one.
    pub(crate) fn connect_to_leader() -> EventChannel {
        match ranks::link_to_leader() {
            Ok(link) => EventChannel(EventSink::Leader(Arc::new(link))),
            Err(_) => std::process::exit(EXIT_TRY_AGAIN),
        }
    }

    /// Returns the link to the attempt's first worker process, or `None` in that process.
    pub(crate) fn leader_link(&self) -> Option<Arc<RankLink>> {
        match &self.0 {
            EventSink::Supervisor(_) => None,
            EventSink::Leader(link) => Some(Arc::clone(link)),
        }
    }

    /// Redacts these values from all further events. The first worker process does it for the others.
    pub(crate) fn redact(&self, mut secrets: Vec<String>) {
        secrets.sort_by_key(|secret| Reverse(secret.len()));
        if let EventSink::Supervisor(pipe) = &self.0 {
            pipe.lock().unwrap_or_else(PoisonError::into_inner).secrets = secrets;
        }
    }

    /// Sends one event. Ends the process if the supervisor is gone, because the result would be lost and another
    /// attempt may already be running.
    pub(crate) fn send(&self, event: &WorkerEvent) {
        let sent = match &self.0 {
            EventSink::Supervisor(pipe) => pipe.lock().unwrap_or_else(PoisonError::into_inner).send(event),
            EventSink::Leader(link) => link.forward_event(event),
        };
        if sent.is_err() {
            std::process::exit(EXIT_TRY_AGAIN);
        }
    }

    /// Waits for the first command, and continues to read commands on a separate thread.
    pub(crate) fn receive_start(&self) -> io::Result<(AttemptConfig, Arc<WorkerControl>)> {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        let WorkerCommand::Start(start) = serde_json::from_str(&line)? else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the first command must be start"));
        };
        let control = Arc::new(WorkerControl::default());
        let listener = Arc::clone(&control);
        std::thread::Builder::new().name("commands".to_owned()).spawn(move || read_commands(&listener))?;
        Ok((*start, control))
    }

    /// Sends heartbeats until the process ends, on a thread that waits for nothing else. The first worker process sends
    /// them for the others, whose messages it waits for.
    pub(crate) fn start_heartbeat(&self) {
        if matches!(self.0, EventSink::Leader(_)) {
            return;
        }
        let channel = self.clone();
        let beat = move || loop {
            channel.send(&WorkerEvent::Alive);
            std::thread::sleep(WORKER_HEARTBEAT_INTERVAL);
        };
        // If the system cannot start this thread, it cannot start the training either, which reports the error.
        let _ = std::thread::Builder::new().name("heartbeat".to_owned()).spawn(beat);
    }

    /// Reports usage, including that of `group`, every [`USAGE_INTERVAL`] until the returned reporter is finished, and
    /// then once more.
    pub(crate) fn report_usage(
        &self,
        meter: Meter,
        spending: Arc<UsageCounters>,
        began: Instant,
        group: Option<Arc<RankGroup>>,
    ) -> UsageReporter {
        let channel = self.clone();
        let (stop, stopped) = mpsc::channel::<()>();
        let report = move || loop {
            let ended = stopped.recv_timeout(USAGE_INTERVAL) != Err(mpsc::RecvTimeoutError::Timeout);
            let own = WorkerUsage {
                gpu_seconds: meter.busy_time().as_secs_f64(),
                wall_seconds: began.elapsed().as_secs_f64(),
                gpu_bytes: if ended { 0 } else { meter.bytes() },
                gpu_bytes_peak: meter.peak_bytes(),
                dispatches: meter.dispatches(),
                submissions: meter.submissions(),
                ..WorkerUsage::default()
            };
            let others = group.as_ref().map(|group| group.usage()).unwrap_or_default();
            channel.send(&WorkerEvent::Usage(others.into_iter().fold(spending.apply_to(own), combine_usage)));
            if ended {
                return;
            }
        };
        let thread = std::thread::Builder::new().name("usage".to_owned()).spawn(report);
        UsageReporter { stop, thread: thread.ok() }
    }
}

/// Combines the usage of two processes that work at the same time on the same samples.
fn combine_usage(one: WorkerUsage, other: WorkerUsage) -> WorkerUsage {
    WorkerUsage {
        gpu_seconds: one.gpu_seconds + other.gpu_seconds,
        gpu_bytes: one.gpu_bytes + other.gpu_bytes,
        gpu_bytes_peak: one.gpu_bytes_peak + other.gpu_bytes_peak,
        dispatches: one.dispatches + other.dispatches,
        submissions: one.submissions + other.submissions,
        ..one
    }
}

/// The thread that reports usage.
#[derive(Debug)]
pub(crate) struct UsageReporter {
    stop: mpsc::Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl UsageReporter {
    /// Sends the last report and waits for it.
    pub(crate) fn finish(self) {
        drop(self.stop);
        if let Some(thread) = self.thread {
            let _ = thread.join();
        }
    }
}

/// Reads commands until the supervisor is gone, then ends the process at once: the supervisor's successor may start
/// another attempt, and all state worth keeping is in a checkpoint.
fn read_commands(control: &WorkerControl) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(WorkerCommand::Stop) => control.stop.store(true, Ordering::Release),
            Ok(WorkerCommand::Checkpoint) => control.checkpoint.store(true, Ordering::Release),
            Ok(WorkerCommand::Start(_)) | Err(_) => std::process::exit(crate::protocol::EXIT_BROKEN),
        }
    }
    std::process::exit(EXIT_TRY_AGAIN);
}
