//! The compute devices of this machine, which are searched for while the server starts.

use saggar_device::DeviceInfo;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::limits::DEVICE_LIST_TIME_MAX;

/// A device of this machine.
#[derive(Clone, Debug)]
pub struct MachineDevice {
    /// Name, type and memory of the device.
    pub info: DeviceInfo,
    /// Whether models predict on it.
    pub serves: bool,
    /// The number of jobs that can run on it at once.
    pub job_slots: usize,
}

/// The devices of this machine. Enumerating them takes a while: the server's start does not wait for it, but requests
/// that need the list do.
#[derive(Debug)]
pub struct DeviceInventory(watch::Sender<DeviceSearch>);

#[derive(Debug)]
struct DeviceSearch {
    found: Vec<MachineDevice>,
    is_finished: bool,
}

impl DeviceInventory {
    /// Returns the names of all devices.
    pub(crate) async fn names(&self) -> Vec<String> {
        self.list().await.into_iter().map(|device| device.info.name).collect()
    }

    /// Creates an inventory that is complete.
    pub fn new(devices: Vec<MachineDevice>) -> DeviceInventory {
        DeviceInventory(watch::Sender::new(DeviceSearch { found: devices, is_finished: true }))
    }

    /// Creates an inventory of the devices known before enumeration has finished.
    pub fn with_search_pending(known: Vec<MachineDevice>) -> DeviceInventory {
        DeviceInventory(watch::Sender::new(DeviceSearch { found: known, is_finished: false }))
    }

    /// Ends the enumeration with the devices found. If `devices` is empty, the devices already known are kept.
    pub fn finish_search(&self, devices: Vec<MachineDevice>) {
        self.0.send_modify(|search| {
            search.is_finished = true;
            if !devices.is_empty() {
                search.found = devices;
            }
        });
    }

    /// Returns the devices once the enumeration has finished or has taken longer than `DEVICE_LIST_TIME_MAX`.
    pub(crate) async fn list(&self) -> Vec<MachineDevice> {
        let mut search = self.0.subscribe();
        let _ = timeout(DEVICE_LIST_TIME_MAX, search.wait_for(|search| search.is_finished)).await;
        search.borrow().found.clone()
    }
}
