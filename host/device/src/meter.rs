//! Accounting: who holds how many device bytes and used how many device seconds. One meter an owner (a job, a model
//! version); buffers and executables keep theirs and give bytes back when dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::DeviceError;
use crate::room::Room;

/// An owner's account. Clones share it.
#[derive(Clone, Debug)]
pub struct Meter(Arc<Account>);

#[derive(Debug)]
struct Account {
    limit_bytes: u64,
    bytes: AtomicU64,
    peak_bytes: AtomicU64,
    busy_nanoseconds: AtomicU64,
    dispatches: AtomicU64,
    submissions: AtomicU64,
    written_bytes: AtomicU64,
    read_bytes: AtomicU64,
}

/// Bytes charged to a meter until this is dropped.
#[derive(Debug)]
pub struct Charge {
    meter: Meter,
    bytes: u64,
    /// The device's memory that they are taken from.
    room: Option<Arc<Room>>,
}

impl Meter {
    /// An account that may hold up to `limit_bytes` of device memory.
    pub fn new(limit_bytes: u64) -> Meter {
        Meter(Arc::new(Account {
            limit_bytes,
            bytes: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            busy_nanoseconds: AtomicU64::new(0),
            dispatches: AtomicU64::new(0),
            submissions: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
        }))
    }

    /// An account without a limit.
    pub fn unlimited() -> Meter {
        Meter::new(u64::MAX)
    }

    /// Whether both are the same account.
    pub(crate) fn is(&self, other: &Meter) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Charges `bytes` until the result is dropped. Called before every device allocation.
    ///
    /// # Errors
    /// `OutOfMemory` where the limit would be passed; nothing is charged then.
    pub fn charge(&self, bytes: u64) -> Result<Charge, DeviceError> {
        let add = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.0.limit_bytes);
        match self.0.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, add) {
            Ok(before) => {
                self.0.peak_bytes.fetch_max(before + bytes, Ordering::AcqRel);
                Ok(Charge { meter: self.clone(), bytes, room: None })
            }
            Err(used_bytes) => {
                Err(DeviceError::OutOfMemory { asked_bytes: bytes, used_bytes, limit_bytes: self.0.limit_bytes })
            }
        }
    }

    /// Adds time the device worked for this owner. Called by devices after each dispatch.
    pub fn add_busy(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.busy_nanoseconds.fetch_add(nanoseconds, Ordering::AcqRel);
    }

    /// Counts kernels encoded and submissions made. Called by devices.
    pub fn add_work(&self, dispatches: u64, submissions: u64) {
        self.0.dispatches.fetch_add(dispatches, Ordering::AcqRel);
        self.0.submissions.fetch_add(submissions, Ordering::AcqRel);
    }

    /// Bytes of tensors copied from the host to the device so far.
    pub fn written_bytes(&self) -> u64 {
        self.0.written_bytes.load(Ordering::Acquire)
    }

    /// Bytes of tensors copied from the device to the host so far.
    pub fn read_bytes(&self) -> u64 {
        self.0.read_bytes.load(Ordering::Acquire)
    }

    /// Device bytes held now.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Acquire)
    }

    /// The most device bytes held at once.
    pub fn peak_bytes(&self) -> u64 {
        self.0.peak_bytes.load(Ordering::Acquire)
    }

    /// Time the device worked for this owner.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.0.busy_nanoseconds.load(Ordering::Acquire))
    }

    /// Kernels run so far.
    pub fn dispatches(&self) -> u64 {
        self.0.dispatches.load(Ordering::Acquire)
    }

    /// Submissions made so far.
    pub fn submissions(&self) -> u64 {
        self.0.submissions.load(Ordering::Acquire)
    }
}

impl Charge {
    /// It is also taken from a device's room, which is given the bytes back.
    pub(crate) fn in_room(mut self, room: &Arc<Room>) -> Charge {
        self.room = Some(Arc::clone(room));
        self
    }

    /// Counts bytes that were copied from the host to what is charged for. Called by devices.
    pub(crate) fn add_written(&self, bytes: usize) {
        self.meter.0.written_bytes.fetch_add(bytes as u64, Ordering::AcqRel);
    }

    /// Counts bytes that were copied to the host from it. Called by devices.
    pub(crate) fn add_read(&self, bytes: usize) {
        self.meter.0.read_bytes.fetch_add(bytes as u64, Ordering::AcqRel);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.meter.0.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        if let Some(room) = &self.room {
            room.give_back(self.bytes);
        }
    }
}
