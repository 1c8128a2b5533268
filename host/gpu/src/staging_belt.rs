//! The staging belt: mapped buffers of a fixed size through which the host writes to tensors. A chunk is filled, copied
//! from by the commands around it, and mapped again. So a write keeps its place in the order of commands, and the
//! driver allocates no memory for it that we do not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::command_queue::PendingCommands;
use super::context::GpuContext;
use super::storage_buffer::StorageBuffer;
use saggar_device::cancel::CancelToken;
use saggar_device::error::DeviceError;

/// Bytes of a chunk.
const CHUNK_BYTES: u64 = 1 << 20;
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
    fn remaining_bytes(&self) -> u64 {
        self.current.as_ref().map_or(0, |(_, used)| CHUNK_BYTES - used)
    }
}

impl GpuContext {
    /// Encodes the replacement of a tensor's words in the order of commands.
    ///
    /// # Errors
    /// Returns `InsufficientMemory` if the driver has no memory for a chunk, `Cancelled` with some of the words
    /// replaced, and `Lost`.
    pub(super) fn upload(
        &self,
        line: &mut PendingCommands,
        memory: &StorageBuffer,
        words: &[u8],
        cancel: &CancelToken,
    ) -> Result<(), DeviceError> {
        for (number, piece) in words.chunks(CHUNK_BYTES as usize).enumerate() {
            if line.staging_belt.remaining_bytes() < piece.len() as u64 {
                self.start_next_chunk(line, cancel)?;
            }
            let Some((buffer, used)) = &mut line.staging_belt.current else { continue };
            let (at, bytes) = (*used, piece.len() as u64);
            let mapped = buffer.slice(at..at + bytes).get_mapped_range_mut();
            mapped.map_err(|error| self.lost_error(error.to_string()))?.copy_from_slice(piece);
            *used = (at + bytes).next_multiple_of(wgpu::MAP_ALIGNMENT);
            let buffer = buffer.clone();
            let to = number as u64 * CHUNK_BYTES;
            self.open_encoder(line).copy_buffer_to_buffer(&buffer, at, &memory.buffer, to, bytes);
        }
        Ok(())
    }

    /// Makes an empty chunk the current one. Waits for the adapter if all chunks are in flight.
    fn start_next_chunk(&self, line: &mut PendingCommands, cancel: &CancelToken) -> Result<(), DeviceError> {
        line.staging_belt.finish();
        let chunk = loop {
            if let Some(chunk) = line.staging_belt.free.lock().pop() {
                break chunk;
            }
            if line.staging_belt.count.load(Ordering::Acquire) < CHUNKS_MAX {
                let usage = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
                let chunk = self.create_internal_buffer(&"the staging buffer of a write", CHUNK_BYTES, usage, true)?;
                line.staging_belt.count.fetch_add(1, Ordering::AcqRel);
                break chunk;
            }
            self.flush(line)?;
            let free = Arc::clone(&line.staging_belt.free);
            self.poll_until(cancel, || !free.lock().is_empty())?;
        };
        line.staging_belt.current = Some((chunk, 0));
        Ok(())
    }
}
