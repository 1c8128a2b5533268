//! Host memory behind buffers, and how a dispatch locks it.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use saggar_tensor::Descriptor;

use super::aligned_buffer::AlignedBuffer;
use super::prepacked::PrepackCache;
use crate::backend::{BufferStorage, DeviceBuffer};
use crate::error::DeviceError;
use crate::memory_budget::DeviceMemoryBudget;
use crate::meter::{Meter, MeterCharge};

/// Memory of one tensor, aligned for every data type.
pub(super) struct HostMemory {
    words: RwLock<AlignedBuffer>,
    bytes: usize,
    charge: MeterCharge,
    prepacked: PrepackCache,
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl BufferStorage for HostMemory {}

impl HostMemory {
    /// Memory with these words, of which `bytes` bytes count.
    pub(super) fn new(words: AlignedBuffer, bytes: usize, charge: MeterCharge) -> HostMemory {
        HostMemory { words: RwLock::new(words), bytes, charge, prepacked: PrepackCache::default() }
    }

    /// Zeros for a tensor.
    ///
    /// # Errors
    /// `OutOfMemory`; `NoRoom`.
    pub(super) fn zeros(
        descriptor: &Descriptor,
        room: &Arc<DeviceMemoryBudget>,
        meter: &Meter,
    ) -> Result<HostMemory, DeviceError> {
        let bytes = descriptor.bytes();
        let charge = room.charge(&format_args!("a tensor {descriptor}"), bytes as u64, meter)?;
        Ok(HostMemory::new(AlignedBuffer::zeroed(bytes), bytes, charge))
    }

    /// What its owner is charged.
    pub(super) fn charge(&self) -> &MeterCharge {
        &self.charge
    }

    /// Its size.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Waits until it may be read. A kernel that panicked left numbers, not invariants: poison is ignored.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, AlignedBuffer> {
        self.words.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it may be written.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, AlignedBuffer> {
        let words = self.words.write().unwrap_or_else(PoisonError::into_inner);
        self.prepacked.clear();
        words
    }

    /// Its other forms. To be asked only while it is locked for reading.
    pub(super) fn prepacked(&self) -> &PrepackCache {
        &self.prepacked
    }
}

/// The memory of a buffer.
///
/// # Errors
/// `Mismatch` where the buffer is another device's.
pub(super) fn host_memory<'a>(buffer: &'a DeviceBuffer, port: &str) -> Result<&'a HostMemory, DeviceError> {
    buffer.storage::<HostMemory>().ok_or_else(|| DeviceError::Mismatch {
        port: port.to_owned(),
        expected: "a buffer of the cpu device".to_owned(),
        actual: "a buffer of another device".to_owned(),
    })
}

/// A lock held for a dispatch.
pub(super) enum MemoryGuard<'a> {
    /// Shared.
    Read(RwLockReadGuard<'a, AlignedBuffer>),
    /// Alone.
    Write(RwLockWriteGuard<'a, AlignedBuffer>),
}

/// A tensor that a dispatch is given.
#[derive(Clone, Copy)]
pub(super) struct DispatchTensor<'a> {
    /// The port's name.
    pub(super) port: &'a str,
    /// Its memory.
    pub(super) memory: &'a HostMemory,
    /// Whether the dispatch writes it.
    pub(super) written: bool,
}

/// Locks each distinct memory once, in the order of their addresses, so that dispatches never wait for one another in
/// a circle. Returns the guards and, for each given tensor, which guard holds it.
///
/// # Errors
/// `Mismatch` where one buffer is given twice and written.
pub(super) fn lock_tensors<'a>(
    given: &[DispatchTensor<'a>],
) -> Result<(Vec<MemoryGuard<'a>>, Vec<usize>), DeviceError> {
    let address = |index: &usize| std::ptr::from_ref(given[*index].memory).addr();
    let mut order: Vec<usize> = (0..given.len()).collect();
    order.sort_by_key(address);
    let mut holder = vec![0; given.len()];
    let mut distinct: Vec<usize> = Vec::with_capacity(given.len());
    for index in order {
        match distinct.last() {
            Some(&last) if address(&last) == address(&index) => {
                if given[last].written || given[index].written {
                    return Err(DeviceError::Mismatch {
                        port: given[index].port.to_owned(),
                        expected: "a buffer of its own, for the program writes it".to_owned(),
                        actual: format!("the buffer of {}", given[last].port),
                    });
                }
            }
            Some(_) | None => distinct.push(index),
        }
        holder[index] = distinct.len() - 1;
    }
    let guard = |&index: &usize| match given[index].written {
        true => MemoryGuard::Write(given[index].memory.write()),
        false => MemoryGuard::Read(given[index].memory.read()),
    };
    Ok((distinct.iter().map(guard).collect(), holder))
}
