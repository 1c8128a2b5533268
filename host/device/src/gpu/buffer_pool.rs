//! Freed buffers that wait to be used again, and those that wait to be destroyed.

use std::collections::HashMap;

/// Bytes of freed buffers kept for allocations of the same size.
const POOL_BYTES_MAX: u64 = 64 << 20;
/// Freed buffers of one size that are kept.
const POOL_BUFFERS_MAX: usize = 8;
/// The largest staging buffer that is kept, and how many sizes of them.
const STAGING_BYTES_MAX: u64 = 1 << 20;
const STAGING_SIZES_MAX: usize = 64;

/// Freed buffers by size, and staging buffers for reads.
#[derive(Debug, Default)]
pub(super) struct BufferPool {
    bytes: u64,
    free: HashMap<u64, Vec<(u64, wgpu::Buffer)>>,
    staging: HashMap<u64, Vec<wgpu::Buffer>>,
    /// Buffers that commands which are not submitted yet may name.
    pending_destroy: Vec<wgpu::Buffer>,
}

impl BufferPool {
    /// A buffer of exactly `bytes` with its identity.
    pub(super) fn take(&mut self, bytes: u64) -> Option<(u64, wgpu::Buffer)> {
        let free = self.free.get_mut(&bytes)?;
        // The oldest first, so that few buffers take turns and bind groups made for them serve again.
        let taken = if free.is_empty() { None } else { Some(free.remove(0)) };
        if free.is_empty() {
            self.free.remove(&bytes);
        }
        self.bytes -= taken.as_ref().map_or(0, |_| bytes);
        taken
    }

    /// Keeps a buffer, or dooms it where there are enough.
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

    /// A staging buffer of exactly `bytes`.
    pub(super) fn take_staging_buffer(&mut self, bytes: u64) -> Option<wgpu::Buffer> {
        self.staging.get_mut(&bytes).and_then(Vec::pop)
    }

    /// Keeps a staging buffer that nothing uses, or lets it go.
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

    /// Destroys what is doomed: all commands that name it are submitted. Cached bind groups would otherwise keep the memory.
    pub(super) fn destroy_pending(&mut self) {
        self.pending_destroy.drain(..).for_each(|buffer| buffer.destroy());
    }

    /// Dooms what is kept for later, because memory is short; whether anything is.
    pub(super) fn release_all(&mut self) -> bool {
        self.bytes = 0;
        self.staging.clear();
        self.pending_destroy.extend(self.free.drain().flat_map(|(_, buffers)| buffers).map(|(_, buffer)| buffer));
        !self.pending_destroy.is_empty()
    }
}
