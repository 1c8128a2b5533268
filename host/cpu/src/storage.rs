//! Host memory of buffers, and how a dispatch locks it.

use std::fmt;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use saggar_tensor::Descriptor;

use super::aligned_buffer::AlignedBuffer;
use super::prepacked::PrepackCache;
use saggar_device::backend::{BufferStorage, DeviceBuffer};
use saggar_device::error::DeviceError;
use saggar_device::memory_budget::{DeviceMemoryBudget, DeviceMemoryCharge};
use saggar_device::meter::Meter;

/// The memory of one tensor, aligned for every data type.
pub(super) struct HostMemory {
    words: RwLock<AlignedBuffer>,
    bytes: usize,
    charge: DeviceMemoryCharge,
    prepacked: PrepackCache,
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl BufferStorage for HostMemory {}

impl HostMemory {
    /// Wraps `words`, whose first `bytes` bytes hold the tensor.
    pub(super) fn new(words: AlignedBuffer, bytes: usize, charge: DeviceMemoryCharge) -> HostMemory {
        HostMemory { words: RwLock::new(words), bytes, charge, prepacked: PrepackCache::default() }
    }

    /// Allocates zeros for a tensor.
    ///
    /// # Errors
    /// Returns `OutOfMemory` or `InsufficientMemory`.
    pub(super) fn zeros(
        descriptor: &Descriptor,
        room: &Arc<DeviceMemoryBudget>,
        meter: &Meter,
    ) -> Result<HostMemory, DeviceError> {
        let bytes = descriptor.bytes();
        let charge = room.charge(&format_args!("a tensor {descriptor}"), bytes as u64, meter)?;
        Ok(HostMemory::new(AlignedBuffer::zeroed(bytes), bytes, charge))
    }

    /// Returns the charge to its owner.
    pub(super) fn charge(&self) -> &DeviceMemoryCharge {
        &self.charge
    }

    /// Returns its size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Waits for the read lock. Poison is ignored: a kernel that panicked leaves wrong numbers but no broken
    /// invariants.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, AlignedBuffer> {
        self.words.read()
    }

    /// Waits for the write lock.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, AlignedBuffer> {
        let words = self.words.write();
        self.prepacked.clear();
        words
    }

    /// Returns its prepacked copies. The caller must hold the read lock.
    pub(super) fn prepacked(&self) -> &PrepackCache {
        &self.prepacked
    }
}

/// Returns the memory of a buffer.
///
/// # Errors
/// Returns `Mismatch` if the buffer belongs to another device.
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
    /// Exclusive.
    Write(RwLockWriteGuard<'a, AlignedBuffer>),
}

/// A tensor that is passed to a dispatch.
#[derive(Clone, Copy)]
pub(super) struct DispatchTensor<'a> {
    /// The port's name.
    pub(super) port: &'a str,
    /// Its memory.
    pub(super) memory: &'a HostMemory,
    /// Whether the dispatch writes it.
    pub(super) written: bool,
}

/// Locks each distinct memory once, in address order, so that dispatches cannot deadlock. Returns the guards and, for
/// each tensor, the index of its guard.
///
/// # Errors
/// Returns `Mismatch` if one buffer is passed twice and written.
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
                        expected: "a separate buffer, because the program writes it".to_owned(),
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
