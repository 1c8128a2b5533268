//! Scratch memory of dispatches. All programs of one owner share it, because its content is worthless after a dispatch.
//! An owner with graphs for many shapes pays for the largest one, times the number of concurrent dispatches.

use std::sync::Arc;

use parking_lot::Mutex;
use saggar_compile::program::Program;

use super::aligned_buffer::AlignedBuffer;
use saggar_device::error::DeviceError;
use saggar_device::memory_budget::{DeviceMemoryBudget, DeviceMemoryCharge};
use saggar_device::meter::Meter;

/// Maximum number of idle arenas. More dispatches than this run at once only in bursts.
const IDLE_ARENAS_MAX: usize = 64;

/// An owner's scratch memory.
#[derive(Debug)]
pub(super) struct ScratchPool {
    room: Arc<DeviceMemoryBudget>,
    meter: Meter,
    idle: Mutex<Vec<ScratchArena>>,
}

/// Scratch memory of one dispatch: the slabs of a program, then its workspace.
#[derive(Debug, Default)]
pub(super) struct ScratchArena(Vec<ScratchBuffer>);

#[derive(Debug, Default)]
struct ScratchBuffer {
    words: AlignedBuffer,
    charge: Option<DeviceMemoryCharge>,
}

impl ScratchPool {
    /// Returns an empty pool for an owner.
    pub(super) fn new(room: Arc<DeviceMemoryBudget>, meter: Meter) -> ScratchPool {
        ScratchPool { room, meter, idle: Mutex::default() }
    }

    /// Returns the bytes that an arena for the program would need beyond an idle one.
    pub(super) fn growth_bytes(&self, program: &Program, workspace_bytes: usize) -> u64 {
        let idle = self.idle.lock();
        let idle_bytes =
            |number: usize| idle.last().and_then(|arena| arena.0.get(number)).map_or(0, |piece| piece.words.len() * 8);
        let more = |(number, bytes): (usize, usize)| bytes.saturating_sub(idle_bytes(number)) as u64;
        buffer_sizes(program, workspace_bytes).enumerate().map(more).fold(0, u64::saturating_add)
    }

    /// Returns an arena with at least as much memory as the program needs. Its content is arbitrary.
    ///
    /// # Errors
    /// Returns `OutOfMemory` or `InsufficientMemory`.
    pub(super) fn take(&self, program: &Program, workspace_bytes: usize) -> Result<ScratchArena, DeviceError> {
        let idle = self.idle.lock().pop();
        let mut arena = idle.unwrap_or_default();
        for (number, bytes) in buffer_sizes(program, workspace_bytes).enumerate() {
            if number == arena.0.len() {
                arena.0.push(ScratchBuffer::default());
            }
            arena.0[number].grow(bytes, &self.room, &self.meter)?;
        }
        Ok(arena)
    }

    /// Returns an arena to the pool for a later dispatch.
    pub(super) fn put_back(&self, arena: ScratchArena) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_ARENAS_MAX {
            idle.push(arena);
        }
    }
}

/// Returns the bytes of a program's slabs, then of its workspace.
fn buffer_sizes(program: &Program, workspace_bytes: usize) -> impl Iterator<Item = usize> {
    program.slabs.iter().map(|slab| slab.bytes).chain([workspace_bytes])
}

impl ScratchArena {
    /// Returns the program's slabs and its workspace.
    pub(super) fn split(&mut self, program: &Program) -> (impl Iterator<Item = &mut [u64]>, &mut [u64]) {
        let (slabs, rest) = self.0.split_at_mut(program.slabs.len());
        (slabs.iter_mut().map(|piece| &mut *piece.words), &mut rest[0].words)
    }
}

impl ScratchBuffer {
    fn grow(&mut self, bytes: usize, room: &Arc<DeviceMemoryBudget>, meter: &Meter) -> Result<(), DeviceError> {
        if bytes > self.words.len() * 8 {
            // Free the old memory first, so that both are never held at once.
            *self = ScratchBuffer::default();
            self.charge = Some(room.charge(&"scratch memory", bytes as u64, meter)?);
            self.words = AlignedBuffer::zeroed(bytes);
        }
        Ok(())
    }
}
