//! A device that is opened anew after its driver gave it up.
//!
//! Tensors and programs belong to the device that they were made on and are lost with it: whoever holds some makes them again
//! on [`RecoverableDevice::current`] after [`RecoverableDevice::reopen`].

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use crate::backend::Backend;
use crate::error::DeviceError;
use crate::select::{self, DeviceUsage};

/// A device by its name, and whatever was opened under it last.
#[derive(Debug)]
pub struct RecoverableDevice {
    name: String,
    pipeline_cache_dir: Option<PathBuf>,
    current: RwLock<Arc<dyn Backend>>,
}

impl RecoverableDevice {
    /// `device`, which was opened just now. A lost one is replaced by the device of the same name, whatever was asked for at
    /// first: what was compiled and checked for one adapter does not move to another silently. What its driver compiles is
    /// kept in `pipeline_cache_dir`.
    pub fn new(device: Arc<dyn Backend>, kept: Option<PathBuf>) -> RecoverableDevice {
        RecoverableDevice { name: device.info().name.clone(), pipeline_cache_dir: kept, current: RwLock::new(device) }
    }

    /// The device to make things on now.
    pub fn current(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why the driver gave the device up, where it did. Does not wait.
    pub fn lost_error(&self) -> Option<DeviceError> {
        self.current().check_alive().err()
    }

    /// Opens the device again. May take as long as its driver.
    ///
    /// # Errors
    /// Those of [`choose::open`]; the lost one stays the current one then.
    pub fn reopen(&self) -> Result<(), DeviceError> {
        let usage = DeviceUsage { pipeline_cache_dir: self.pipeline_cache_dir.as_deref(), ..DeviceUsage::default() };
        let device = select::open_with_usage(&self.name, usage)?.backend;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = device;
        Ok(())
    }
}
