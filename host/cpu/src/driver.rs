//! The processor as a kind of device.

use std::sync::Arc;

use saggar_device::backend::{Backend, DeviceInfo};
use saggar_device::{DeviceDriver, DeviceError, DeviceUsage};

/// The driver of the one processor.
#[derive(Clone, Copy, Debug)]
pub struct CpuDriver;

impl DeviceDriver for CpuDriver {
    fn kind(&self) -> &'static str {
        "cpu"
    }

    fn label(&self) -> &'static str {
        "processor"
    }

    fn prefixes(&self) -> &'static [&'static str] {
        &[]
    }

    fn is_accelerator(&self) -> bool {
        false
    }

    fn list(&self) -> Vec<DeviceInfo> {
        vec![crate::describe()]
    }

    fn open(&self, _: usize, _: &DeviceInfo, usage: DeviceUsage<'_>) -> Result<Arc<dyn Backend>, DeviceError> {
        let threads = (usage.processes > 1).then(|| (crate::core_count() / usage.processes).max(1));
        crate::open(threads)
    }
}
