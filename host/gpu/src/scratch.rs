//! Scratch memory: slabs that all programs of one owner share. Dispatches run one after another in the queue, and no
//! dispatch reads what an earlier one left in a slab. An owner with graphs for many shapes pays only for the largest.

use std::sync::Arc;

use parking_lot::Mutex;

use super::context::GpuContext;
use super::storage_buffer::{self, StorageBuffer};
use saggar_device::error::DeviceError;
use saggar_device::meter::Meter;

/// An owner's slabs by number.
#[derive(Debug)]
pub(super) struct GpuScratch {
    meter: Meter,
    slabs: Mutex<Vec<Arc<StorageBuffer>>>,
}

impl GpuScratch {
    /// Returns scratch memory without slabs for this owner.
    pub(super) fn new(meter: Meter) -> GpuScratch {
        GpuScratch { meter, slabs: Mutex::default() }
    }

    /// Returns the bytes of the slabs of these sizes that are missing or too small.
    pub(super) fn growth_bytes(&self, sizes: &[u64]) -> u64 {
        let slabs = self.slabs.lock();
        let there = |number: usize| slabs.get(number).map_or(0, |slab| slab.buffer.size());
        let more = |(number, &bytes): (usize, &u64)| if bytes > there(number) { bytes } else { 0 };
        sizes.iter().enumerate().map(more).fold(0, u64::saturating_add)
    }

    /// Allocates slabs of at least these sizes, which are not 0. A slab that is too small is replaced; programs bind
    /// the new one at their next dispatch.
    ///
    /// # Errors
    /// Returns `OutOfMemory`, `InsufficientMemory`, or `Unsupported` if a slab exceeds the adapter's buffer size.
    pub(super) fn reserve(&self, context: &Arc<GpuContext>, sizes: &[u64]) -> Result<(), DeviceError> {
        let mut slabs = self.slabs.lock();
        for (number, &bytes) in sizes.iter().enumerate() {
            if slabs.get(number).is_some_and(|slab| slab.buffer.size() >= bytes) {
                continue;
            }
            let slab = Arc::new(storage_buffer::allocate(context, &format!("slab {number}"), bytes, &self.meter)?);
            match slabs.get_mut(number) {
                Some(small) => *small = slab,
                None => slabs.push(slab),
            }
        }
        Ok(())
    }

    /// Returns the current slabs.
    pub(super) fn slabs(&self) -> Vec<Arc<StorageBuffer>> {
        self.slabs.lock().clone()
    }
}
