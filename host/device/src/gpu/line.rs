//! The order of work. Commands of all owners go into one encoder, one dispatch after the other. It is submitted when the
//! adapter has little left to do, when enough has gathered, and before anybody waits: so small steps share a submission
//! while the adapter is busy, and no step is held back while it is idle.
//!
//! One thread at a time encodes and submits, and one at a time asks the driver what is done.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use wgpu::{PollError, PollType};

use super::clock::{Clock, Readings};
use super::context::{Context, lock};
use super::uploads::Uploads;
use crate::cancel::CancelToken;
use crate::error::DeviceError;
use crate::meter::{Counts, Meter};

/// Submissions that may be unfinished at once. wgpu keeps what they use until they are done and the device is polled.
const IN_FLIGHT_MAX: u64 = 8;
/// The adapter is busy while so many are.
const IN_FLIGHT_BUSY: u64 = 2;
/// Dispatches of programs that one submission holds at most.
const GATHERED_MAX: usize = 8;
/// Steps that take longer gain nothing from sharing a submission.
const LONG: Duration = Duration::from_millis(10);
/// How long one asks the driver, and waits for its answer, before it looks whether its own work was given up.
const POLL_TIME_MAX: Duration = Duration::from_millis(10);
/// How long it then leaves the driver to others that want to ask.
const POLL_PAUSE: Duration = Duration::from_micros(100);
/// Bytes written to tensors that may wait for the next submission.
const UNSUBMITTED_BYTES_MAX: usize = 32 << 20;

/// What is encoded and not submitted. Whoever encodes holds it.
#[derive(Debug)]
pub(super) struct Line {
    encoder: Option<wgpu::CommandEncoder>,
    /// Dispatches of programs in it, and of kernels.
    gathered: usize,
    pub(super) kernels: u64,
    /// The owner of the last one.
    owner: Option<Meter>,
    /// Bytes that it copies to tensors.
    written_bytes: usize,
    /// Timestamps whose read-back is encoded in it.
    readings: Vec<Readings>,
    pub(super) uploads: Uploads,
    pub(super) clock: Clock,
}

/// What is submitted.
#[derive(Debug, Default)]
pub(super) struct Flights {
    submitted: AtomicU64,
    done: Arc<AtomicU64>,
    /// The unfinished ones, oldest first.
    unfinished: Mutex<VecDeque<UnfinishedSubmission>>,
    /// Held by the one who asks the driver.
    poller: Mutex<()>,
}

/// A submission that is not known to be done.
#[derive(Clone, Debug)]
pub(super) struct UnfinishedSubmission {
    pub(super) number: u64,
    /// `None` while the driver is given it.
    index: Option<wgpu::SubmissionIndex>,
    since: Instant,
    /// Dispatches of kernels in it.
    pub(super) kernels: u64,
}

impl Line {
    pub(super) fn new(clock: Clock) -> Line {
        let uploads = Uploads::default();
        let readings = Vec::new();
        Line { encoder: None, gathered: 0, kernels: 0, owner: None, written_bytes: 0, readings, uploads, clock }
    }
}

impl Flights {
    /// How many are unfinished, as far as the driver was asked.
    fn count(&self) -> u64 {
        self.submitted.load(Ordering::Acquire).saturating_sub(self.done.load(Ordering::Acquire))
    }

    /// The oldest unfinished one.
    pub(super) fn oldest(&self) -> Option<UnfinishedSubmission> {
        let done = self.done.load(Ordering::Acquire);
        let mut unfinished = lock(&self.unfinished);
        while unfinished.front().is_some_and(|oldest| oldest.number <= done) {
            unfinished.pop_front();
        }
        unfinished.front().cloned()
    }
}

impl Context {
    /// The line, for encoding and submitting in order.
    pub(super) fn line(&self) -> MutexGuard<'_, Line> {
        lock(&self.line)
    }

    /// The encoder that commands go into.
    pub(super) fn open<'l>(&self, line: &'l mut Line) -> &'l mut wgpu::CommandEncoder {
        line.encoder.get_or_insert_with(|| self.encoder())
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    /// A pass whose time is `owner`'s.
    pub(super) fn pass<'l>(&self, line: &'l mut Line, owner: &Meter) -> wgpu::ComputePass<'l> {
        let Line { encoder, clock, .. } = line;
        let timestamp_writes = clock.pass(owner);
        let encoder = encoder.get_or_insert_with(|| self.encoder());
        encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes })
    }

    /// Whether work is encoded or submitted that is not done.
    fn is_busy(&self) -> bool {
        self.flights.count() > 0 || self.line.try_lock().map_or(true, |line| line.encoder.is_some())
    }

    /// Submits what has gathered and asks the driver what is done, for those who do not wait; whether more is to be done.
    pub(super) fn tend(&self) -> bool {
        if let Ok(mut line) = self.line.try_lock() {
            // Whoever needs the device next is told that it is lost.
            let _ = self.flush(&mut line);
        }
        if self.look().is_err() {
            return false;
        }
        let is_busy = self.is_busy();
        if !is_busy {
            self.pipelines.save();
        }
        is_busy
    }

    /// A dispatch for `owner` was encoded: submits, if that is better than to wait for more.
    pub(super) fn dispatched(&self, line: &mut Line, owner: &Meter) -> Result<(), DeviceError> {
        line.gathered += 1;
        line.owner = Some(owner.clone());
        if line.clock.is_full() {
            self.take_readings(line);
        }
        self.look()?;
        let busy = self.flights.count() >= IN_FLIGHT_BUSY;
        let short = busy && self.flights.oldest().is_some_and(|oldest| oldest.since.elapsed() < LONG);
        if line.clock.is_exact() && short && line.gathered < GATHERED_MAX {
            self.tender.wake();
            return Ok(());
        }
        self.flush(line).map(drop)
    }

    /// `bytes` more were encoded to be copied to tensors.
    pub(super) fn written(&self, line: &mut Line, bytes: usize) -> Result<(), DeviceError> {
        line.written_bytes += bytes;
        if line.written_bytes > UNSUBMITTED_BYTES_MAX {
            self.flush(line)?;
        }
        self.tender.wake();
        self.alive()
    }

    /// Encodes the read-back of the timestamps so far.
    pub(super) fn take_readings(&self, line: &mut Line) {
        let Line { encoder, clock, readings, .. } = line;
        if let Some(encoder) = encoder {
            readings.extend(clock.take_readings(encoder));
        }
    }

    /// Waits while too much is in flight. Whoever is about to encode does this before it takes the line, which others want.
    ///
    /// # Errors
    /// `Cancelled`; `Lost`.
    pub(super) fn wait_for_room(&self, cancel: &CancelToken) -> Result<(), DeviceError> {
        cancel.check()?;
        self.poll_until(cancel, || self.flights.count() < IN_FLIGHT_MAX)
    }

    /// Submits what is encoded, after waiting while too much is in flight; the number of the last submission.
    pub(super) fn flush(&self, line: &mut Line) -> Result<u64, DeviceError> {
        let Some(encoder) = line.encoder.take() else {
            lock(&self.pool).destroy_doomed();
            return Ok(self.flights.submitted.load(Ordering::Acquire));
        };
        let owner = line.owner.take();
        let kernels = std::mem::take(&mut line.kernels);
        (line.gathered, line.written_bytes) = (0, 0);
        self.poll_until(&CancelToken::never(), || self.flights.count() < IN_FLIGHT_MAX)?;
        line.uploads.close();
        let number = self.flights.submitted.load(Ordering::Acquire) + 1;
        // Before the driver is given it, which may not come back from that call.
        lock(&self.flights.unfinished).push_back(UnfinishedSubmission {
            number,
            index: None,
            since: Instant::now(),
            kernels,
        });
        self.flights.submitted.store(number, Ordering::Release);
        let index = self.queue.submit([encoder.finish()]);
        if let Some(last) = lock(&self.flights.unfinished).back_mut() {
            last.index = Some(index);
        }
        let done = Arc::clone(&self.flights.done);
        self.queue.on_submitted_work_done(move || {
            done.fetch_max(number, Ordering::AcqRel);
        });
        line.uploads.recall();
        line.readings.drain(..).for_each(Readings::deliver);
        lock(&self.pool).destroy_doomed();
        if let Some(owner) = owner {
            if let Some(done) = line.clock.on_done(&owner) {
                self.queue.on_submitted_work_done(done);
            }
            owner.add_work(Counts { submissions: 1, ..Counts::default() });
        }
        self.tender.wake();
        self.look()?;
        Ok(number)
    }

    /// Asks the driver what is done, unless somebody is asking already. Does not wait.
    pub(super) fn look(&self) -> Result<(), DeviceError> {
        self.alive()?;
        if let Ok(_poller) = self.flights.poller.try_lock() {
            self.device.poll(PollType::Poll).map_err(|error| self.lost(error.to_string()))?;
        }
        self.alive()
    }

    /// Waits until `is_done`, which one of the unfinished submissions makes true.
    ///
    /// # Errors
    /// `Cancelled`; `Lost`.
    pub(super) fn poll_until(&self, cancel: &CancelToken, is_done: impl Fn() -> bool) -> Result<(), DeviceError> {
        while !is_done() {
            cancel.check()?;
            let poller = lock(&self.flights.poller);
            if is_done() {
                break;
            }
            let poll = match self.flights.oldest() {
                Some(UnfinishedSubmission { index: Some(index), .. }) => {
                    PollType::Wait { submission_index: Some(index), timeout: Some(POLL_TIME_MAX) }
                }
                Some(_) | None => PollType::Poll,
            };
            let polled = self.device.poll(poll);
            drop(poller);
            match polled {
                Ok(_) => {}
                Err(PollError::Timeout) => std::thread::sleep(POLL_PAUSE),
                Err(error) => return Err(self.lost(error.to_string())),
            }
            self.alive()?;
        }
        Ok(())
    }

    /// Waits for a submission.
    fn wait(&self, number: u64, cancel: &CancelToken) -> Result<(), DeviceError> {
        self.poll_until(cancel, || self.flights.done.load(Ordering::Acquire) >= number)?;
        self.alive()
    }

    /// Waits until a buffer that submission `number` writes is mapped.
    pub(super) fn wait_mapped(
        &self,
        staging: &wgpu::Buffer,
        number: u64,
        cancel: &CancelToken,
    ) -> Result<(), DeviceError> {
        let mapped = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&mapped);
        // Where mapping fails, so does taking the mapped range.
        staging.slice(..).map_async(wgpu::MapMode::Read, move |_| told.store(true, Ordering::Release));
        self.wait(number, cancel)?;
        self.poll_until(cancel, || mapped.load(Ordering::Acquire))
    }

    /// Waits for everything encoded.
    pub(super) fn synchronize(&self) -> Result<(), DeviceError> {
        self.alive()?;
        let mut line = self.line();
        self.open(&mut line);
        self.take_readings(&mut line);
        let number = self.flush(&mut line)?;
        drop(line);
        self.wait(number, &CancelToken::never())
    }
}
