//! `GET /api/v1/devices`: what this machine computes with.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use saggar_device::DeviceInfo;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::app::App;
use crate::limits::DEVICES_TIME;

/// A device of this machine.
#[derive(Clone, Debug)]
pub struct Device {
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
pub struct Devices(watch::Sender<Search>);

#[derive(Debug)]
struct Search {
    found: Vec<Device>,
    over: bool,
}

impl Devices {
    /// The names of all of them.
    pub(crate) async fn names(&self) -> Vec<String> {
        self.list().await.into_iter().map(|device| device.info.name).collect()
    }

    /// All of them.
    pub fn new(devices: Vec<Device>) -> Devices {
        Devices(watch::Sender::new(Search { found: devices, over: true }))
    }

    /// Those that are known before the search for all of them is over.
    pub fn searching(known: Vec<Device>) -> Devices {
        Devices(watch::Sender::new(Search { found: known, over: false }))
    }

    /// The search is over, and found these; where it found nothing, those that were known are all.
    pub fn found(&self, devices: Vec<Device>) {
        self.0.send_modify(|search| {
            search.over = true;
            if !devices.is_empty() {
                search.found = devices;
            }
        });
    }

    /// What was found, when the search is over or has taken too long.
    async fn list(&self) -> Vec<Device> {
        let mut search = self.0.subscribe();
        let _ = timeout(DEVICES_TIME, search.wait_for(|search| search.over)).await;
        search.borrow().found.clone()
    }
}

/// `GET /api/v1/devices`.
pub(crate) async fn list(State(app): State<App>) -> Json<Value> {
    let device = |device: &Device| {
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
