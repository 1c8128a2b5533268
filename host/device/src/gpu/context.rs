//! An opened device: its queue, what is in flight, memory that waits to be used again, and whether it is lost.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};

use saggar_compile::wgsl::Tuning;
use wgpu::PollType;

use super::clock::{Clock, Readings};
use super::memory::Memory;
use super::pipeline::Pipelines;
use super::scratch::Scratch;
use crate::backend::DeviceInfo;
use crate::error::DeviceError;
use crate::owner::PerOwner;
use crate::room::Room;

/// Submissions that may be unfinished at once. wgpu keeps what they use until they are done and the device is polled.
const IN_FLIGHT_MAX: usize = 8;
/// Bytes written to tensors that may wait for the next submission.
const UNSUBMITTED_BYTES_MAX: u64 = 32 << 20;
/// Bytes of freed buffers kept for allocations of the same size.
const POOL_BYTES_MAX: u64 = 64 << 20;
/// Freed buffers of one size that are kept.
const POOL_BUFFERS_MAX: usize = 8;

/// What all of a device's buffers and executables share.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) device: wgpu::Device,
    pub(super) info: DeviceInfo,
    pub(super) tuning: Tuning,
    /// What the adapter has for all owners together.
    pub(super) room: Arc<Room>,
    pub(super) pipelines: Pipelines,
    pub(super) scratches: PerOwner<Scratch>,
    queue: wgpu::Queue,
    failure: Arc<OnceLock<String>>,
    line: Mutex<Line>,
    pool: Mutex<Pool>,
    next_id: AtomicU64,
}

/// The order of submissions. Whoever encodes a dispatch holds it until the dispatch is submitted.
#[derive(Debug)]
pub(super) struct Line {
    in_flight: VecDeque<wgpu::SubmissionIndex>,
    unsubmitted_bytes: u64,
    pub(super) clock: Clock,
}

/// Freed buffers by size, and staging buffers for reads.
#[derive(Debug, Default)]
struct Pool {
    bytes: u64,
    free: HashMap<u64, Vec<(u64, wgpu::Buffer)>>,
    staging: HashMap<u64, Vec<wgpu::Buffer>>,
}

/// The value of a future that wgpu has ready at once, or after calls of ours on this thread.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut task = std::task::Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut task) {
            return value;
        }
        std::thread::yield_now();
    }
}

/// A lock whose holder cannot have left a half-made state behind.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    pub(super) fn new(
        device: wgpu::Device,
        queue: wgpu::Queue,
        info: DeviceInfo,
        tuning: Tuning,
        room: Arc<Room>,
    ) -> Context {
        let failure = Arc::new(OnceLock::new());
        let (lost, uncaught) = (Arc::clone(&failure), Arc::clone(&failure));
        device.set_device_lost_callback(move |reason, message| {
            if reason != wgpu::DeviceLostReason::Destroyed || !message.is_empty() {
                let _ = lost.set(format!("{reason:?}: {message}"));
            }
        });
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            let _ = uncaught.set(error.to_string());
        }));
        let clock = Clock::new(&device, &queue);
        Context {
            pipelines: Pipelines::default(),
            scratches: PerOwner::default(),
            line: Mutex::new(Line { in_flight: VecDeque::new(), unsubmitted_bytes: 0, clock }),
            pool: Mutex::default(),
            next_id: AtomicU64::new(0),
            device,
            info,
            tuning,
            room,
            queue,
            failure,
        }
    }

    /// `Lost` once the driver has given the device up.
    pub(super) fn alive(&self) -> Result<(), DeviceError> {
        match self.failure.get() {
            None => Ok(()),
            Some(reason) => Err(self.lost(reason.clone())),
        }
    }

    /// As [`Context::alive`], after looking what the driver has to say.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        self.device.poll(PollType::Poll).map_err(|error| self.lost(error.to_string()))?;
        self.alive()
    }

    pub(super) fn lost(&self, reason: String) -> DeviceError {
        DeviceError::Lost { device: self.info.name.clone(), reason }
    }

    /// Bytes of the largest buffer. Kernels see one that a binding cannot show whole through several.
    pub(super) fn allocation_bytes_max(&self) -> u64 {
        self.device.limits().max_buffer_size
    }

    /// Runs `make`; what the driver or wgpu says against it comes back as the error.
    pub(super) fn scoped<T>(&self, make: impl FnOnce() -> T) -> Result<T, wgpu::Error> {
        let filters = [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation];
        let [internal, memory, validation] = filters.map(|filter| self.device.push_error_scope(filter));
        let made = make();
        let errors = [block_on(validation.pop()), block_on(memory.pop()), block_on(internal.pop())];
        match errors.into_iter().flatten().next() {
            None => Ok(made),
            Some(error) => Err(error),
        }
    }

    /// A storage buffer of exactly `bytes` with its identity, and whether it holds another tensor's old elements.
    pub(super) fn buffer(&self, bytes: u64) -> Result<(u64, wgpu::Buffer, bool), wgpu::Error> {
        if let Some((id, buffer)) = lock(&self.pool).take(bytes) {
            return Ok((id, buffer, true));
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let descriptor = wgpu::BufferDescriptor { label: None, size: bytes, usage, mapped_at_creation: false };
        let buffer = self.scoped(|| self.device.create_buffer(&descriptor))?;
        Ok((self.next_id.fetch_add(1, Ordering::Relaxed), buffer, false))
    }

    /// Takes a buffer back. Work in flight may still use it: a new owner's work comes after that in the queue.
    pub(super) fn recycle(&self, id: u64, buffer: wgpu::Buffer) {
        let refused = lock(&self.pool).put(id, buffer);
        if let Some(buffer) = refused {
            // Cached bind groups would otherwise keep the memory.
            buffer.destroy();
        }
    }

    /// The line, for encoding and submitting in order.
    pub(super) fn line(&self) -> MutexGuard<'_, Line> {
        lock(&self.line)
    }

    /// Submits, after waiting while too much is in flight.
    pub(super) fn submit(
        &self,
        line: &mut Line,
        commands: Option<wgpu::CommandBuffer>,
    ) -> Result<wgpu::SubmissionIndex, DeviceError> {
        while line.in_flight.len() >= IN_FLIGHT_MAX {
            if let Some(oldest) = line.in_flight.pop_front() {
                self.wait(oldest)?;
            }
        }
        let index = self.queue.submit(commands);
        line.unsubmitted_bytes = 0;
        line.in_flight.push_back(index.clone());
        // Frees what finished submissions used, and delivers their readings.
        self.device.poll(PollType::Poll).map_err(|error| self.lost(error.to_string()))?;
        self.alive()?;
        Ok(index)
    }

    /// Adds the busy time of the submission just made to `meter` when it is done, where the device has no clock.
    pub(super) fn time_submission(&self, line: &Line, meter: &crate::Meter) {
        if let Some(done) = line.clock.on_done(meter) {
            self.queue.on_submitted_work_done(done);
        }
    }

    pub(super) fn wait(&self, index: wgpu::SubmissionIndex) -> Result<(), DeviceError> {
        let wait = PollType::Wait { submission_index: Some(index), timeout: None };
        self.device.poll(wait).map_err(|error| self.lost(error.to_string()))?;
        self.alive()
    }

    pub(super) fn encoder(&self) -> wgpu::CommandEncoder {
        self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    /// Replaces a tensor's words.
    pub(super) fn write(&self, memory: &Memory, words: &[u8]) -> Result<(), DeviceError> {
        let mut line = self.line();
        memory.written();
        if words.is_empty() {
            return Ok(());
        }
        self.queue.write_buffer(&memory.buffer, 0, words);
        line.unsubmitted_bytes += words.len() as u64;
        if line.unsubmitted_bytes > UNSUBMITTED_BYTES_MAX {
            self.submit(&mut line, None)?;
        }
        self.alive()
    }

    /// The first `bytes` of a tensor, whole words, after waiting for the work that writes them.
    pub(super) fn read(&self, memory: &Memory, bytes: u64) -> Result<Vec<u8>, DeviceError> {
        self.alive()?;
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let staging = match lock(&self.pool).staging.get_mut(&bytes).and_then(Vec::pop) {
            Some(buffer) => buffer,
            None => {
                let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
                let descriptor = wgpu::BufferDescriptor { label: None, size: bytes, usage, mapped_at_creation: false };
                self.scoped(|| self.device.create_buffer(&descriptor)).map_err(|error| self.lost(error.to_string()))?
            }
        };
        let mut line = self.line();
        let mut encoder = self.encoder();
        memory.clear_if_stale(&mut encoder);
        encoder.copy_buffer_to_buffer(&memory.buffer, 0, &staging, 0, bytes);
        let readings = line.clock.take_readings(&self.device, &mut encoder);
        let index = self.submit(&mut line, Some(encoder.finish()))?;
        drop(line);
        readings.into_iter().for_each(Readings::deliver);
        // The wait below reports failures; the callback only has to exist.
        staging.slice(..).map_async(wgpu::MapMode::Read, |_| ());
        self.wait(index)?;
        let range = staging.slice(..).get_mapped_range().map_err(|error| self.lost(error.to_string()))?;
        let words = range.to_vec();
        drop(range);
        staging.unmap();
        lock(&self.pool).put_staging(bytes, staging);
        Ok(words)
    }

    /// Waits for everything submitted.
    pub(super) fn synchronize(&self) -> Result<(), DeviceError> {
        self.alive()?;
        let mut line = self.line();
        let mut encoder = self.encoder();
        let readings = line.clock.take_readings(&self.device, &mut encoder);
        let index = self.submit(&mut line, Some(encoder.finish()))?;
        drop(line);
        readings.into_iter().for_each(Readings::deliver);
        self.wait(index)
    }
}

impl Pool {
    fn take(&mut self, bytes: u64) -> Option<(u64, wgpu::Buffer)> {
        let free = self.free.get_mut(&bytes)?;
        // The oldest first, so that few buffers take turns and bind groups made for them serve again.
        let taken = if free.is_empty() { None } else { Some(free.remove(0)) };
        if free.is_empty() {
            self.free.remove(&bytes);
        }
        self.bytes -= taken.as_ref().map_or(0, |_| bytes);
        taken
    }

    fn put(&mut self, id: u64, buffer: wgpu::Buffer) -> Option<wgpu::Buffer> {
        let bytes = buffer.size();
        if self.bytes + bytes > POOL_BYTES_MAX {
            return Some(buffer);
        }
        let free = self.free.entry(bytes).or_default();
        if free.len() >= POOL_BUFFERS_MAX {
            return Some(buffer);
        }
        free.push((id, buffer));
        self.bytes += bytes;
        None
    }

    fn put_staging(&mut self, bytes: u64, buffer: wgpu::Buffer) {
        const STAGING_BYTES_MAX: u64 = 1 << 20;
        const STAGING_SIZES_MAX: usize = 64;
        let known = self.staging.contains_key(&bytes);
        if bytes <= STAGING_BYTES_MAX && (known || self.staging.len() < STAGING_SIZES_MAX) {
            let buffers = self.staging.entry(bytes).or_default();
            if buffers.len() < POOL_BUFFERS_MAX {
                buffers.push(buffer);
            }
        }
    }
}
