//! Accounting of device bytes and device seconds. Each owner (a job, a model version) has one meter. Buffers and
//! executables keep their owner's meter and release their bytes when they are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::DeviceError;

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

/// Counts of a device's work for an owner. A processor counts only dispatches and submissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Kernel passes that were run.
    pub dispatches: u64,
    /// Submissions of commands to the driver.
    pub submissions: u64,
    /// Passes that had to wait for earlier passes, because they access the same memory.
    pub barriers: u64,
    /// Bind groups that were created. A bind group is reused for the same tensors.
    pub bind_groups: u64,
    /// Allocations by the driver. Reused memory is not counted.
    pub allocations: u64,
    /// Tensors that were read back to the host.
    pub reads: u64,
}

impl DeviceCounters {
    fn to_array(self) -> [u64; 6] {
        [self.dispatches, self.submissions, self.barriers, self.bind_groups, self.allocations, self.reads]
    }
}

/// A charge of bytes to a meter, released when this is dropped.
#[derive(Debug)]
pub struct MeterCharge {
    meter: Meter,
    bytes: u64,
}

impl Meter {
    /// Returns an account that can hold up to `limit_bytes` of device memory.
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

    /// Returns an account without a limit.
    pub fn unlimited() -> Meter {
        Meter::new(u64::MAX)
    }

    /// Returns whether both are the same account.
    pub fn is_same(&self, other: &Meter) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Charges `bytes` until the result is dropped. Called before every device allocation.
    ///
    /// # Errors
    /// Returns `OutOfMemory` if the limit would be exceeded. Nothing is charged then.
    pub fn charge(&self, bytes: u64) -> Result<MeterCharge, DeviceError> {
        let add = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.0.limit_bytes);
        match self.0.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, add) {
            Ok(before) => {
                self.0.peak_bytes.fetch_max(before + bytes, Ordering::AcqRel);
                Ok(MeterCharge { meter: self.clone(), bytes })
            }
            Err(used_bytes) => {
                Err(DeviceError::OutOfMemory { asked_bytes: bytes, used_bytes, limit_bytes: self.0.limit_bytes })
            }
        }
    }

    /// Adds time that the device worked for this owner. Called by devices after each dispatch.
    pub fn add_busy_time(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.busy_nanoseconds.fetch_add(nanoseconds, Ordering::AcqRel);
    }

    /// Adds work that was done for this owner. Called by devices.
    pub fn add_counters(&self, work: DeviceCounters) {
        for (counter, more) in self.0.counters.iter().zip(work.to_array()) {
            if more > 0 {
                counter.fetch_add(more, Ordering::AcqRel);
            }
        }
    }

    /// Counts bytes that were copied from the host to the owner's tensors.
    pub(crate) fn add_written_bytes(&self, bytes: u64) {
        self.0.written_bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Counts one tensor of `bytes` that was copied to the host.
    pub(crate) fn add_read_bytes(&self, bytes: u64) {
        self.add_counters(DeviceCounters { reads: 1, ..DeviceCounters::default() });
        self.0.read_bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Returns the work done for this owner so far.
    pub fn counters(&self) -> DeviceCounters {
        let [dispatches, submissions, barriers, bind_groups, allocations, reads] =
            [0, 1, 2, 3, 4, 5].map(|at: usize| self.0.counters[at].load(Ordering::Acquire));
        DeviceCounters { dispatches, submissions, barriers, bind_groups, allocations, reads }
    }

    /// Returns the bytes of tensors copied from the host to the device so far.
    pub fn written_bytes(&self) -> u64 {
        self.0.written_bytes.load(Ordering::Acquire)
    }

    /// Returns the bytes of tensors copied from the device to the host so far.
    pub fn read_bytes(&self) -> u64 {
        self.0.read_bytes.load(Ordering::Acquire)
    }

    /// Returns the device bytes held now.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Acquire)
    }

    /// Returns the most device bytes held at once.
    pub fn peak_bytes(&self) -> u64 {
        self.0.peak_bytes.load(Ordering::Acquire)
    }

    /// Returns the time that the device worked for this owner.
    pub fn busy_time(&self) -> Duration {
        Duration::from_nanos(self.0.busy_nanoseconds.load(Ordering::Acquire))
    }

    /// Returns the number of kernels run so far.
    pub fn dispatches(&self) -> u64 {
        self.counters().dispatches
    }

    /// Returns the number of submissions so far.
    pub fn submissions(&self) -> u64 {
        self.counters().submissions
    }
}

impl MeterCharge {
    /// Returns the account that is charged.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Returns the charged bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for MeterCharge {
    fn drop(&mut self) {
        self.meter.0.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}
