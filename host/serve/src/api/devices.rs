//! `GET /api/v1/devices`: the compute devices of this machine.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::app::AppState;
use crate::device_inventory::MachineDevice;

/// Handles `GET /api/v1/devices`.
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
