//! The state of an opened device that its buffers and executables share: queue, buffer pool and failure.

use std::fmt::Display;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use saggar_compile::limits::FUSED_MATMUL_TILE_ROWS;
use saggar_compile::target::CompileTarget;

use super::autotune::Autotuner;
use super::buffer_pool::BufferPool;
use super::command_queue::{InFlightSubmissions, PendingCommands};
use super::gpu_timer::GpuTimer;
use super::pipeline::SharedPipelines;
use super::poll_thread::PollThread;
use super::scratch::GpuScratch;
use super::storage_buffer::StorageBuffer;
use super::watchdog;
use super::wgsl::{FUSED_MATMUL_BINDINGS, ShaderTuning};
use saggar_device::backend::DeviceInfo;
use saggar_device::cancel::CancelToken;
use saggar_device::error::DeviceError;
use saggar_device::memory_budget::{AvailableMemory, DeviceMemoryBudget};
use saggar_device::owner_cache::PerOwner;

/// The state that all buffers and executables of a device share.
#[derive(Debug)]
pub(super) struct GpuContext {
    pub(super) device: wgpu::Device,
    pub(super) info: DeviceInfo,
    pub(super) tuning: ShaderTuning,
    /// The memory budget of the adapter, for all owners together.
    pub(super) room: Arc<DeviceMemoryBudget>,
    pub(super) pipelines: SharedPipelines,
    pub(super) scratches: PerOwner<GpuScratch>,
    pub(super) queue: wgpu::Queue,
    pub(super) pending_commands: Mutex<PendingCommands>,
    pub(super) in_flight: Arc<InFlightSubmissions>,
    pub(super) buffer_pool: Mutex<BufferPool>,
    pub(super) poll_thread: PollThread,
    /// The tuner that selects kernel candidates.
    pub(super) autotuner: Autotuner,
    /// The range of buffers, numbered in creation order from 0, whose allocation fails; the end is exclusive. A fault
    /// for tests.
    pub(super) fail_allocations: Option<[u64; 2]>,
    failure: Arc<OnceLock<String>>,
    /// Whether the watchdog gave up the device.
    is_hung: Arc<AtomicBool>,
    buffers_created: AtomicU64,
    next_id: AtomicU64,
}

/// Returns the value of a future that is ready at once or becomes ready by wgpu calls on this thread.
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

impl GpuContext {
    pub(super) fn new(
        device: wgpu::Device,
        queue: wgpu::Queue,
        info: DeviceInfo,
        tuning: ShaderTuning,
        room: Arc<DeviceMemoryBudget>,
    ) -> GpuContext {
        let failure = Arc::new(OnceLock::new());
        let (lost, uncaught) = (Arc::clone(&failure), Arc::clone(&failure));
        // A destroyed device reports itself as lost. Later calls on it raise errors in their own scopes, so these two
        // callbacks are the only source of `failure`.
        device.set_device_lost_callback(move |reason, message| {
            let _ = lost.set(format!("{reason:?}: {message}"));
        });
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            let _ = uncaught.set(error.to_string());
        }));
        let clock = GpuTimer::new(&device, &queue);
        GpuContext {
            pipelines: SharedPipelines::default(),
            scratches: PerOwner::default(),
            pending_commands: Mutex::new(PendingCommands::new(clock)),
            in_flight: Arc::default(),
            buffer_pool: Mutex::default(),
            poll_thread: PollThread::default(),
            autotuner: Autotuner::default(),
            fail_allocations: None,
            buffers_created: AtomicU64::new(0),
            next_id: AtomicU64::new(0),
            device,
            info,
            tuning,
            room,
            queue,
            failure,
            is_hung: Arc::default(),
        }
    }

    /// Starts the watchdog. If its thread cannot start, callers wait for a hung device forever.
    pub(super) fn start_watchdog(&self) {
        let (failure, hangs, device) = (Arc::clone(&self.failure), Arc::clone(&self.is_hung), self.info.name.clone());
        watchdog::start(&self.in_flight, move |waited| {
            watchdog::mark_as_hung(&device);
            hangs.store(true, Ordering::Release);
            let _ = failure.set(format!("work on it has not ended within {} seconds", waited.as_secs()));
        });
    }

    /// Returns `Lost` if the driver or the watchdog has given up the device.
    pub(super) fn ensure_alive(&self) -> Result<(), DeviceError> {
        match self.failure.get() {
            None => Ok(()),
            Some(reason) => Err(self.lost_error(reason.clone())),
        }
    }

    /// Polls the driver, then checks as [`GpuContext::ensure_alive`] does.
    pub(super) fn poll_and_check(&self) -> Result<(), DeviceError> {
        self.poll()
    }

    pub(super) fn lost_error(&self, reason: String) -> DeviceError {
        DeviceError::Lost { device: self.info.name.clone(), reason }
    }

    /// Returns the target that programs for this device must be compiled for.
    pub(super) fn target(&self) -> CompileTarget {
        // One binding is reserved for the buffer between passes. Kernels use at most the bindings that every adapter
        // has, so that they do not depend on the adapter. Fused matmul kernels need more and are disabled if the
        // adapter lacks them.
        let bindings = self.device.limits().max_storage_buffers_per_shader_stage as usize;
        let has_chains = self.tuning.workgroup_memory && bindings >= FUSED_MATMUL_BINDINGS;
        CompileTarget {
            half_storage: self.tuning.half_storage,
            binding_bytes_max: self.tuning.window_bytes,
            slab_bytes_max: usize::try_from(self.allocation_bytes_max()).unwrap_or(usize::MAX),
            kernel_values_max: (bindings - 1).min(CompileTarget::gpu().kernel_values_max),
            chain_values_max: if has_chains { CompileTarget::gpu().chain_values_max } else { 0 },
            chain_rows_min: self.tuning.workgroups_at_once * FUSED_MATMUL_TILE_ROWS,
            ..CompileTarget::gpu()
        }
    }

    /// Returns the size limit of a buffer, in bytes. A buffer larger than a binding is bound as several windows.
    pub(super) fn allocation_bytes_max(&self) -> u64 {
        self.device.limits().max_buffer_size
    }

    /// Runs `make` inside error scopes and returns the error of the driver or of wgpu, if any.
    pub(super) fn with_error_scopes<T>(&self, make: impl FnOnce() -> T) -> Result<T, wgpu::Error> {
        let filters = [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation];
        let [internal, memory, validation] = filters.map(|filter| self.device.push_error_scope(filter));
        let made = make();
        let errors = [block_on(validation.pop()), block_on(memory.pop()), block_on(internal.pop())];
        match errors.into_iter().flatten().next() {
            None => Ok(made),
            Some(error) => Err(error),
        }
    }

    /// Creates a buffer of `size` bytes, or returns the driver's error.
    fn create_buffer(
        &self,
        size: u64,
        usage: wgpu::BufferUsages,
        is_mapped: bool,
    ) -> Result<wgpu::Buffer, wgpu::Error> {
        let number = self.buffers_created.fetch_add(1, Ordering::Relaxed);
        let is_refused = self.fail_allocations.is_some_and(|[from, to]| (from..to).contains(&number));
        // A test requested a failure: no adapter has this much memory.
        let size = if is_refused { u64::MAX - 7 } else { size };
        let mapped_at_creation = is_mapped && !is_refused;
        let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation };
        self.with_error_scopes(|| self.device.create_buffer(&descriptor))
    }

    /// Creates a buffer for the device's internal use.
    ///
    /// # Errors
    /// Returns `InsufficientMemory` if the driver refuses it, and `Lost`.
    pub(super) fn create_internal_buffer(
        &self,
        what: &dyn Display,
        bytes: u64,
        usage: wgpu::BufferUsages,
        is_mapped: bool,
    ) -> Result<wgpu::Buffer, DeviceError> {
        self.create_buffer(bytes, usage, is_mapped).map_err(|error| self.allocation_error(what, bytes, &error))
    }

    /// Returns the error for a driver that refused `bytes` for `what`.
    pub(super) fn allocation_error(&self, what: &dyn Display, bytes: u64, error: &wgpu::Error) -> DeviceError {
        if let Err(lost) = self.ensure_alive() {
            return lost;
        }
        tracing::warn!(device = %self.info.name, bytes, %error, "the driver refused an allocation");
        // Other processes use the adapter too, so the memory left is less than the budget says.
        let left = self.room.available().map_or(0, |available| available.bytes.min(bytes - 1));
        let of = format!("upper bound: the driver refused the allocation: {error}");
        self.room.insufficient_memory_error(what, bytes, AvailableMemory { bytes: left, source: of })
    }

    /// Returns a storage buffer of exactly `bytes` with its ID, and whether it still holds another tensor's elements.
    pub(super) fn acquire_buffer(&self, bytes: u64) -> Result<(u64, wgpu::Buffer, bool), wgpu::Error> {
        if let Some((id, buffer)) = self.buffer_pool.lock().take(bytes) {
            return Ok((id, buffer, true));
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let made = self.create_buffer(bytes, usage, false);
        let made =
            if made.is_err() && self.release_pooled_buffers() { self.create_buffer(bytes, usage, false) } else { made };
        Ok((self.next_id.fetch_add(1, Ordering::Relaxed), made?, false))
    }

    /// Returns pooled buffers to the driver. Returns whether any were freed.
    fn release_pooled_buffers(&self) -> bool {
        let is_some = self.buffer_pool.lock().release_all();
        is_some && self.synchronize().is_ok()
    }

    /// Returns a buffer to the pool. Work in flight may still use it; a new owner's work comes later in the queue.
    pub(super) fn recycle(&self, id: u64, buffer: wgpu::Buffer) {
        self.buffer_pool.lock().put(id, buffer);
        self.poll_thread.wake();
    }

    /// Replaces the words of a tensor.
    pub(super) fn write(&self, memory: &StorageBuffer, words: &[u8], cancel: &CancelToken) -> Result<(), DeviceError> {
        self.ensure_alive()?;
        self.wait_for_capacity(cancel)?;
        let mut line = self.lock_commands();
        self.upload(&mut line, memory, words, cancel)?;
        memory.mark_overwritten();
        self.finish_write(&mut line, words.len())
    }

    /// Returns the first `bytes` of a tensor, a whole number of words, after the work that writes them is done.
    pub(super) fn read(
        &self,
        memory: &StorageBuffer,
        bytes: u64,
        cancel: &CancelToken,
    ) -> Result<Vec<u8>, DeviceError> {
        self.ensure_alive()?;
        if bytes == 0 {
            return Ok(Vec::new());
        }
        self.wait_for_capacity(cancel)?;
        let pooled_buffer = self.buffer_pool.lock().take_staging_buffer(bytes);
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let make = || self.create_internal_buffer(&"the staging buffer of a read", bytes, usage, false);
        let staging = pooled_buffer.map_or_else(make, Ok)?;
        let mut line = self.lock_commands();
        let encoder = self.open_encoder(&mut line);
        memory.clear_if_stale(encoder);
        encoder.copy_buffer_to_buffer(&memory.buffer, 0, &staging, 0, bytes);
        self.encode_timestamp_readback(&mut line);
        let number = self.flush(&mut line)?;
        drop(line);
        self.wait_for_mapping(&staging, number, cancel)?;
        let range = staging.slice(..).get_mapped_range().map_err(|error| self.lost_error(error.to_string()))?;
        let words = range.to_vec();
        drop(range);
        staging.unmap();
        self.buffer_pool.lock().put_staging_buffer(staging);
        Ok(words)
    }
}

impl Drop for GpuContext {
    fn drop(&mut self) {
        if self.is_hung.load(Ordering::Acquire) {
            // Dropping the last handle of a queue waits for its submissions.
            std::mem::forget(self.queue.clone());
            return;
        }
        self.pipelines.save();
    }
}
