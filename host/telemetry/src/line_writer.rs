//! Lines for a log that never block their writer: they wait in a bounded queue, and a thread writes them. A line is lost,
//! and counted, if the queue is full because the target takes nothing, such as a pipe that nobody reads, or if it cannot
//! be written, such as to a full disk.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use saggar_metrics::IntCounter;

use crate::limits::{LINE_QUEUE_BYTES_MAX, LINE_RETRY_PAUSE};

/// The target of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineTarget {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, to which lines are appended. It is created with mode 0600.
    File(PathBuf),
}

/// A writer of lines. Clones write to the same target.
#[derive(Clone, Debug)]
pub struct LineWriter {
    shared: Arc<LineWriterShared>,
}

#[derive(Debug)]
struct LineWriterShared {
    queue: Mutex<LineQueue>,
    /// Wakes the thread: a line was added, or the file is to be reopened.
    wake: Condvar,
    /// Wakes waits for an empty queue.
    drained: Condvar,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct LineQueue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    is_writing: bool,
    reopen: bool,
    lost: u64,
    counter: Option<IntCounter>,
}

impl LineQueue {
    fn count_lost(&mut self, lines: u64) {
        self.lost += lines;
        if let Some(counter) = &self.counter {
            counter.inc_by(lines);
        }
    }
}

impl LineWriter {
    /// Opens the target and starts the thread that writes to it.
    ///
    /// # Errors
    /// Returns the system's error if the target cannot be opened or the thread not be started.
    pub fn start(target: LineTarget) -> io::Result<LineWriter> {
        LineWriter::with_bytes_max(target, LINE_QUEUE_BYTES_MAX)
    }

    fn with_bytes_max(target: LineTarget, bytes_max: usize) -> io::Result<LineWriter> {
        let sink = LineSink { file: open(&target)?, target, is_mid_line: false, is_failing: false };
        let (queue, wake, drained) = (Mutex::default(), Condvar::new(), Condvar::new());
        let shared = Arc::new(LineWriterShared { queue, wake, drained, bytes_max });
        let writer = Arc::clone(&shared);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || write_queue(&writer, sink))?;
        Ok(LineWriter { shared })
    }

    /// Queues a line, which ends with a newline. Never waits for the target.
    pub fn push(&self, line: Vec<u8>) {
        let mut queue = self.shared.queue.lock();
        if queue.bytes + line.len() > self.shared.bytes_max {
            return queue.count_lost(1);
        }
        queue.bytes += line.len();
        queue.lines.push_back(line);
        drop(queue);
        self.shared.wake.notify_one();
    }

    /// Opens the file of this name again before the next line, so that a renamed one can be compressed or removed. If it
    /// cannot be opened, lines go on to the one before.
    pub fn reopen(&self) {
        self.shared.queue.lock().reopen = true;
        self.shared.wake.notify_one();
    }

    /// Waits until every queued line is written or lost, at most `time`. Returns whether that is so.
    pub fn flush(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut queue = self.shared.queue.lock();
        while !queue.lines.is_empty() || queue.is_writing {
            if self.shared.drained.wait_until(&mut queue, until).timed_out() {
                return queue.lines.is_empty() && !queue.is_writing;
            }
        }
        true
    }

    /// Returns the number of lines that were lost.
    pub fn lost_lines(&self) -> u64 {
        self.shared.queue.lock().lost
    }

    /// Counts lost lines in `counter` too, including those lost before.
    pub fn count_in(&self, counter: IntCounter) {
        let mut queue = self.shared.queue.lock();
        counter.inc_by(queue.lost);
        queue.counter = Some(counter);
    }
}

impl Write for LineWriter {
    /// Queues the bytes, which are whole lines.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.push(lines.to_vec());
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The open target.
struct LineSink {
    target: LineTarget,
    file: File,
    /// Whether the last write ended within a line.
    is_mid_line: bool,
    /// Whether the last write failed, which was logged.
    is_failing: bool,
}

fn open(target: &LineTarget) -> io::Result<File> {
    match target {
        // Copies of the descriptors, because the handles of the standard library buffer.
        LineTarget::Stdout => Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
        LineTarget::Stderr => Ok(io::stderr().as_fd().try_clone_to_owned()?.into()),
        LineTarget::File(path) => OpenOptions::new().create(true).append(true).mode(0o600).open(path),
    }
}

/// Writes the queue's lines until the process ends.
fn write_queue(shared: &LineWriterShared, mut sink: LineSink) {
    loop {
        let mut queue = shared.queue.lock();
        while queue.lines.is_empty() && !queue.reopen {
            shared.wake.wait(&mut queue);
        }
        queue.is_writing = true;
        let lines = std::mem::take(&mut queue.lines);
        queue.bytes = 0;
        let reopen = std::mem::take(&mut queue.reopen);
        drop(queue);
        if reopen {
            sink.reopen();
        }
        let lost = sink.write_lines(lines);
        let mut queue = shared.queue.lock();
        queue.is_writing = false;
        queue.count_lost(lost);
        if queue.lines.is_empty() {
            shared.drained.notify_all();
        }
    }
}

impl LineSink {
    fn reopen(&mut self) {
        let LineTarget::File(path) = &self.target else { return };
        match open(&self.target) {
            Ok(file) => (self.file, self.is_mid_line) = (file, false),
            Err(error) => tracing::warn!(%error, path = %path.display(), "the log cannot be reopened"),
        }
    }

    /// Writes lines and returns how many could not be written.
    fn write_lines(&mut self, lines: VecDeque<Vec<u8>>) -> u64 {
        let mut lost = 0;
        for line in lines {
            match self.write_line(&line) {
                Ok(()) => self.is_failing = false,
                Err(error) => {
                    lost += 1;
                    let is_new = !std::mem::replace(&mut self.is_failing, true);
                    if let (true, LineTarget::File(path)) = (is_new, &self.target) {
                        tracing::error!(%error, path = %path.display(), "the log cannot be written; lines are lost");
                    }
                }
            }
        }
        lost
    }

    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        // The rest of a line that was cut must not be joined with this one.
        if self.is_mid_line {
            self.write_bytes(b"\n")?;
        }
        self.write_bytes(line)
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut written = 0;
        while written < bytes.len() {
            match self.file.write(&bytes[written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    written += count;
                    self.is_mid_line = bytes[written - 1] != b'\n';
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A descriptor that another process made non-blocking.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(LINE_RETRY_PAUSE),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
