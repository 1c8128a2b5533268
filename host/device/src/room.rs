//! Memory that a device has left: what does not fit is refused before it is allocated, with the bytes that it wants and those
//! that there are.
//!
//! A meter limits its owner; a room limits all owners together, to what the machine has. The system hands out memory that
//! nobody has touched without having it, so bytes are counted here from when they are charged.

pub(crate) mod host;

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::DeviceError;
use crate::meter::{Charge, Meter};

/// Bytes that may be charged between two looks at what the system has: a look takes longer than a small tensor.
const UNLOOKED_BYTES_MAX: u64 = 64 << 20;

/// A device's memory.
#[derive(Debug)]
pub(crate) struct Room {
    device: String,
    memory: Memory,
    /// Bytes that are charged now.
    held_bytes: AtomicU64,
    /// Bytes charged since the last look.
    unlooked_bytes: AtomicU64,
}

/// Where the memory is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Memory {
    /// The host's.
    Host,
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

impl Room {
    pub(crate) fn new(device: &str, memory: Memory) -> Arc<Room> {
        Arc::new(Room {
            device: device.to_owned(),
            memory,
            held_bytes: AtomicU64::new(0),
            unlooked_bytes: AtomicU64::new(0),
        })
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
        let unlooked = self.unlooked_bytes.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes);
        match self.memory {
            Memory::Host if unlooked < UNLOOKED_BYTES_MAX => {}
            Memory::Host | Memory::Bytes { .. } => self.check(what, bytes)?,
        }
        self.held_bytes.fetch_add(bytes, Ordering::AcqRel);
        Ok(charge.in_room(self))
    }

    /// Whether `bytes` more of `what` would fit now; nothing is charged.
    ///
    /// # Errors
    /// `NoRoom`.
    pub(crate) fn check(&self, what: &dyn Display, bytes: u64) -> Result<(), DeviceError> {
        self.unlooked_bytes.store(0, Ordering::Release);
        match self.available() {
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
        let held = self.held_bytes.load(Ordering::Acquire);
        match self.memory {
            Memory::Bytes { bytes, of } => Some(Available { bytes: bytes.saturating_sub(held), of: of.to_owned() }),
            Memory::Host => {
                let found = host::available()?;
                // What is held and was never touched is still to come out of it.
                let untouched = held.saturating_sub(host::resident_bytes().unwrap_or(held));
                Some(Available { bytes: found.bytes.saturating_sub(untouched), of: found.of })
            }
        }
    }

    /// Bytes that were charged are free again.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// Whether `bytes` more of `what` fit into the host's memory now. For copies that are made on the way to a device.
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
mod tests {
    use super::*;

    fn room(bytes: u64) -> Arc<Room> {
        Room::new("cpu", Memory::Bytes { bytes, of: "a test's limit" })
    }

    #[test]
    fn what_is_charged_is_taken_until_it_is_dropped() {
        let (room, meter) = (room(1000), Meter::unlimited());
        let kept = room.charge(&"x", 800, &meter).unwrap();
        let refused = room.charge(&"y", 300, &meter).unwrap_err();
        let DeviceError::NoRoom { asked_bytes: 300, available_bytes: 200, .. } = refused else { panic!("{refused}") };
        assert_eq!(
            refused.to_string(),
            "no room: y wants 300 bytes, and cpu has 200 available (a test's limit); smaller batches, a smaller model \
             or more memory would do"
        );
        assert_eq!(meter.bytes(), 800, "what was refused is not charged");
        drop(kept);
        room.charge(&"y", 300, &meter).unwrap();
        assert_eq!(meter.bytes(), 0);
    }

    #[test]
    fn a_limit_of_the_owner_comes_first() {
        let refused = room(1000).charge(&"x", 200, &Meter::new(100)).unwrap_err();
        assert!(matches!(refused, DeviceError::OutOfMemory { asked_bytes: 200, .. }), "{refused}");
    }

    #[test]
    fn what_no_host_has_is_refused_by_name() {
        if host::available().is_none() {
            println!("SKIP: this system does not say how much memory it has");
            return;
        }
        let refused = check_host(&"a tensor", 1 << 60).unwrap_err();
        assert!(matches!(refused, DeviceError::NoRoom { asked_bytes, .. } if asked_bytes == 1 << 60), "{refused}");
        check_host(&"a tensor", 1 << 20).unwrap();
    }

    #[test]
    fn memory_that_nobody_touched_counts() {
        let Some(available) = host::available() else { return };
        let (room, meter) = (Room::new("cpu", Memory::Host), Meter::unlimited());
        let half = available.bytes / 3 * 2;
        let _kept = room.charge(&"x", half, &meter).unwrap();
        assert!(room.charge(&"y", half, &meter).is_err(), "two times two thirds");
    }
}
