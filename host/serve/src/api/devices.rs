//! `GET /api/v1/devices`: what this machine computes with.

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
    let devices: Vec<Value> = app.parts().devices.iter().map(device).collect();
    Json(json!({ "devices": devices }))
}
