//! `GET /api/v1/devices`: what this machine computes with.

use std::sync::{PoisonError, RwLock};

use axum::Json;
use axum::extract::State;
use saggar_device::DeviceInfo;
use serde_json::{Value, json};

use crate::app::App;

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

/// The devices of this machine, as far as they were found. Finding them takes a while, which nobody waits for.
#[derive(Debug, Default)]
pub struct Devices(RwLock<Vec<Device>>);

impl Devices {
    /// These, to begin with.
    pub fn new(devices: Vec<Device>) -> Devices {
        Devices(RwLock::new(devices))
    }

    /// All of them.
    pub fn set(&self, devices: Vec<Device>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = devices;
    }

    fn list(&self) -> Vec<Device> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
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
        })
    };
    let devices: Vec<Value> = app.parts().devices.list().iter().map(device).collect();
    Json(json!({ "devices": devices }))
}
