//! Memory that a device has left: what does not fit is refused before it is allocated, with the bytes that it wants and those
//! that there are.
//!
//! A meter limits its owner; a room limits all owners together, to what the machine has. The system hands out memory that
//! nobody has touched without having it, so bytes are counted here from when they are charged.

mod control_groups;
pub(crate) mod host_budget;

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use saggar_compile::program::Program;
use saggar_compile::target::CompileTarget;
use saggar_tensor::Descriptor;

pub use control_groups::MemoryControlGroup;

use crate::error::DeviceError;
use crate::meter::{Meter, MeterCharge};
use host_budget::HostMemoryBudget;

/// Bytes that may be charged between two looks at what the system has: a look takes longer than a small tensor.
const UNPOLLED_BYTES_MAX: u64 = 64 << 20;

/// The memory of this machine, which all devices in it share.
static HOST_BUDGET: HostMemoryBudget = HostMemoryBudget::new(host_budget::read_snapshot);

/// A device's memory.
#[derive(Debug)]
pub(crate) struct DeviceMemoryBudget {
    device: String,
    memory: MemorySource,
    /// Bytes that are charged now.
    held_bytes: AtomicU64,
    host: &'static HostMemoryBudget,
}

/// Where the memory is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MemorySource {
    /// The host's.
    Host,
    /// The host's, up to so many bytes. Its driver takes pages when it is asked for a buffer, so the system counts them already.
    HostUpTo {
        /// How many.
        bytes: u64,
        /// What says so.
        source: &'static str,
    },
    /// So many bytes, whoever asks.
    Fixed {
        /// How many.
        bytes: u64,
        /// What says so: `the adapter's memory`.
        source: &'static str,
    },
}

/// What is there, and what says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AvailableMemory {
    pub(crate) bytes: u64,
    pub(crate) source: String,
}

/// What a program takes besides its constants and outputs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemoryRequirements {
    /// Scratch memory that is not there yet.
    pub(crate) scratch_bytes: u64,
    /// Forms that are made of weights when it runs for the first time.
    pub(crate) packed_bytes: u64,
}

impl DeviceMemoryBudget {
    pub(crate) fn new(device: &str, memory: MemorySource) -> Arc<DeviceMemoryBudget> {
        DeviceMemoryBudget::on_host(device, memory, &HOST_BUDGET)
    }

    fn on_host(device: &str, memory: MemorySource, host: &'static HostMemoryBudget) -> Arc<DeviceMemoryBudget> {
        Arc::new(DeviceMemoryBudget { device: device.to_owned(), memory, held_bytes: AtomicU64::new(0), host })
    }

    /// Charges `bytes` of `what` to `meter`, and takes them from the room until the result is dropped.
    ///
    /// # Errors
    /// `OutOfMemory` past the meter's limit; `NoRoom`. Nothing is charged then.
    pub(crate) fn charge(
        self: &Arc<Self>,
        what: &dyn Display,
        bytes: u64,
        meter: &Meter,
    ) -> Result<MeterCharge, DeviceError> {
        let charge = meter.charge(bytes)?;
        // Taken before the look: of two that ask at once for the last bytes, the later one finds them taken.
        let held = self.held_bytes.fetch_add(bytes, Ordering::AcqRel);
        let host_held = match self.memory {
            MemorySource::Host => self.host.reserve(bytes),
            MemorySource::HostUpTo { .. } | MemorySource::Fixed { .. } => self.host.held_bytes(),
        };
        // Dropped on the way out with an error, it gives back what was taken.
        let charge = charge.with_budget(self);
        let is_due = self.uses_host_memory() && self.host.needs_poll(bytes);
        self.check_available(what, bytes, held, is_due.then_some(host_held))?;
        Ok(charge)
    }

    /// Whether `bytes` more of `what` would fit now; nothing is charged.
    ///
    /// # Errors
    /// `NoRoom`.
    pub(crate) fn check(&self, what: &dyn Display, bytes: u64) -> Result<(), DeviceError> {
        self.check_available(what, bytes, self.held_bytes.load(Ordering::Acquire), Some(self.host.held_bytes()))
    }

    /// Whether all that a program takes would fit, before any of it is there: its needs, constants and outputs.
    ///
    /// What is packed is not asked of the meter: programs that share weights share their forms, and each is charged once.
    ///
    /// # Errors
    /// `OutOfMemory` past the meter's limit; `NoRoom`.
    pub(crate) fn check_program(
        &self,
        program: &Program,
        target: &CompileTarget,
        needs: MemoryRequirements,
        meter: &Meter,
    ) -> Result<(), DeviceError> {
        let MemoryRequirements { scratch_bytes, packed_bytes } = needs;
        let constants = total_tensor_bytes(program.constants.iter().map(|(descriptor, _)| descriptor), target);
        let outputs = total_tensor_bytes(program.outputs.iter().map(|port| &port.descriptor), target);
        let kept = scratch_bytes.saturating_add(constants);
        drop(meter.charge(kept)?);
        let packed = match packed_bytes {
            0 => String::new(),
            bytes => format!(", packed weights {bytes}"),
        };
        let what = format_args!(
            "a graph of {} kernels (scratch memory {scratch_bytes} bytes, constants {constants}, outputs {outputs}{packed})",
            program.kernels.len()
        );
        self.check(&what, kept.saturating_add(outputs).saturating_add(packed_bytes))
    }

    fn check_available(
        &self,
        what: &dyn Display,
        bytes: u64,
        held: u64,
        host_held: Option<u64>,
    ) -> Result<(), DeviceError> {
        match self.remaining(held, host_held) {
            Some(available) if bytes > available.bytes => Err(self.insufficient_memory_error(what, bytes, available)),
            Some(_) | None => Ok(()),
        }
    }

    /// The error of a tensor or program that does not fit.
    pub(crate) fn insufficient_memory_error(
        &self,
        what: &dyn Display,
        asked_bytes: u64,
        available: AvailableMemory,
    ) -> DeviceError {
        DeviceError::InsufficientMemory {
            device: self.device.clone(),
            what: what.to_string(),
            asked_bytes,
            available_bytes: available.bytes,
            of: available.source,
        }
    }

    /// What is left; none where nobody knows.
    pub(crate) fn available(&self) -> Option<AvailableMemory> {
        self.remaining(self.held_bytes.load(Ordering::Acquire), Some(self.host.held_bytes()))
    }

    /// What is left of the room beside `held` bytes, and of the host beside `host_held`, where that is to be looked at.
    fn remaining(&self, held: u64, host_held: Option<u64>) -> Option<AvailableMemory> {
        let limit = match self.memory {
            MemorySource::Host => None,
            MemorySource::HostUpTo { bytes, source: of } | MemorySource::Fixed { bytes, source: of } => {
                Some(AvailableMemory { bytes: bytes.saturating_sub(held), source: of.to_owned() })
            }
        };
        let host = host_held.filter(|_| self.uses_host_memory()).and_then(|held| self.host.remaining(held));
        [limit, host].into_iter().flatten().min_by_key(|it| it.bytes)
    }

    fn uses_host_memory(&self) -> bool {
        match self.memory {
            MemorySource::Host | MemorySource::HostUpTo { .. } => true,
            MemorySource::Fixed { .. } => false,
        }
    }

    /// Bytes that were charged are free again.
    pub(crate) fn release(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::AcqRel);
        match self.memory {
            MemorySource::Host => self.host.release(bytes),
            MemorySource::HostUpTo { .. } | MemorySource::Fixed { .. } => {}
        }
    }
}

/// Bytes that tensors take on a device.
fn total_tensor_bytes<'a>(descriptors: impl Iterator<Item = &'a Descriptor>, target: &CompileTarget) -> u64 {
    descriptors.map(|descriptor| target.tensor_bytes(descriptor)).fold(0, u64::saturating_add)
}

/// Bytes that the system and the control groups above this process leave it now, or `None` where no file says.
pub fn available_host_bytes() -> Option<u64> {
    host_budget::read_snapshot().map(|look| look.available.bytes)
}

/// Whether `bytes` more of `what` fit into the host's memory now, beside what devices in it were charged with. For copies that
/// are made on the way to a device.
///
/// # Errors
/// `NoRoom`.
pub fn check_host_memory(what: &dyn Display, bytes: u64) -> Result<(), DeviceError> {
    if bytes < UNPOLLED_BYTES_MAX {
        return Ok(());
    }
    DeviceMemoryBudget::new("the host", MemorySource::Host).check(what, bytes)
}

#[cfg(test)]
mod tests;
