//! Charges of device memory, to an owner and to the device's budget together.

use std::sync::Arc;

use super::DeviceMemoryBudget;
use crate::meter::MeterCharge;

/// Bytes that are charged to an owner's meter and reserved in a device's memory budget. Both get them back when this is
/// dropped.
#[derive(Debug)]
pub struct DeviceMemoryCharge {
    pub(super) charge: MeterCharge,
    pub(super) budget: Arc<DeviceMemoryBudget>,
}

impl DeviceMemoryCharge {
    /// Counts bytes that were copied from the host to the charged memory. Called by devices.
    pub fn add_written(&self, bytes: usize) {
        self.charge.meter().add_written_bytes(bytes as u64);
    }

    /// Counts a tensor of `bytes` that was copied from the charged memory to the host. Called by devices.
    pub fn add_read(&self, bytes: usize) {
        self.charge.meter().add_read_bytes(bytes as u64);
    }
}

impl Drop for DeviceMemoryCharge {
    fn drop(&mut self) {
        self.budget.release(self.charge.bytes());
    }
}
