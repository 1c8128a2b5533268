//! The command queue: the order of a device's work. Commands of all owners go into one encoder, one dispatch after
//! another. It is submitted when the adapter has little left to do, when enough work is pending, and before a caller
//! waits. So small steps share a submission while the adapter is busy, and no step is delayed while it is idle.
//!
//! One thread at a time encodes and submits, and one thread at a time polls the driver.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use wgpu::{PollError, PollType};

use super::buffer_pool::BufferPool;
use super::gpu_timer::{GpuTimer, TimestampReadback};
use super::poll_thread::PollThread;
use super::staging_belt::{CHUNK_BYTES, StagingBelt};
use super::wgpu_device::WgpuDevice;
use saggar_device::cancel::CancelToken;
use saggar_device::error::DeviceError;
use saggar_device::meter::{DeviceCounters, Meter};

/// Limit of unfinished submissions. wgpu keeps their resources until they are done and the device is polled.
const IN_FLIGHT_MAX: u64 = 8;
/// Unfinished submissions from which on the adapter counts as busy.
const IN_FLIGHT_BUSY: u64 = 2;
/// Limit of program dispatches per submission.
const DISPATCHES_PER_SUBMISSION_MAX: usize = 8;
/// Steps longer than this gain nothing from sharing a submission.
const LONG_STEP: Duration = Duration::from_millis(10);
/// Limit of one wait in the driver, after which the caller checks for cancellation.
const POLL_TIME_MAX: Duration = Duration::from_millis(10);
/// Pause after such a wait, in which other threads can poll.
const POLL_PAUSE: Duration = Duration::from_micros(100);
/// Limit of bytes written to tensors that wait for the next submission.
const UNSUBMITTED_BYTES_MAX: usize = 32 << 20;

/// The command queue of a device, with the buffers that its commands may still name.
#[derive(Debug)]
pub(super) struct CommandQueue {
    device: Arc<WgpuDevice>,
    pending_commands: Mutex<PendingCommands>,
    pub(super) in_flight: Arc<InFlightSubmissions>,
    pub(super) buffer_pool: Mutex<BufferPool>,
    pub(super) poll_thread: PollThread,
}

/// Encoded commands that are not submitted yet. A thread locks them to encode.
#[derive(Debug)]
pub(super) struct PendingCommands {
    encoder: Option<wgpu::CommandEncoder>,
    /// Dispatches of programs in the encoder, and of kernels.
    dispatches: usize,
    pub(super) kernels: u64,
    /// The owner of the last dispatch.
    owner: Option<Meter>,
    /// Bytes that the encoder copies to tensors.
    written_bytes: usize,
    /// Timestamps whose read-back is in the encoder.
    readbacks: Vec<TimestampReadback>,
    staging_belt: StagingBelt,
    pub(super) timer: GpuTimer,
}

/// The submissions that are not known to be done.
#[derive(Debug, Default)]
pub(super) struct InFlightSubmissions {
    submitted: AtomicU64,
    done: Arc<AtomicU64>,
    /// The unfinished submissions, oldest first.
    unfinished: Mutex<VecDeque<UnfinishedSubmission>>,
    /// Locked by the thread that polls the driver.
    poller: Mutex<()>,
}

/// A submission that is not known to be done.
#[derive(Clone, Debug)]
pub(super) struct UnfinishedSubmission {
    pub(super) number: u64,
    /// `None` until the driver has accepted the submission.
    index: Option<wgpu::SubmissionIndex>,
    since: Instant,
    /// Kernel dispatches in the submission.
    pub(super) kernels: u64,
}

impl PendingCommands {
    fn new(clock: GpuTimer) -> PendingCommands {
        let uploads = StagingBelt::default();
        let readings = Vec::new();
        PendingCommands {
            encoder: None,
            dispatches: 0,
            kernels: 0,
            owner: None,
            written_bytes: 0,
            readbacks: readings,
            staging_belt: uploads,
            timer: clock,
        }
    }
}

impl InFlightSubmissions {
    /// Returns the number of unfinished submissions as of the last poll.
    fn unfinished_count(&self) -> u64 {
        self.submitted.load(Ordering::Acquire).saturating_sub(self.done.load(Ordering::Acquire))
    }

    /// Returns the oldest unfinished submission.
    pub(super) fn oldest(&self) -> Option<UnfinishedSubmission> {
        let done = self.done.load(Ordering::Acquire);
        let mut unfinished = self.unfinished.lock();
        while unfinished.front().is_some_and(|oldest| oldest.number <= done) {
            unfinished.pop_front();
        }
        unfinished.front().cloned()
    }
}

impl CommandQueue {
    /// Returns an empty queue. Its poll thread is not started.
    pub(super) fn new(device: Arc<WgpuDevice>) -> CommandQueue {
        let pending_commands = Mutex::new(PendingCommands::new(GpuTimer::new(&device)));
        CommandQueue {
            device,
            pending_commands,
            in_flight: Arc::default(),
            buffer_pool: Mutex::default(),
            poll_thread: PollThread::default(),
        }
    }

    /// Locks the pending commands, for encoding and submitting in order.
    pub(super) fn lock_commands(&self) -> MutexGuard<'_, PendingCommands> {
        self.pending_commands.lock()
    }

    /// Returns the encoder of the pending commands; creates it if needed.
    pub(super) fn open_encoder<'l>(&self, line: &'l mut PendingCommands) -> &'l mut wgpu::CommandEncoder {
        line.encoder.get_or_insert_with(|| self.create_encoder())
    }

    fn create_encoder(&self) -> wgpu::CommandEncoder {
        self.device.handle.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    /// Begins a compute pass whose time is credited to `owner`.
    pub(super) fn begin_metered_pass<'l>(&self, line: &'l mut PendingCommands, owner: &Meter) -> wgpu::ComputePass<'l> {
        let PendingCommands { encoder, timer: clock, .. } = line;
        let timestamp_writes = clock.next_timestamp_writes(owner);
        let encoder = encoder.get_or_insert_with(|| self.create_encoder());
        encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes })
    }

    /// Returns whether encoded or submitted work is unfinished.
    fn is_busy(&self) -> bool {
        self.in_flight.unfinished_count() > 0
            || self.pending_commands.try_lock().is_none_or(|line| line.encoder.is_some())
    }

    /// Submits pending commands and polls the driver without waiting. Returns whether work remains.
    ///
    /// # Errors
    /// Returns `Lost`.
    pub(super) fn submit_and_poll(&self) -> Result<bool, DeviceError> {
        if let Some(mut line) = self.pending_commands.try_lock() {
            // The next caller that uses the device gets the error.
            let _ = self.flush(&mut line);
        }
        self.poll()?;
        Ok(self.is_busy())
    }

    /// Ends the encoding of a dispatch for `owner`. Submits it unless waiting for more dispatches is better.
    pub(super) fn finish_dispatch(&self, line: &mut PendingCommands, owner: &Meter) -> Result<(), DeviceError> {
        line.dispatches += 1;
        line.owner = Some(owner.clone());
        if line.timer.is_full() {
            self.encode_timestamp_readback(line);
        }
        self.poll()?;
        let busy = self.in_flight.unfinished_count() >= IN_FLIGHT_BUSY;
        let short = busy && self.in_flight.oldest().is_some_and(|oldest| oldest.since.elapsed() < LONG_STEP);
        if line.timer.has_timestamps() && short && line.dispatches < DISPATCHES_PER_SUBMISSION_MAX {
            self.poll_thread.wake();
            return Ok(());
        }
        self.flush(line).map(drop)
    }

    /// Encodes the replacement of the first words of `buffer` in the order of commands.
    ///
    /// # Errors
    /// Returns `InsufficientMemory` if the driver has no memory for a chunk, `Cancelled` with some of the words
    /// replaced, and `Lost`.
    pub(super) fn upload(
        &self,
        line: &mut PendingCommands,
        buffer: &wgpu::Buffer,
        words: &[u8],
        cancel: &CancelToken,
    ) -> Result<(), DeviceError> {
        for (number, piece) in words.chunks(CHUNK_BYTES as usize).enumerate() {
            if line.staging_belt.remaining_bytes() < piece.len() as u64 {
                self.start_next_chunk(line, cancel)?;
            }
            let Some((chunk, at)) = line.staging_belt.append(&self.device, piece)? else { continue };
            let to = number as u64 * CHUNK_BYTES;
            self.open_encoder(line).copy_buffer_to_buffer(&chunk, at, buffer, to, piece.len() as u64);
        }
        Ok(())
    }

    /// Makes an empty chunk of the staging belt the current one. Waits for the adapter if all chunks are in flight.
    fn start_next_chunk(&self, line: &mut PendingCommands, cancel: &CancelToken) -> Result<(), DeviceError> {
        line.staging_belt.finish();
        while !line.staging_belt.start_chunk(&self.device)? {
            self.flush(line)?;
            self.poll_until(cancel, || line.staging_belt.has_free_chunk())?;
        }
        Ok(())
    }

    /// Ends the encoding of a copy of `bytes` to a tensor.
    pub(super) fn finish_write(&self, line: &mut PendingCommands, bytes: usize) -> Result<(), DeviceError> {
        line.written_bytes += bytes;
        if line.written_bytes > UNSUBMITTED_BYTES_MAX {
            self.flush(line)?;
        }
        self.poll_thread.wake();
        self.device.ensure_alive()
    }

    /// Encodes the read-back of the timestamps so far.
    pub(super) fn encode_timestamp_readback(&self, line: &mut PendingCommands) {
        let PendingCommands { encoder, timer: clock, readbacks: readings, .. } = line;
        if let Some(encoder) = encoder {
            readings.extend(clock.encode_readback(encoder));
        }
    }

    /// Waits while the number of unfinished submissions is at its limit. Call this before locking the pending commands,
    /// so that other threads can use them meanwhile.
    ///
    /// # Errors
    /// Returns `Cancelled` or `Lost`.
    pub(super) fn wait_for_capacity(&self, cancel: &CancelToken) -> Result<(), DeviceError> {
        cancel.check()?;
        self.poll_until(cancel, || self.in_flight.unfinished_count() < IN_FLIGHT_MAX)
    }

    /// Submits the encoded commands and returns the number of the last submission. Waits first while too many
    /// submissions are unfinished.
    pub(super) fn flush(&self, line: &mut PendingCommands) -> Result<u64, DeviceError> {
        let Some(encoder) = line.encoder.take() else {
            self.buffer_pool.lock().destroy_pending();
            return Ok(self.in_flight.submitted.load(Ordering::Acquire));
        };
        let owner = line.owner.take();
        let kernels = std::mem::take(&mut line.kernels);
        (line.dispatches, line.written_bytes) = (0, 0);
        self.poll_until(&CancelToken::never(), || self.in_flight.unfinished_count() < IN_FLIGHT_MAX)?;
        line.staging_belt.finish();
        let number = self.in_flight.submitted.load(Ordering::Acquire) + 1;
        // Recorded before `submit`, which can block forever in a hung driver; the watchdog must see the submission.
        self.in_flight.unfinished.lock().push_back(UnfinishedSubmission {
            number,
            index: None,
            since: Instant::now(),
            kernels,
        });
        self.in_flight.submitted.store(number, Ordering::Release);
        let index = self.device.queue.submit([encoder.finish()]);
        if let Some(last) = self.in_flight.unfinished.lock().back_mut() {
            last.index = Some(index);
        }
        let done = Arc::clone(&self.in_flight.done);
        self.device.queue.on_submitted_work_done(move || {
            done.fetch_max(number, Ordering::AcqRel);
        });
        line.staging_belt.recall();
        line.readbacks.drain(..).for_each(TimestampReadback::credit_meters);
        self.buffer_pool.lock().destroy_pending();
        if let Some(owner) = owner {
            if let Some(done) = line.timer.wall_time_callback(&owner) {
                self.device.queue.on_submitted_work_done(done);
            }
            owner.add_counters(DeviceCounters { submissions: 1, ..DeviceCounters::default() });
        }
        self.poll_thread.wake();
        self.poll()?;
        Ok(number)
    }

    /// Polls the driver without waiting, unless another thread is polling.
    pub(super) fn poll(&self) -> Result<(), DeviceError> {
        self.device.ensure_alive()?;
        if let Some(_poller) = self.in_flight.poller.try_lock() {
            self.device.handle.poll(PollType::Poll).map_err(|error| self.device.lost_error(error.to_string()))?;
        }
        self.device.ensure_alive()
    }

    /// Waits until `is_done` is true. Completion of an unfinished submission must make it true.
    ///
    /// # Errors
    /// Returns `Cancelled` or `Lost`.
    pub(super) fn poll_until(&self, cancel: &CancelToken, is_done: impl Fn() -> bool) -> Result<(), DeviceError> {
        while !is_done() {
            cancel.check()?;
            let poller = self.in_flight.poller.lock();
            if is_done() {
                break;
            }
            let poll = match self.in_flight.oldest() {
                Some(UnfinishedSubmission { index: Some(index), .. }) => {
                    PollType::Wait { submission_index: Some(index), timeout: Some(POLL_TIME_MAX) }
                }
                Some(_) | None => PollType::Poll,
            };
            let polled = self.device.handle.poll(poll);
            drop(poller);
            match polled {
                Ok(_) => {}
                Err(PollError::Timeout) => std::thread::sleep(POLL_PAUSE),
                Err(error) => return Err(self.device.lost_error(error.to_string())),
            }
            self.device.ensure_alive()?;
        }
        Ok(())
    }

    /// Waits for submission `number`.
    fn wait_for_submission(&self, number: u64, cancel: &CancelToken) -> Result<(), DeviceError> {
        self.poll_until(cancel, || self.in_flight.done.load(Ordering::Acquire) >= number)?;
        self.device.ensure_alive()
    }

    /// Waits until a buffer that submission `number` writes is mapped.
    pub(super) fn wait_for_mapping(
        &self,
        staging: &wgpu::Buffer,
        number: u64,
        cancel: &CancelToken,
    ) -> Result<(), DeviceError> {
        let mapped = Arc::new(AtomicBool::new(false));
        let mapped_flag = Arc::clone(&mapped);
        // If mapping fails, `get_mapped_range` fails too and reports it.
        staging.slice(..).map_async(wgpu::MapMode::Read, move |_| mapped_flag.store(true, Ordering::Release));
        self.wait_for_submission(number, cancel)?;
        self.poll_until(cancel, || mapped.load(Ordering::Acquire))
    }

    /// Waits for all encoded and submitted work.
    pub(super) fn synchronize(&self) -> Result<(), DeviceError> {
        self.device.ensure_alive()?;
        let mut line = self.lock_commands();
        self.open_encoder(&mut line);
        self.encode_timestamp_readback(&mut line);
        let number = self.flush(&mut line)?;
        drop(line);
        self.wait_for_submission(number, &CancelToken::never())
    }
}
