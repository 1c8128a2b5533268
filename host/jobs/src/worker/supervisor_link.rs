//! The worker's end of its connection to the supervisor: writes events, redacts secrets, and closes without losing the
//! last lines.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::limits::{CLOSE_TIME_MAX, EVENT_BYTES_MAX, LOG_LINE_BYTES_MAX};
use crate::protocol::{EXIT_TRY_AGAIN, WorkerEvent};
use crate::transport::ServerStream;

/// The connection to the supervisor.
#[derive(Debug)]
pub(super) struct SupervisorLink {
    writer: Mutex<EventWriter>,
    /// Whether the last event was sent.
    is_closed: AtomicBool,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

#[derive(Debug)]
struct EventWriter {
    stream: Box<dyn ServerStream>,
    /// Secret values to redact from all text, the longest first, because one can be a prefix of another.
    secrets: Vec<String>,
}

impl EventWriter {
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
        write_line(&mut self.stream, &event)
    }
}

/// Writes a value as one line of JSON.
pub(super) fn write_line(stream: &mut dyn Write, value: &impl serde::Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(value).expect("events are plain data");
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    stream.flush()
}

impl SupervisorLink {
    pub(super) fn new(stream: Box<dyn ServerStream>) -> SupervisorLink {
        SupervisorLink {
            writer: Mutex::new(EventWriter { stream, secrets: Vec::new() }),
            is_closed: AtomicBool::new(false),
            has_ended: Mutex::new(false),
            ended: Condvar::new(),
        }
    }

    /// Redacts these values from all further events.
    pub(super) fn redact(&self, mut secrets: Vec<String>) {
        secrets.sort_by_key(|secret| Reverse(secret.len()));
        self.writer().secrets = secrets;
    }

    fn writer(&self) -> MutexGuard<'_, EventWriter> {
        self.writer.lock()
    }

    /// Sends one event, unless the last one was sent.
    ///
    /// # Errors
    /// An I/O error if the supervisor is gone.
    pub(super) fn send(&self, event: &WorkerEvent) -> io::Result<()> {
        let mut writer = self.writer();
        if self.is_closed.load(Ordering::Acquire) { Ok(()) } else { writer.send(event) }
    }

    /// Sends the end of the events, and waits until the supervisor has received it and closes the connection. Without
    /// this, the system could discard lines that the supervisor has not received when the process exits.
    pub(super) fn close(&self) {
        let writer = self.writer();
        self.is_closed.store(true, Ordering::Release);
        if writer.stream.shutdown_write().is_err() {
            return;
        }
        drop(writer);
        let mut ended = self.has_ended.lock();
        self.ended.wait_while_for(&mut ended, |ended| !*ended, CLOSE_TIME_MAX);
    }

    /// Handles the end of the commands. If the supervisor is gone, ends the process at once: the supervisor's successor
    /// may start another attempt, and all state worth keeping is in a checkpoint.
    pub(super) fn handle_end(&self) {
        if !self.is_closed.load(Ordering::Acquire) {
            std::process::exit(EXIT_TRY_AGAIN);
        }
        *self.has_ended.lock() = true;
        self.ended.notify_all();
    }
}

/// Maximum bytes of an event's text; the rest is cut. More than a log line, so that the log's writer marks the cut.
const TEXT_BYTES_MAX: usize = 2 * LOG_LINE_BYTES_MAX;

// In JSON a byte can take six bytes.
const _: () = assert!(8 * TEXT_BYTES_MAX < EVENT_BYTES_MAX);

/// The replacement of a secret.
const REDACTED: &str = "[secret]";
