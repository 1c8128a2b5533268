//! The state of an opened device that its buffers and executables share: pipelines, command queue and freed buffers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use saggar_compile::limits::FUSED_MATMUL_TILE_ROWS;
use saggar_compile::target::CompileTarget;

use super::command_queue::CommandQueue;
use super::pipeline::SharedPipelines;
use super::watchdog;
use super::wgpu_device::WgpuDevice;
use super::wgsl::{FUSED_MATMUL_BINDINGS, ShaderTuning};

/// The state that all buffers and executables of a device share. Each of them keeps it alive.
#[derive(Debug)]
pub(super) struct GpuContext {
    pub(super) device: Arc<WgpuDevice>,
    pub(super) tuning: ShaderTuning,
    pub(super) pipelines: SharedPipelines,
    pub(super) queue: CommandQueue,
    next_id: AtomicU64,
}

impl GpuContext {
    pub(super) fn new(device: WgpuDevice, tuning: ShaderTuning, pipelines: SharedPipelines) -> GpuContext {
        let device = Arc::new(device);
        let queue = CommandQueue::new(Arc::clone(&device));
        GpuContext { device, tuning, pipelines, queue, next_id: AtomicU64::new(0) }
    }

    /// Starts the poll thread and the watchdog. If the watchdog's thread cannot start, callers wait for a hung device
    /// forever.
    pub(super) fn start_threads(self: &Arc<Self>) {
        self.queue.poll_thread.start(self, GpuContext::poll_once);
        let (name, give_up) = (self.device.info.name.clone(), self.device.hang_callback());
        watchdog::start(&self.queue.in_flight, move |waited| {
            watchdog::mark_as_hung(&name);
            give_up(format!("work on it has not ended within {} seconds", waited.as_secs()));
        });
    }

    /// Submits pending commands and polls the driver without waiting. Saves new pipelines if no work remains. Returns
    /// whether work remains.
    fn poll_once(&self) -> bool {
        match self.queue.submit_and_poll() {
            Ok(true) => true,
            Ok(false) => {
                self.pipelines.save();
                false
            }
            Err(_) => false,
        }
    }

    /// Returns the target that programs for this device must be compiled for.
    pub(super) fn target(&self) -> CompileTarget {
        // One binding is reserved for the buffer between passes. Kernels use at most the bindings that every adapter
        // has, so that they do not depend on the adapter. Fused matmul kernels need more and are disabled if the
        // adapter lacks them.
        let bindings = self.device.handle.limits().max_storage_buffers_per_shader_stage as usize;
        let has_chains = self.tuning.workgroup_memory && bindings >= FUSED_MATMUL_BINDINGS;
        CompileTarget {
            half_storage: self.tuning.half_storage,
            binding_bytes_max: self.tuning.window_bytes,
            slab_bytes_max: usize::try_from(self.device.allocation_bytes_max()).unwrap_or(usize::MAX),
            kernel_values_max: (bindings - 1).min(CompileTarget::gpu().kernel_values_max),
            chain_values_max: if has_chains { CompileTarget::gpu().chain_values_max } else { 0 },
            chain_rows_min: self.tuning.workgroups_at_once * FUSED_MATMUL_TILE_ROWS,
            ..CompileTarget::gpu()
        }
    }

    /// Returns a storage buffer of exactly `bytes` with its ID, and whether it still holds another tensor's elements.
    pub(super) fn acquire_buffer(&self, bytes: u64) -> Result<(u64, wgpu::Buffer, bool), wgpu::Error> {
        if let Some((id, buffer)) = self.queue.buffer_pool.lock().take(bytes) {
            return Ok((id, buffer, true));
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let create = || self.device.create_buffer(bytes, usage, false);
        let made = create();
        let made = if made.is_err() && self.release_pooled_buffers() { create() } else { made };
        Ok((self.next_id.fetch_add(1, Ordering::Relaxed), made?, false))
    }

    /// Returns pooled buffers to the driver. Returns whether any were freed.
    fn release_pooled_buffers(&self) -> bool {
        let is_some = self.queue.buffer_pool.lock().release_all();
        is_some && self.queue.synchronize().is_ok()
    }

    /// Returns a buffer to the pool. Work in flight may still use it; a new owner's work comes later in the queue.
    pub(super) fn recycle(&self, id: u64, buffer: wgpu::Buffer) {
        self.queue.buffer_pool.lock().put(id, buffer);
        self.queue.poll_thread.wake();
    }
}

impl Drop for GpuContext {
    fn drop(&mut self) {
        if self.device.is_hung() {
            // Dropping the last handle of a queue waits for its submissions.
            std::mem::forget(self.device.queue.clone());
            return;
        }
        self.pipelines.save();
    }
}
