//! `GET /api/v1/devices`: what this machine computes with.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use saggar_device::DeviceInfo;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::app::AppState;
use crate::limits::DEVICE_LIST_TIME_MAX;

/// A device of this machine.
#[derive(Clone, Debug)]
pub struct MachineDevice {
    /// What it is.
    pub info: DeviceInfo,
    /// Whether models predict on it.
    pub serves: bool,
    /// Jobs that may run on it at once.
    pub job_slots: usize,
}

/// The devices of this machine. Finding them takes a while, for which the server's start does not wait, but whoever asks
/// for them does.
#[derive(Debug)]
pub struct DeviceInventory(watch::Sender<DeviceSearch>);

#[derive(Debug)]
struct DeviceSearch {
    found: Vec<MachineDevice>,
    is_finished: bool,
}

impl DeviceInventory {
    /// The names of all of them.
    pub(crate) async fn names(&self) -> Vec<String> {
        self.list().await.into_iter().map(|device| device.info.name).collect()
    }

    /// All of them.
    pub fn new(devices: Vec<MachineDevice>) -> DeviceInventory {
        DeviceInventory(watch::Sender::new(DeviceSearch { found: devices, is_finished: true }))
    }

    /// Those that are known before the search for all of them is over.
    pub fn with_search_pending(known: Vec<MachineDevice>) -> DeviceInventory {
        DeviceInventory(watch::Sender::new(DeviceSearch { found: known, is_finished: false }))
    }

    /// The search is over, and found these; where it found nothing, those that were known are all.
    pub fn finish_search(&self, devices: Vec<MachineDevice>) {
        self.0.send_modify(|search| {
            search.is_finished = true;
            if !devices.is_empty() {
                search.found = devices;
            }
        });
    }

    /// What was found, when the search is over or has taken too long.
    async fn list(&self) -> Vec<MachineDevice> {
        let mut search = self.0.subscribe();
        let _ = timeout(DEVICE_LIST_TIME_MAX, search.wait_for(|search| search.is_finished)).await;
        search.borrow().found.clone()
    }
}

/// `GET /api/v1/devices`.
pub(crate) async fn list(State(app): State<AppState>) -> Json<Value> {
    let device = |device: &MachineDevice| {
        let info = &device.info;
        json!({
            "name": info.name,
            "adapter": info.adapter,
            "vendor": info.vendor,
            "driver": info.driver,
            "backend": info.backend,
            "software": info.software,
            "exact_seconds": info.exact_seconds,
            "serves": device.serves,
            "job_slots": device.job_slots,
            "limits": info.limits.iter().cloned().collect::<BTreeMap<String, u64>>(),
            "features": info.features,
        })
    };
    let devices: Vec<Value> = app.parts().devices.list().await.iter().map(device).collect();
    Json(json!({ "devices": devices }))
}
