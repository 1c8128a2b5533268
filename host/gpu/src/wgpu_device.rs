//! The wgpu device of an opened adapter: its handles, its memory budget, and whether it is lost. Pipelines, timers, the
//! staging belt and the command queue are built on it. The order of commands and the tensors are elsewhere.

use std::fmt::Display;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};

use saggar_device::backend::DeviceInfo;
use saggar_device::error::DeviceError;
use saggar_device::memory_budget::{AvailableMemory, DeviceMemoryBudget};

/// A wgpu device with its queue, its memory budget, and the reason why it is lost.
#[derive(Debug)]
pub(super) struct WgpuDevice {
    pub(super) handle: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) info: DeviceInfo,
    /// The memory budget of the adapter, for all owners together.
    pub(super) room: Arc<DeviceMemoryBudget>,
    /// The range of buffers, numbered in creation order from 0, whose allocation fails; the end is exclusive. A fault
    /// for tests.
    pub(super) fail_allocations: Option<[u64; 2]>,
    failure: Arc<OnceLock<String>>,
    /// Whether the watchdog gave up the device.
    is_hung: Arc<AtomicBool>,
    buffers_created: AtomicU64,
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

impl WgpuDevice {
    /// Returns the device of these handles. Replaces the callbacks of wgpu that report a lost device.
    pub(super) fn new(
        handle: wgpu::Device,
        queue: wgpu::Queue,
        info: DeviceInfo,
        room: Arc<DeviceMemoryBudget>,
    ) -> WgpuDevice {
        let failure = Arc::new(OnceLock::new());
        let (lost, uncaught) = (Arc::clone(&failure), Arc::clone(&failure));
        // A destroyed device reports itself as lost. Later calls on it raise errors in their own scopes, so these two
        // callbacks and the watchdog are the only sources of `failure`.
        handle.set_device_lost_callback(move |reason, message| {
            let _ = lost.set(format!("{reason:?}: {message}"));
        });
        handle.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            let _ = uncaught.set(error.to_string());
        }));
        WgpuDevice {
            handle,
            queue,
            info,
            room,
            fail_allocations: None,
            failure,
            is_hung: Arc::default(),
            buffers_created: AtomicU64::new(0),
        }
    }

    /// Returns `Lost` if the driver or the watchdog has given up the device.
    pub(super) fn ensure_alive(&self) -> Result<(), DeviceError> {
        match self.failure.get() {
            None => Ok(()),
            Some(reason) => Err(self.lost_error(reason.clone())),
        }
    }

    pub(super) fn lost_error(&self, reason: String) -> DeviceError {
        DeviceError::Lost { device: self.info.name.clone(), reason }
    }

    /// Returns a function that gives up the device as hung, for the reason passed to it. The function does not keep the
    /// device open.
    pub(super) fn hang_callback(&self) -> impl FnOnce(String) + Send + 'static {
        let (failure, is_hung) = (Arc::clone(&self.failure), Arc::clone(&self.is_hung));
        move |reason| {
            is_hung.store(true, Ordering::Release);
            let _ = failure.set(reason);
        }
    }

    /// Returns whether the watchdog gave up the device.
    pub(super) fn is_hung(&self) -> bool {
        self.is_hung.load(Ordering::Acquire)
    }

    /// Returns the size limit of a buffer, in bytes. A buffer larger than a binding is bound as several windows.
    pub(super) fn allocation_bytes_max(&self) -> u64 {
        self.handle.limits().max_buffer_size
    }

    /// Runs `make` inside error scopes and returns the error of the driver or of wgpu, if any.
    pub(super) fn with_error_scopes<T>(&self, make: impl FnOnce() -> T) -> Result<T, wgpu::Error> {
        let filters = [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation];
        let [internal, memory, validation] = filters.map(|filter| self.handle.push_error_scope(filter));
        let made = make();
        let errors = [block_on(validation.pop()), block_on(memory.pop()), block_on(internal.pop())];
        match errors.into_iter().flatten().next() {
            None => Ok(made),
            Some(error) => Err(error),
        }
    }

    /// Creates a buffer of `size` bytes, or returns the driver's error.
    pub(super) fn create_buffer(
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
        self.with_error_scopes(|| self.handle.create_buffer(&descriptor))
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
}
