//! Memory that a dispatch works in. All programs of one owner share it, since what they leave there is worth nothing once
//! they are done: an owner with graphs for many shapes pays for the largest, as often as dispatches run at the same time.

use std::sync::{Arc, Mutex, PoisonError};

use saggar_compile::program::Program;

use super::words::Words;
use crate::error::DeviceError;
use crate::meter::{Charge, Meter};
use crate::room::Room;

/// Arenas kept for later dispatches; more than this run at once only in bursts.
const IDLE_ARENAS_MAX: usize = 64;

/// An owner's scratch memory.
#[derive(Debug)]
pub(super) struct Scratch {
    room: Arc<Room>,
    meter: Meter,
    idle: Mutex<Vec<Arena>>,
}

/// Scratch memory of one dispatch: the slabs of a program, and its workspace after them.
#[derive(Debug, Default)]
pub(super) struct Arena(Vec<Piece>);

#[derive(Debug, Default)]
struct Piece {
    words: Words,
    charge: Option<Charge>,
}

impl Scratch {
    /// Nothing yet, for this owner.
    pub(super) fn new(room: Arc<Room>, meter: Meter) -> Scratch {
        Scratch { room, meter, idle: Mutex::default() }
    }

    /// Bytes that an arena for the program takes beyond one that is kept.
    pub(super) fn growth_bytes(&self, program: &Program, workspace_bytes: usize) -> u64 {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept =
            |number: usize| idle.last().and_then(|arena| arena.0.get(number)).map_or(0, |piece| piece.words.len() * 8);
        let more = |(number, bytes): (usize, usize)| bytes.saturating_sub(kept(number)) as u64;
        sizes(program, workspace_bytes).enumerate().map(more).fold(0, u64::saturating_add)
    }

    /// An arena with at least as much memory as the program needs. What is in it is arbitrary.
    ///
    /// # Errors
    /// `OutOfMemory`; `NoRoom`.
    pub(super) fn take(&self, program: &Program, workspace_bytes: usize) -> Result<Arena, DeviceError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut arena = idle.unwrap_or_default();
        for (number, bytes) in sizes(program, workspace_bytes).enumerate() {
            if number == arena.0.len() {
                arena.0.push(Piece::default());
            }
            arena.0[number].grow(bytes, &self.room, &self.meter)?;
        }
        Ok(arena)
    }

    /// Keeps an arena for a later dispatch.
    pub(super) fn put_back(&self, arena: Arena) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_ARENAS_MAX {
            idle.push(arena);
        }
    }
}

/// Bytes of a program's slabs, and of its workspace after them.
fn sizes(program: &Program, workspace_bytes: usize) -> impl Iterator<Item = usize> {
    program.slabs.iter().map(|slab| slab.bytes).chain([workspace_bytes])
}

impl Arena {
    /// The program's slabs, and its workspace.
    pub(super) fn split(&mut self, program: &Program) -> (impl Iterator<Item = &mut [u64]>, &mut [u64]) {
        let (slabs, rest) = self.0.split_at_mut(program.slabs.len());
        (slabs.iter_mut().map(|piece| &mut *piece.words), &mut rest[0].words)
    }
}

impl Piece {
    fn grow(&mut self, bytes: usize, room: &Arc<Room>, meter: &Meter) -> Result<(), DeviceError> {
        if bytes > self.words.len() * 8 {
            // The old words go first, so that both are never held.
            *self = Piece::default();
            self.charge = Some(room.charge(&"scratch memory", bytes as u64, meter)?);
            self.words = Words::zeroed(bytes);
        }
        Ok(())
    }
}
