//! Vulkan adapters as a kind of device.

use std::sync::Arc;

use saggar_device::backend::{Backend, DeviceInfo};
use saggar_device::{DeviceDriver, DeviceError, DeviceUsage};

use crate::{AUTOTUNE_OPERATIONS_MIN, GpuOptions, adapters, open_with};

/// The driver of all adapters that wgpu finds.
#[derive(Clone, Copy, Debug)]
pub struct GpuDriver;

impl DeviceDriver for GpuDriver {
    fn kind(&self) -> &'static str {
        "gpu"
    }

    fn label(&self) -> &'static str {
        "GPU"
    }

    fn prefixes(&self) -> &'static [&'static str] {
        &["gpu", "vulkan"]
    }

    fn is_accelerator(&self) -> bool {
        true
    }

    fn list(&self) -> Vec<DeviceInfo> {
        adapters()
    }

    fn open(&self, index: usize, device: &DeviceInfo, usage: DeviceUsage<'_>) -> Result<Arc<dyn Backend>, DeviceError> {
        // Synchronised processes must compute alike, so they do not autotune. Software adapters gain too little from it.
        let autotunes = usage.processes < 2 && !device.software;
        let options = GpuOptions {
            cache_dir: usage.pipeline_cache_dir,
            autotune_operations_min: autotunes.then_some(AUTOTUNE_OPERATIONS_MIN),
            ..GpuOptions::default()
        };
        open_with(index, options)
    }
}
