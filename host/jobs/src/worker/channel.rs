//! The worker's end of its pipes.

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use saggar_device::Meter;

use crate::limits::USAGE_INTERVAL;
use crate::protocol::{Command, EXIT_TRY_AGAIN, Event, Start, Usage};

/// Sends events; clones share the pipe, and each event is one whole line.
#[derive(Clone, Debug)]
pub(crate) struct Channel(Arc<Mutex<io::Stdout>>);

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
        Channel(Arc::new(Mutex::new(io::stdout())))
    }

    /// Sends one event. A supervisor that is gone ends the process: nobody would hear of the work, and another attempt
    /// may already be running.
    pub(crate) fn send(&self, event: &Event) {
        let mut line = serde_json::to_vec(event).expect("events are plain data");
        line.push(b'\n');
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
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

    /// Reports usage every [`USAGE_INTERVAL`] until the result is told to finish, and then once more.
    pub(crate) fn report_usage(&self, meter: Meter, samples: Arc<AtomicU64>, began: Instant) -> Reporter {
        let channel = self.clone();
        let (stop, stopped) = mpsc::channel::<()>();
        let report = move || loop {
            let ended = stopped.recv_timeout(USAGE_INTERVAL) != Err(mpsc::RecvTimeoutError::Timeout);
            channel.send(&Event::Usage(Usage {
                gpu_seconds: meter.busy().as_secs_f64(),
                wall_seconds: began.elapsed().as_secs_f64(),
                gpu_bytes: if ended { 0 } else { meter.bytes() },
                gpu_bytes_peak: meter.peak_bytes(),
                samples: samples.load(Ordering::Acquire),
                dispatches: meter.dispatches(),
                submissions: meter.submissions(),
            }));
            if ended {
                return;
            }
        };
        let thread = std::thread::Builder::new().name("usage".to_owned()).spawn(report);
        Reporter { stop, thread: thread.ok() }
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
