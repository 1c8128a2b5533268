//! `GET /api/v1/devices`: the compute devices of this machine.

use axum::Json;
use axum::extract::State;
use saggar_rest::devices::{DeviceDocument, DeviceListDocument};

use crate::app::AppState;
use crate::device_inventory::MachineDevice;

/// Handles `GET /api/v1/devices`.
pub(crate) async fn list(State(app): State<AppState>) -> Json<DeviceListDocument> {
    let device = |device: MachineDevice| {
        let MachineDevice { info, serves, job_slots } = device;
        DeviceDocument {
            name: info.name,
            adapter: info.adapter,
            vendor: info.vendor,
            driver: info.driver,
            backend: info.backend,
            software: info.software,
            exact_seconds: info.exact_seconds,
            serves,
            job_slots,
            limits: info.limits.into_iter().collect(),
            features: info.features,
        }
    };
    Json(DeviceListDocument { devices: app.parts().devices.list().await.into_iter().map(device).collect() })
}
