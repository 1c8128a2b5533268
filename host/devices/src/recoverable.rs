//! A device that can be opened again after its driver gave it up.
//!
//! Tensors and programs belong to the device that made them and are lost with it. Their owners must make them again on
//! [`RecoverableDevice::current`] after [`RecoverableDevice::reopen`].

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;
use saggar_device::backend::Backend;
use saggar_device::{DeviceError, DeviceUsage, without_optimizations};

/// A device name, and the device that was last opened under it.
#[derive(Debug)]
pub struct RecoverableDevice {
    name: String,
    pipeline_cache_dir: Option<PathBuf>,
    current: RwLock<Arc<dyn Backend>>,
}

impl RecoverableDevice {
    /// Wraps `device`, which was just opened. A lost device is replaced only by the device of the same name, even if
    /// the name was selected automatically: programs that were compiled and checked for one adapter never move to
    /// another one silently. The driver's compiled pipelines are stored in `pipeline_cache_dir`.
    pub fn new(device: Arc<dyn Backend>, cache_dir: Option<PathBuf>) -> RecoverableDevice {
        RecoverableDevice {
            name: device.info().name.clone(),
            pipeline_cache_dir: cache_dir,
            current: RwLock::new(device),
        }
    }

    /// Returns the current device.
    pub fn current(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.current.read())
    }

    /// Returns why the driver gave the device up, or `None` if it did not. Does not wait.
    pub fn lost_error(&self) -> Option<DeviceError> {
        self.current().check_alive().err()
    }

    /// Opens the device again. Can take as long as its driver.
    ///
    /// # Errors
    /// Returns those of [`crate::open`]. The lost device stays the current one then.
    pub fn reopen(&self) -> Result<(), DeviceError> {
        let usage = DeviceUsage { pipeline_cache_dir: self.pipeline_cache_dir.as_deref(), ..DeviceUsage::default() };
        let device = crate::open_with_usage(&self.name, usage)?.backend;
        let without = self.current.read().target().without;
        *self.current.write() = without_optimizations(device, without);
        Ok(())
    }
}
