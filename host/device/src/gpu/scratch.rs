//! Slabs, which all programs of one owner share: dispatches follow each other in the queue, and what one leaves there is
//! worth nothing to the next. An owner with graphs for many shapes pays for the largest.

use std::sync::{Arc, Mutex};

use super::context::{GpuContext, lock};
use super::storage_buffer::{self, StorageBuffer};
use crate::error::DeviceError;
use crate::meter::Meter;

/// An owner's slabs by their numbers.
#[derive(Debug)]
pub(super) struct GpuScratch {
    meter: Meter,
    slabs: Mutex<Vec<Arc<StorageBuffer>>>,
}

impl GpuScratch {
    /// Nothing yet, for this owner.
    pub(super) fn new(meter: Meter) -> GpuScratch {
        GpuScratch { meter, slabs: Mutex::default() }
    }

    /// Bytes of slabs of these sizes that are not there, or too small.
    pub(super) fn growth_bytes(&self, sizes: &[u64]) -> u64 {
        let slabs = lock(&self.slabs);
        let there = |number: usize| slabs.get(number).map_or(0, |slab| slab.buffer.size());
        let more = |(number, &bytes): (usize, &u64)| if bytes > there(number) { bytes } else { 0 };
        sizes.iter().enumerate().map(more).fold(0, u64::saturating_add)
    }

    /// Makes sure that there are slabs of these sizes, not 0. A slab that is too small is replaced; programs bind the new
    /// one at their next dispatch.
    ///
    /// # Errors
    /// `OutOfMemory`; `NoRoom`; `Unsupported` past the adapter's buffer size.
    pub(super) fn reserve(&self, context: &Arc<GpuContext>, sizes: &[u64]) -> Result<(), DeviceError> {
        let mut slabs = lock(&self.slabs);
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

    /// The slabs there are now.
    pub(super) fn slabs(&self) -> Vec<Arc<StorageBuffer>> {
        lock(&self.slabs).clone()
    }
}
