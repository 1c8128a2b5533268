//! `GET /api/v1/devices`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The compute devices of the server's machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Devices")]
pub struct DeviceListDocument {
    /// The devices.
    pub devices: Vec<DeviceDocument>,
}

/// A compute device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Device")]
pub struct DeviceDocument {
    /// Its name, such as `cpu` or `vulkan0`.
    pub name: String,
    /// The name of the hardware.
    pub adapter: String,
    /// The vendor of the hardware.
    pub vendor: String,
    /// The driver and its version.
    pub driver: String,
    /// The interface that it is used through, such as `vulkan`.
    pub backend: String,
    /// Whether a processor emulates it.
    pub software: bool,
    /// Whether it has a clock, so that device seconds are measured and not estimated.
    pub exact_seconds: bool,
    /// Whether models predict on it.
    pub serves: bool,
    /// The number of jobs that can run on it at once.
    pub job_slots: usize,
    /// Its limits, by name.
    pub limits: BTreeMap<String, u64>,
    /// Its optional features.
    pub features: Vec<String>,
}
