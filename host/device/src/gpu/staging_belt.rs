//! What the host writes to tensors, on its way: mapped buffers of a fixed size that are filled, copied from by the commands
//! around them, and mapped again. So a write takes its place in the order of commands, and no driver has to find memory for
//! it that nobody counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::command_queue::PendingCommands;
use super::context::{GpuContext, lock};
use super::storage_buffer::StorageBuffer;
use crate::cancel::CancelToken;
use crate::error::DeviceError;

/// Bytes of a chunk.
const CHUNK_BYTES: u64 = 1 << 20;
/// Chunks that there are at most; a write waits for the adapter where all are under way.
const CHUNKS_MAX: usize = 32;

/// Chunks of mapped memory.
#[derive(Debug, Default)]
pub(super) struct StagingBelt {
    /// The one that is being filled, and the bytes in it.
    current: Option<(wgpu::Buffer, u64)>,
    /// Those that the commands gathered so far copy from.
    closed: Vec<wgpu::Buffer>,
    /// Those that are mapped and empty.
    free: Arc<Mutex<Vec<wgpu::Buffer>>>,
    /// How many there are.
    count: Arc<AtomicUsize>,
}

impl StagingBelt {
    /// Before a submission: what is filled can be copied from.
    pub(super) fn finish(&mut self) {
        if let Some((buffer, _)) = self.current.take() {
            buffer.unmap();
            self.closed.push(buffer);
        }
    }

    /// After it: maps the chunks again as soon as they are copied.
    pub(super) fn recall(&mut self) {
        for buffer in self.closed.drain(..) {
            let (free, count, mapped) = (Arc::clone(&self.free), Arc::clone(&self.count), buffer.clone());
            buffer.slice(..).map_async(wgpu::MapMode::Write, move |result| match result {
                Ok(()) => lock(&free).push(mapped),
                Err(_) => {
                    count.fetch_sub(1, Ordering::AcqRel);
                }
            });
        }
    }

    /// Bytes left in the chunk that is being filled.
    fn remaining_bytes(&self) -> u64 {
        self.current.as_ref().map_or(0, |(_, used)| CHUNK_BYTES - used)
    }
}

impl GpuContext {
    /// Encodes the replacement of a tensor's words, in the order of commands.
    ///
    /// # Errors
    /// `NoRoom` where there is no memory for the way; `Cancelled`, with some of the words replaced; `Lost`.
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

    /// An empty chunk becomes the one that is filled.
    fn start_next_chunk(&self, line: &mut PendingCommands, cancel: &CancelToken) -> Result<(), DeviceError> {
        line.staging_belt.finish();
        let chunk = loop {
            if let Some(chunk) = lock(&line.staging_belt.free).pop() {
                break chunk;
            }
            if line.staging_belt.count.load(Ordering::Acquire) < CHUNKS_MAX {
                let usage = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
                let chunk =
                    self.create_internal_buffer(&"a tensor on its way to the device", CHUNK_BYTES, usage, true)?;
                line.staging_belt.count.fetch_add(1, Ordering::AcqRel);
                break chunk;
            }
            self.flush(line)?;
            let free = Arc::clone(&line.staging_belt.free);
            self.poll_until(cancel, || !lock(&free).is_empty())?;
        };
        line.staging_belt.current = Some((chunk, 0));
        Ok(())
    }
}
