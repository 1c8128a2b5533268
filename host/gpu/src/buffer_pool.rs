//! Pools of freed buffers: those kept for reuse, and those that wait to be destroyed.

use std::collections::HashMap;

/// Limit of freed buffers kept for allocations of the same size, in bytes together.
const POOL_BYTES_MAX: u64 = 64 << 20;
/// Limit of freed buffers kept per size.
const POOL_BUFFERS_MAX: usize = 8;
/// Bytes of the largest staging buffer that is kept, and the limit of different sizes.
const STAGING_BYTES_MAX: u64 = 1 << 20;
const STAGING_SIZES_MAX: usize = 64;

/// Freed buffers by size, and staging buffers for reads.
#[derive(Debug, Default)]
pub(super) struct BufferPool {
    bytes: u64,
    free: HashMap<u64, Vec<(u64, wgpu::Buffer)>>,
    staging: HashMap<u64, Vec<wgpu::Buffer>>,
    /// Buffers to destroy once all commands that may name them are submitted.
    pending_destroy: Vec<wgpu::Buffer>,
}

impl BufferPool {
    /// Returns a pooled buffer of exactly `bytes` with its ID, if the pool has one.
    pub(super) fn take(&mut self, bytes: u64) -> Option<(u64, wgpu::Buffer)> {
        let free = self.free.get_mut(&bytes)?;
        // Take the oldest first: few buffers then alternate, and their cached bind groups are reused.
        let reused = if free.is_empty() { None } else { Some(free.remove(0)) };
        if free.is_empty() {
            self.free.remove(&bytes);
        }
        self.bytes -= reused.as_ref().map_or(0, |_| bytes);
        reused
    }

    /// Keeps a buffer for reuse, or marks it for destruction if the pool is full.
    pub(super) fn put(&mut self, id: u64, buffer: wgpu::Buffer) {
        let bytes = buffer.size();
        let free = self.free.entry(bytes).or_default();
        if self.bytes + bytes > POOL_BYTES_MAX || free.len() >= POOL_BUFFERS_MAX {
            self.pending_destroy.push(buffer);
            if free.is_empty() {
                self.free.remove(&bytes);
            }
            return;
        }
        free.push((id, buffer));
        self.bytes += bytes;
    }

    /// Returns a pooled staging buffer of exactly `bytes`, if the pool has one.
    pub(super) fn take_staging_buffer(&mut self, bytes: u64) -> Option<wgpu::Buffer> {
        self.staging.get_mut(&bytes).and_then(Vec::pop)
    }

    /// Keeps an unused staging buffer for reuse, or drops it if the pool is full.
    pub(super) fn put_staging_buffer(&mut self, buffer: wgpu::Buffer) {
        let bytes = buffer.size();
        let known = self.staging.contains_key(&bytes);
        if bytes <= STAGING_BYTES_MAX && (known || self.staging.len() < STAGING_SIZES_MAX) {
            let buffers = self.staging.entry(bytes).or_default();
            if buffers.len() < POOL_BUFFERS_MAX {
                buffers.push(buffer);
            }
        }
    }

    /// Destroys the marked buffers, after all commands that name them are submitted. Dropping them is not enough,
    /// because cached bind groups would keep their memory alive.
    pub(super) fn destroy_pending(&mut self) {
        self.pending_destroy.drain(..).for_each(|buffer| buffer.destroy());
    }

    /// Marks all pooled buffers for destruction, because memory is short. Returns whether there are buffers to destroy.
    pub(super) fn release_all(&mut self) -> bool {
        self.bytes = 0;
        self.staging.clear();
        self.pending_destroy.extend(self.free.drain().flat_map(|(_, buffers)| buffers).map(|(_, buffer)| buffer));
        !self.pending_destroy.is_empty()
    }
}
