//! The staging belt: mapped buffers of a fixed size through which the host writes to tensors. A chunk is filled, copied
//! from by the commands around it, and mapped again. So a write keeps its place in the order of commands, and the
//! driver allocates no memory for it that we do not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::wgpu_device::WgpuDevice;
use saggar_device::error::DeviceError;

/// Bytes of a chunk.
pub(super) const CHUNK_BYTES: u64 = 1 << 20;
/// Limit of chunks; if all are in flight, a write waits for the adapter.
const CHUNKS_MAX: usize = 32;

/// The chunks of a device's staging belt.
#[derive(Debug, Default)]
pub(super) struct StagingBelt {
    /// The chunk being filled, and the bytes used in it.
    current: Option<(wgpu::Buffer, u64)>,
    /// Filled chunks that pending commands copy from.
    closed: Vec<wgpu::Buffer>,
    /// Mapped chunks that are empty.
    free: Arc<Mutex<Vec<wgpu::Buffer>>>,
    /// The number of chunks that exist.
    count: Arc<AtomicUsize>,
}

impl StagingBelt {
    /// Unmaps the current chunk before a submission, so that commands can copy from it.
    pub(super) fn finish(&mut self) {
        if let Some((buffer, _)) = self.current.take() {
            buffer.unmap();
            self.closed.push(buffer);
        }
    }

    /// Maps the filled chunks again when they have been copied; called after the submission.
    pub(super) fn recall(&mut self) {
        for buffer in self.closed.drain(..) {
            let (free, count, mapped) = (Arc::clone(&self.free), Arc::clone(&self.count), buffer.clone());
            buffer.slice(..).map_async(wgpu::MapMode::Write, move |result| match result {
                Ok(()) => free.lock().push(mapped),
                Err(_) => {
                    count.fetch_sub(1, Ordering::AcqRel);
                }
            });
        }
    }

    /// Returns the unused bytes of the chunk being filled.
    pub(super) fn remaining_bytes(&self) -> u64 {
        self.current.as_ref().map_or(0, |(_, used)| CHUNK_BYTES - used)
    }

    /// Copies `piece` into the chunk being filled, whose unused bytes must suffice. Returns the chunk and the piece's
    /// offset in it, or `None` if no chunk is being filled.
    ///
    /// # Errors
    /// Returns `Lost`.
    pub(super) fn append(
        &mut self,
        device: &WgpuDevice,
        piece: &[u8],
    ) -> Result<Option<(wgpu::Buffer, u64)>, DeviceError> {
        let Some((buffer, used)) = &mut self.current else { return Ok(None) };
        let (at, bytes) = (*used, piece.len() as u64);
        let mapped = buffer.slice(at..at + bytes).get_mapped_range_mut();
        mapped.map_err(|error| device.lost_error(error.to_string()))?.copy_from_slice(piece);
        *used = (at + bytes).next_multiple_of(wgpu::MAP_ALIGNMENT);
        Ok(Some((buffer.clone(), at)))
    }

    /// Makes an empty chunk the current one, after [`Self::finish`]. Returns `false` if all chunks are in flight.
    ///
    /// # Errors
    /// Returns `InsufficientMemory` if the driver has no memory for a chunk, and `Lost`.
    pub(super) fn start_chunk(&mut self, device: &WgpuDevice) -> Result<bool, DeviceError> {
        let free = self.free.lock().pop();
        let chunk = match free {
            Some(chunk) => chunk,
            None if self.count.load(Ordering::Acquire) < CHUNKS_MAX => {
                let usage = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
                let chunk =
                    device.create_internal_buffer(&"the staging buffer of a write", CHUNK_BYTES, usage, true)?;
                self.count.fetch_add(1, Ordering::AcqRel);
                chunk
            }
            None => return Ok(false),
        };
        self.current = Some((chunk, 0));
        Ok(true)
    }

    /// Returns whether a chunk is empty.
    pub(super) fn has_free_chunk(&self) -> bool {
        !self.free.lock().is_empty()
    }
}
