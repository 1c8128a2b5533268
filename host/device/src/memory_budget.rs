//! Memory budget of a device. An allocation that does not fit is refused before it is made, with the bytes that it
//! needs and the bytes that are available.
//!
//! A [`Meter`] limits one owner; a memory budget limits all owners together to what the machine has. The system
//! promises untouched memory that it does not have, so bytes are counted here from the moment they are charged.

mod charge;
mod control_groups;
pub mod host_budget;

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use saggar_compile::program::Program;
use saggar_compile::target::CompileTarget;
use saggar_tensor::Descriptor;

pub use charge::DeviceMemoryCharge;
pub use control_groups::MemoryControlGroup;

use crate::error::DeviceError;
use crate::meter::Meter;
use host_budget::HostMemoryBudget;

/// Bytes that can be charged between two readings of the system's files: a reading takes longer than allocating a small
/// tensor.
const UNPOLLED_BYTES_MAX: u64 = 64 << 20;

/// The memory of this machine, which all its devices share.
static HOST_BUDGET: HostMemoryBudget = HostMemoryBudget::new(host_budget::read_snapshot);

/// The memory budget of one device.
#[derive(Debug)]
pub struct DeviceMemoryBudget {
    device: String,
    memory: MemorySource,
    /// Bytes that are charged now.
    held_bytes: AtomicU64,
    host: &'static HostMemoryBudget,
}

/// The kind of memory that a budget limits.
#[derive(Clone, Copy, Debug)]
pub enum MemorySource {
    /// The host's memory.
    Host,
    /// The host's memory, up to a limit. The driver takes pages when a buffer is requested, so the system already
    /// counts them.
    HostUpTo {
        /// The limit in bytes.
        bytes: u64,
        /// The source of the limit.
        source: &'static str,
    },
    /// A fixed number of bytes for all owners.
    Fixed {
        /// The limit in bytes.
        bytes: u64,
        /// The source of the limit, such as `the adapter's memory`.
        source: &'static str,
    },
}

/// The available memory, and the source of that figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AvailableMemory {
    /// Number of bytes.
    pub bytes: u64,
    /// Where the figure comes from, as messages say it.
    pub source: String,
}

/// The memory that a program needs besides its constants and outputs.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryRequirements {
    /// Bytes of scratch memory that are not allocated yet.
    pub scratch_bytes: u64,
    /// Bytes of prepacked weights, which are made when the program first runs.
    pub packed_bytes: u64,
}

impl DeviceMemoryBudget {
    /// Creates the budget of the device named `device`, whose tensors take `memory`.
    pub fn new(device: &str, memory: MemorySource) -> Arc<DeviceMemoryBudget> {
        DeviceMemoryBudget::on_host(device, memory, &HOST_BUDGET)
    }

    fn on_host(device: &str, memory: MemorySource, host: &'static HostMemoryBudget) -> Arc<DeviceMemoryBudget> {
        Arc::new(DeviceMemoryBudget { device: device.to_owned(), memory, held_bytes: AtomicU64::new(0), host })
    }

    /// Charges `bytes` of `what` to `meter`, and reserves them in the budget until the result is dropped.
    ///
    /// # Errors
    /// Returns `OutOfMemory` if the meter's limit would be exceeded, and `InsufficientMemory` if the budget would be.
    /// Nothing is charged then.
    pub fn charge(
        self: &Arc<Self>,
        what: &dyn Display,
        bytes: u64,
        meter: &Meter,
    ) -> Result<DeviceMemoryCharge, DeviceError> {
        let charge = meter.charge(bytes)?;
        // Reserve before checking. Of two concurrent charges for the last bytes, the later one then sees the other's.
        let held = self.held_bytes.fetch_add(bytes, Ordering::AcqRel);
        let host_held = match self.memory {
            MemorySource::Host => self.host.reserve(bytes),
            MemorySource::HostUpTo { .. } | MemorySource::Fixed { .. } => self.host.held_bytes(),
        };
        // If the check fails, dropping the charge releases the bytes.
        let charge = DeviceMemoryCharge { charge, budget: Arc::clone(self) };
        let is_due = self.uses_host_memory() && self.host.needs_poll(bytes);
        self.check_available(what, bytes, held, is_due.then_some(host_held))?;
        Ok(charge)
    }

    /// Checks that `bytes` more of `what` would fit now. Charges nothing.
    ///
    /// # Errors
    /// Returns `InsufficientMemory` if they would not.
    pub fn check(&self, what: &dyn Display, bytes: u64) -> Result<(), DeviceError> {
        self.check_available(what, bytes, self.held_bytes.load(Ordering::Acquire), Some(self.host.held_bytes()))
    }

    /// Checks that all the memory of a program would fit before any of it is allocated: `needs`, constants and outputs.
    ///
    /// Packed weights are not checked against the meter: programs that share weights also share their packed copies,
    /// which are charged once.
    ///
    /// # Errors
    /// Returns `OutOfMemory` if the meter's limit would be exceeded, and `InsufficientMemory` if the budget would be.
    pub fn check_program(
        &self,
        program: &Program,
        target: &CompileTarget,
        needs: MemoryRequirements,
        meter: &Meter,
    ) -> Result<(), DeviceError> {
        let MemoryRequirements { scratch_bytes, packed_bytes } = needs;
        let constants = total_tensor_bytes(program.constants.iter().map(|(descriptor, _)| descriptor), target);
        let outputs = total_tensor_bytes(program.outputs.iter().map(|port| &port.descriptor), target);
        let retained_bytes = scratch_bytes.saturating_add(constants);
        drop(meter.charge(retained_bytes)?);
        let packed = match packed_bytes {
            0 => String::new(),
            bytes => format!(", packed weights {bytes}"),
        };
        let what = format_args!(
            "a graph of {} kernels (scratch memory {scratch_bytes} bytes, constants {constants}, outputs {outputs}{packed})",
            program.kernels.len()
        );
        self.check(&what, retained_bytes.saturating_add(outputs).saturating_add(packed_bytes))
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

    /// Returns the error for a tensor or program that does not fit.
    pub fn insufficient_memory_error(
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

    /// Returns the available memory, or `None` if it is unknown.
    pub fn available(&self) -> Option<AvailableMemory> {
        self.remaining(self.held_bytes.load(Ordering::Acquire), Some(self.host.held_bytes()))
    }

    /// Returns the memory left in the budget beside `held` bytes. Also reads the host's memory if `host_held` is given,
    /// and returns the smaller figure.
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

    /// Releases `bytes` that were charged.
    fn release(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::AcqRel);
        match self.memory {
            MemorySource::Host => self.host.release(bytes),
            MemorySource::HostUpTo { .. } | MemorySource::Fixed { .. } => {}
        }
    }
}

/// Returns the total bytes of these tensors on a device.
fn total_tensor_bytes<'a>(descriptors: impl Iterator<Item = &'a Descriptor>, target: &CompileTarget) -> u64 {
    descriptors.map(|descriptor| target.tensor_bytes(descriptor)).fold(0, u64::saturating_add)
}

/// Returns the bytes that the system and the control groups of this process leave it now, or `None` if no file says.
pub fn available_host_bytes() -> Option<u64> {
    host_budget::read_snapshot().map(|look| look.available.bytes)
}

/// Checks that `bytes` more of `what` fit into the host's memory now, beside what its devices were charged. For copies
/// on the way to a device.
///
/// # Errors
/// Returns `InsufficientMemory` if they do not.
pub fn check_host_memory(what: &dyn Display, bytes: u64) -> Result<(), DeviceError> {
    if bytes < UNPOLLED_BYTES_MAX {
        return Ok(());
    }
    DeviceMemoryBudget::new("the host", MemorySource::Host).check(what, bytes)
}

#[cfg(test)]
mod tests;
