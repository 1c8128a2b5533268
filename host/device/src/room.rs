//! Memory that a device has left: what does not fit is refused before it is allocated, with the bytes that it wants and those
//! that there are.
//!
//! A meter limits its owner; a room limits all owners together, to what the machine has. The system hands out memory that
//! nobody has touched without having it, so bytes are counted here from when they are charged.

mod control_groups;
pub(crate) mod host;

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use saggar_compile::program::Program;
use saggar_compile::target::Target;
use saggar_tensor::Descriptor;

pub use control_groups::MemoryControlGroup;

use crate::error::DeviceError;
use crate::meter::{Charge, Meter};
use host::Host;

/// Bytes that may be charged between two looks at what the system has: a look takes longer than a small tensor.
const UNLOOKED_BYTES_MAX: u64 = 64 << 20;

/// The memory of this machine, which all devices in it share.
static HOST: Host = Host::new(host::look);

/// A device's memory.
#[derive(Debug)]
pub(crate) struct Room {
    device: String,
    memory: Memory,
    /// Bytes that are charged now.
    held_bytes: AtomicU64,
    host: &'static Host,
}

/// Where the memory is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Memory {
    /// The host's.
    Host,
    /// The host's, up to so many bytes. Its driver takes pages when it is asked for a buffer, so the system counts them already.
    HostUpTo {
        /// How many.
        bytes: u64,
        /// What says so.
        of: &'static str,
    },
    /// So many bytes, whoever asks.
    Bytes {
        /// How many.
        bytes: u64,
        /// What says so: `the adapter's memory`.
        of: &'static str,
    },
}

/// What is there, and what says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Available {
    pub(crate) bytes: u64,
    pub(crate) of: String,
}

/// What a program takes besides its constants and outputs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// Scratch memory that is not there yet.
    pub(crate) scratch_bytes: u64,
    /// Forms that are made of weights when it runs for the first time.
    pub(crate) packed_bytes: u64,
}

impl Room {
    pub(crate) fn new(device: &str, memory: Memory) -> Arc<Room> {
        Room::on(device, memory, &HOST)
    }

    fn on(device: &str, memory: Memory, host: &'static Host) -> Arc<Room> {
        Arc::new(Room { device: device.to_owned(), memory, held_bytes: AtomicU64::new(0), host })
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
    ) -> Result<Charge, DeviceError> {
        let charge = meter.charge(bytes)?;
        // Taken before the look: of two that ask at once for the last bytes, the later one finds them taken.
        let held = self.held_bytes.fetch_add(bytes, Ordering::AcqRel);
        let host_held = match self.memory {
            Memory::Host => self.host.take(bytes),
            Memory::HostUpTo { .. } | Memory::Bytes { .. } => self.host.held_bytes(),
        };
        // Dropped on the way out with an error, it gives back what was taken.
        let charge = charge.in_room(self);
        let is_due = self.is_of_host() && self.host.is_due(bytes);
        self.look(what, bytes, held, is_due.then_some(host_held))?;
        Ok(charge)
    }

    /// Whether `bytes` more of `what` would fit now; nothing is charged.
    ///
    /// # Errors
    /// `NoRoom`.
    pub(crate) fn check(&self, what: &dyn Display, bytes: u64) -> Result<(), DeviceError> {
        self.look(what, bytes, self.held_bytes.load(Ordering::Acquire), Some(self.host.held_bytes()))
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
        target: &Target,
        needs: Needs,
        meter: &Meter,
    ) -> Result<(), DeviceError> {
        let Needs { scratch_bytes, packed_bytes } = needs;
        let constants = target_bytes(program.constants.iter().map(|(descriptor, _)| descriptor), target);
        let outputs = target_bytes(program.outputs.iter().map(|port| &port.descriptor), target);
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

    fn look(&self, what: &dyn Display, bytes: u64, held: u64, host_held: Option<u64>) -> Result<(), DeviceError> {
        match self.left(held, host_held) {
            Some(available) if bytes > available.bytes => Err(self.refusal(what, bytes, available)),
            Some(_) | None => Ok(()),
        }
    }

    /// The error of a tensor or program that does not fit.
    pub(crate) fn refusal(&self, what: &dyn Display, asked_bytes: u64, available: Available) -> DeviceError {
        DeviceError::NoRoom {
            device: self.device.clone(),
            what: what.to_string(),
            asked_bytes,
            available_bytes: available.bytes,
            of: available.of,
        }
    }

    /// What is left; none where nobody knows.
    pub(crate) fn available(&self) -> Option<Available> {
        self.left(self.held_bytes.load(Ordering::Acquire), Some(self.host.held_bytes()))
    }

    /// What is left of the room beside `held` bytes, and of the host beside `host_held`, where that is to be looked at.
    fn left(&self, held: u64, host_held: Option<u64>) -> Option<Available> {
        let limit = match self.memory {
            Memory::Host => None,
            Memory::HostUpTo { bytes, of } | Memory::Bytes { bytes, of } => {
                Some(Available { bytes: bytes.saturating_sub(held), of: of.to_owned() })
            }
        };
        let host = host_held.filter(|_| self.is_of_host()).and_then(|held| self.host.left(held));
        [limit, host].into_iter().flatten().min_by_key(|it| it.bytes)
    }

    fn is_of_host(&self) -> bool {
        match self.memory {
            Memory::Host | Memory::HostUpTo { .. } => true,
            Memory::Bytes { .. } => false,
        }
    }

    /// Bytes that were charged are free again.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::AcqRel);
        match self.memory {
            Memory::Host => self.host.give_back(bytes),
            Memory::HostUpTo { .. } | Memory::Bytes { .. } => {}
        }
    }
}

/// Bytes that tensors take on a device.
fn target_bytes<'a>(descriptors: impl Iterator<Item = &'a Descriptor>, target: &Target) -> u64 {
    descriptors.map(|descriptor| target.tensor_bytes(descriptor)).fold(0, u64::saturating_add)
}

/// Bytes that the system and the control groups above this process leave it now, or `None` where no file says.
pub fn available_host_bytes() -> Option<u64> {
    host::look().map(|look| look.available.bytes)
}

/// Whether `bytes` more of `what` fit into the host's memory now, beside what devices in it were charged with. For copies that
/// are made on the way to a device.
///
/// # Errors
/// `NoRoom`.
pub fn check_host(what: &dyn Display, bytes: u64) -> Result<(), DeviceError> {
    if bytes < UNLOOKED_BYTES_MAX {
        return Ok(());
    }
    Room::new("the host", Memory::Host).check(what, bytes)
}

#[cfg(test)]
mod tests;
