//! Slabs, which all programs of one owner share: dispatches follow each other in the queue, and what one leaves there is
//! worth nothing to the next. An owner with graphs for many shapes pays for the largest.

use std::sync::{Arc, Mutex, Weak};

use super::context::{Context, lock};
use super::memory::{self, Memory};
use crate::error::DeviceError;
use crate::meter::Meter;

/// The slabs of each owner that has programs on the device.
#[derive(Debug, Default)]
pub(super) struct Scratches(Mutex<Vec<Weak<Scratch>>>);

impl Scratches {
    /// The owner's, which its programs keep alive.
    pub(super) fn of(&self, meter: &Meter) -> Arc<Scratch> {
        let mut known = lock(&self.0);
        known.retain(|scratch| scratch.strong_count() > 0);
        let found = known.iter().filter_map(Weak::upgrade).find(|scratch| scratch.meter.is(meter));
        found.unwrap_or_else(|| {
            let scratch = Arc::new(Scratch { meter: meter.clone(), slabs: Mutex::default() });
            known.push(Arc::downgrade(&scratch));
            scratch
        })
    }
}

/// An owner's slabs by their numbers.
#[derive(Debug)]
pub(super) struct Scratch {
    meter: Meter,
    slabs: Mutex<Vec<Arc<Memory>>>,
}

impl Scratch {
    /// Makes sure that there are slabs of these sizes, not 0. A slab that is too small is replaced; programs bind the new
    /// one at their next dispatch.
    ///
    /// # Errors
    /// `OutOfMemory`; `Unsupported` past the adapter's buffer size.
    pub(super) fn reserve(&self, context: &Arc<Context>, sizes: &[u64]) -> Result<(), DeviceError> {
        let mut slabs = lock(&self.slabs);
        for (number, &bytes) in sizes.iter().enumerate() {
            if slabs.get(number).is_some_and(|slab| slab.buffer.size() >= bytes) {
                continue;
            }
            let slab = Arc::new(memory::allocate(context, &format!("slab {number}"), bytes, &self.meter)?);
            match slabs.get_mut(number) {
                Some(small) => *small = slab,
                None => slabs.push(slab),
            }
        }
        Ok(())
    }

    /// The slabs there are now.
    pub(super) fn slabs(&self) -> Vec<Arc<Memory>> {
        lock(&self.slabs).clone()
    }
}
