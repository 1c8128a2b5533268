//! Accounting: who holds how many device bytes and used how many device seconds. One meter an owner (a job, a model
//! version); buffers and executables keep theirs and give bytes back when dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::DeviceError;
use crate::memory_budget::DeviceMemoryBudget;

/// An owner's account. Clones share it.
#[derive(Clone, Debug)]
pub struct Meter(Arc<MeterState>);

#[derive(Debug)]
struct MeterState {
    limit_bytes: u64,
    bytes: AtomicU64,
    peak_bytes: AtomicU64,
    busy_nanoseconds: AtomicU64,
    counters: [AtomicU64; 6],
    written_bytes: AtomicU64,
    read_bytes: AtomicU64,
}

/// Counts of what a device did for an owner. A processor has dispatches and submissions alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Kernels' passes run.
    pub dispatches: u64,
    /// Times that commands were handed to the driver to run kernels.
    pub submissions: u64,
    /// Passes that had to wait for those before them, because they touch memory that one of those touched.
    pub barriers: u64,
    /// Groups of bindings made; one that was made for the same tensors before is taken again.
    pub bind_groups: u64,
    /// Allocations that the driver made, rather than memory that was freed before and taken again.
    pub allocations: u64,
    /// Tensors read back to the host.
    pub reads: u64,
}

impl DeviceCounters {
    fn to_array(self) -> [u64; 6] {
        [self.dispatches, self.submissions, self.barriers, self.bind_groups, self.allocations, self.reads]
    }
}

/// Bytes charged to a meter until this is dropped.
#[derive(Debug)]
pub struct MeterCharge {
    meter: Meter,
    bytes: u64,
    /// The device's memory that they are taken from.
    budget: Option<Arc<DeviceMemoryBudget>>,
}

impl Meter {
    /// An account that may hold up to `limit_bytes` of device memory.
    pub fn new(limit_bytes: u64) -> Meter {
        Meter(Arc::new(MeterState {
            limit_bytes,
            bytes: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            busy_nanoseconds: AtomicU64::new(0),
            counters: Default::default(),
            written_bytes: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
        }))
    }

    /// An account without a limit.
    pub fn unlimited() -> Meter {
        Meter::new(u64::MAX)
    }

    /// Whether both are the same account.
    pub(crate) fn is_same(&self, other: &Meter) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Charges `bytes` until the result is dropped. Called before every device allocation.
    ///
    /// # Errors
    /// `OutOfMemory` where the limit would be passed; nothing is charged then.
    pub fn charge(&self, bytes: u64) -> Result<MeterCharge, DeviceError> {
        let add = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.0.limit_bytes);
        match self.0.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, add) {
            Ok(before) => {
                self.0.peak_bytes.fetch_max(before + bytes, Ordering::AcqRel);
                Ok(MeterCharge { meter: self.clone(), bytes, budget: None })
            }
            Err(used_bytes) => {
                Err(DeviceError::OutOfMemory { asked_bytes: bytes, used_bytes, limit_bytes: self.0.limit_bytes })
            }
        }
    }

    /// Adds time the device worked for this owner. Called by devices after each dispatch.
    pub fn add_busy_time(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.busy_nanoseconds.fetch_add(nanoseconds, Ordering::AcqRel);
    }

    /// Counts what was done for this owner. Called by devices.
    pub fn add_counters(&self, work: DeviceCounters) {
        for (counter, more) in self.0.counters.iter().zip(work.to_array()) {
            if more > 0 {
                counter.fetch_add(more, Ordering::AcqRel);
            }
        }
    }

    /// What was done for this owner so far.
    pub fn counters(&self) -> DeviceCounters {
        let [dispatches, submissions, barriers, bind_groups, allocations, reads] =
            [0, 1, 2, 3, 4, 5].map(|at: usize| self.0.counters[at].load(Ordering::Acquire));
        DeviceCounters { dispatches, submissions, barriers, bind_groups, allocations, reads }
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
    pub fn busy_time(&self) -> Duration {
        Duration::from_nanos(self.0.busy_nanoseconds.load(Ordering::Acquire))
    }

    /// Kernels run so far.
    pub fn dispatches(&self) -> u64 {
        self.counters().dispatches
    }

    /// Submissions made so far.
    pub fn submissions(&self) -> u64 {
        self.counters().submissions
    }
}

impl MeterCharge {
    /// It is also taken from a device's room, which is given the bytes back.
    pub(crate) fn with_budget(mut self, room: &Arc<DeviceMemoryBudget>) -> MeterCharge {
        self.budget = Some(Arc::clone(room));
        self
    }

    /// Counts bytes that were copied from the host to what is charged for. Called by devices.
    pub(crate) fn add_written(&self, bytes: usize) {
        self.meter.0.written_bytes.fetch_add(bytes as u64, Ordering::AcqRel);
    }

    /// Counts bytes that were copied to the host from it. Called by devices.
    pub(crate) fn add_read(&self, bytes: usize) {
        self.meter.add_counters(DeviceCounters { reads: 1, ..DeviceCounters::default() });
        self.meter.0.read_bytes.fetch_add(bytes as u64, Ordering::AcqRel);
    }
}

impl Drop for MeterCharge {
    fn drop(&mut self) {
        self.meter.0.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        if let Some(room) = &self.budget {
            room.release(self.bytes);
        }
    }
}
