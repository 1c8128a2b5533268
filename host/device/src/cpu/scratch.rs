//! Memory that a dispatch works in. All programs of one owner share it, since what they leave there is worth nothing once
//! they are done: an owner with graphs for many shapes pays for the largest, as often as dispatches run at the same time.

use std::sync::{Mutex, PoisonError};

use saggar_compile::program::Program;

use super::storage::zeroed;
use crate::error::DeviceError;
use crate::meter::{Charge, Meter};

/// Arenas kept for later dispatches; more than this run at once only in bursts.
const IDLE_ARENAS_MAX: usize = 64;

/// An owner's scratch memory.
#[derive(Debug)]
pub(super) struct Scratch {
    meter: Meter,
    idle: Mutex<Vec<Arena>>,
}

/// Scratch memory of one dispatch: the slabs of a program, and its workspace after them.
#[derive(Debug, Default)]
pub(super) struct Arena(Vec<Piece>);

#[derive(Debug, Default)]
struct Piece {
    words: Vec<u64>,
    charge: Option<Charge>,
}

impl Scratch {
    /// Nothing yet, for this owner.
    pub(super) fn new(meter: Meter) -> Scratch {
        Scratch { meter, idle: Mutex::default() }
    }

    /// An arena with at least as much memory as the program needs. What is in it is arbitrary.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn take(&self, program: &Program, workspace_bytes: usize) -> Result<Arena, DeviceError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut arena = idle.unwrap_or_default();
        let sizes = program.slabs.iter().map(|slab| slab.bytes).chain([workspace_bytes]);
        for (number, bytes) in sizes.enumerate() {
            if number == arena.0.len() {
                arena.0.push(Piece::default());
            }
            arena.0[number].grow(bytes, &self.meter)?;
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

impl Arena {
    /// The program's slabs, and its workspace.
    pub(super) fn split(&mut self, program: &Program) -> (impl Iterator<Item = &mut [u64]>, &mut [u64]) {
        let (slabs, rest) = self.0.split_at_mut(program.slabs.len());
        (slabs.iter_mut().map(|piece| piece.words.as_mut_slice()), &mut rest[0].words)
    }
}

impl Piece {
    fn grow(&mut self, bytes: usize, meter: &Meter) -> Result<(), DeviceError> {
        if bytes > self.words.len() * 8 {
            // The old words go first, so that both are never held.
            *self = Piece::default();
            self.charge = Some(meter.charge(bytes as u64)?);
            self.words = zeroed(bytes);
        }
        Ok(())
    }
}
