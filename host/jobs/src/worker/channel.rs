//! The worker's end of its pipes.

use std::cmp::Reverse;
use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use saggar_device::Meter;

use super::ranks::link::Link;
use super::ranks::{self, Group};
use super::spending::Spending;
use crate::limits::{EVENT_BYTES_MAX, LOG_LINE_BYTES_MAX, USAGE_INTERVAL, WORKER_BEAT_INTERVAL};
use crate::protocol::{Command, EXIT_TRY_AGAIN, Event, Start, Usage};

/// Sends events; clones share the pipe, and each event is one whole line.
#[derive(Clone, Debug)]
pub(crate) struct Channel(Output);

#[derive(Clone, Debug)]
enum Output {
    /// To the supervisor.
    Supervisor(Arc<Mutex<Pipe>>),
    /// To the attempt's first worker process, which passes on what matters.
    Leader(Arc<Link>),
}

#[derive(Debug)]
struct Pipe {
    out: io::Stdout,
    /// Values that must stand in no text, the longest first: one may begin with another.
    secrets: Vec<String>,
}

impl Pipe {
    fn send(&mut self, event: &Event) -> io::Result<()> {
        let mut event = event.clone();
        if let Some(text) = event.text() {
            for secret in &self.secrets {
                if text.contains(secret) {
                    *text = text.replace(secret, BLACK);
                }
            }
            // Blackened first: a cut could leave the beginning of a secret.
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        }
        let mut line = serde_json::to_string(&event).expect("events are plain data");
        line.push('\n');
        self.out.write_all(line.as_bytes())?;
        self.out.flush()
    }
}

/// Bytes of an event's text; the rest is cut. Longer than a line of a log, whose writer marks what it cuts.
const TEXT_BYTES_MAX: usize = 2 * LOG_LINE_BYTES_MAX;

// As JSON, a byte may take six.
const _: () = assert!(8 * TEXT_BYTES_MAX < EVENT_BYTES_MAX);

/// What stands in the place of a secret.
const BLACK: &str = "[secret]";

/// What the supervisor asked for since the attempt began.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// Save and return.
    pub(crate) stop: AtomicBool,
    /// Save and go on; taken back when it is done.
    pub(crate) checkpoint: AtomicBool,
}

impl Channel {
    pub(crate) fn new() -> Channel {
        Channel(Output::Supervisor(Arc::new(Mutex::new(Pipe { out: io::stdout(), secrets: Vec::new() }))))
    }

    /// Speaks to the attempt's first worker process, which started this one.
    pub(crate) fn to_leader() -> Channel {
        match ranks::link_to_leader() {
            Ok(link) => Channel(Output::Leader(Arc::new(link))),
            Err(_) => std::process::exit(EXIT_TRY_AGAIN),
        }
    }

    /// The way to the attempt's first worker process; none in that process.
    pub(crate) fn leader(&self) -> Option<Arc<Link>> {
        match &self.0 {
            Output::Supervisor(_) => None,
            Output::Leader(link) => Some(Arc::clone(link)),
        }
    }

    /// From now on, these values are in no event. The first worker process does it for the others.
    pub(crate) fn blacken(&self, mut secrets: Vec<String>) {
        secrets.sort_by_key(|secret| Reverse(secret.len()));
        if let Output::Supervisor(pipe) = &self.0 {
            pipe.lock().unwrap_or_else(PoisonError::into_inner).secrets = secrets;
        }
    }

    /// Sends one event. A supervisor that is gone ends the process: nobody would hear of the work, and another attempt
    /// may already be running.
    pub(crate) fn send(&self, event: &Event) {
        let sent = match &self.0 {
            Output::Supervisor(pipe) => pipe.lock().unwrap_or_else(PoisonError::into_inner).send(event),
            Output::Leader(link) => link.event(event),
        };
        if sent.is_err() {
            std::process::exit(EXIT_TRY_AGAIN);
        }
    }

    /// Waits for the first command and goes on listening on a thread of its own.
    pub(crate) fn receive_start(&self) -> io::Result<(Start, Arc<Control>)> {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        let Command::Start(start) = serde_json::from_str(&line)? else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the first command must be start"));
        };
        let control = Arc::new(Control::default());
        let listener = Arc::clone(&control);
        std::thread::Builder::new().name("commands".to_owned()).spawn(move || listen(&listener))?;
        Ok((*start, control))
    }

    /// Says again and again that this process runs, until it ends, on a thread that waits for nothing else. The first
    /// worker process does it for the others, which it waits for.
    pub(crate) fn beat(&self) {
        if matches!(self.0, Output::Leader(_)) {
            return;
        }
        let channel = self.clone();
        let beat = move || loop {
            channel.send(&Event::Alive);
            std::thread::sleep(WORKER_BEAT_INTERVAL);
        };
        // A system that starts no thread starts no training either, which says so.
        let _ = std::thread::Builder::new().name("heartbeat".to_owned()).spawn(beat);
    }

    /// Reports usage, that of `group` included, every [`USAGE_INTERVAL`] until the result is told to finish, and then once
    /// more.
    pub(crate) fn report_usage(
        &self,
        meter: Meter,
        spending: Arc<Spending>,
        began: Instant,
        group: Option<Arc<Group>>,
    ) -> Reporter {
        let channel = self.clone();
        let (stop, stopped) = mpsc::channel::<()>();
        let report = move || loop {
            let ended = stopped.recv_timeout(USAGE_INTERVAL) != Err(mpsc::RecvTimeoutError::Timeout);
            let own = Usage {
                gpu_seconds: meter.busy_time().as_secs_f64(),
                wall_seconds: began.elapsed().as_secs_f64(),
                gpu_bytes: if ended { 0 } else { meter.bytes() },
                gpu_bytes_peak: meter.peak_bytes(),
                dispatches: meter.dispatches(),
                submissions: meter.submissions(),
                ..Usage::default()
            };
            let others = group.as_ref().map(|group| group.usage()).unwrap_or_default();
            channel.send(&Event::Usage(others.into_iter().fold(spending.with(own), with)));
            if ended {
                return;
            }
        };
        let thread = std::thread::Builder::new().name("usage".to_owned()).spawn(report);
        Reporter { stop, thread: thread.ok() }
    }
}

/// What two processes used at the same time, for the same samples.
fn with(one: Usage, other: Usage) -> Usage {
    Usage {
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
pub(crate) struct Reporter {
    stop: mpsc::Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    /// Has the last report made, and waits for it.
    pub(crate) fn finish(self) {
        drop(self.stop);
        if let Some(thread) = self.thread {
            let _ = thread.join();
        }
    }
}

/// Takes commands until the supervisor is gone, and then ends the process at once: its successor may start another
/// attempt, and every state worth keeping is in a checkpoint.
fn listen(control: &Control) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Command::Stop) => control.stop.store(true, Ordering::Release),
            Ok(Command::Checkpoint) => control.checkpoint.store(true, Ordering::Release),
            Ok(Command::Start(_)) | Err(_) => std::process::exit(crate::protocol::EXIT_BROKEN),
        }
    }
    std::process::exit(EXIT_TRY_AGAIN);
}
