//! A device that is opened anew after its driver gave it up.
//!
//! Tensors and programs belong to the device that they were made on and are lost with it: whoever holds some makes them again
//! on [`Renewable::current`] after [`Renewable::renew`].

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use crate::backend::Backend;
use crate::choose::{self, Usage};
use crate::error::DeviceError;

/// A device by its name, and whatever was opened under it last.
#[derive(Debug)]
pub struct Renewable {
    name: String,
    kept: Option<PathBuf>,
    current: RwLock<Arc<dyn Backend>>,
}

impl Renewable {
    /// `device`, which was opened just now. A lost one is replaced by the device of the same name, whatever was asked for at
    /// first: what was compiled and checked for one adapter does not move to another silently. What its driver compiles is
    /// kept in `kept`.
    pub fn new(device: Arc<dyn Backend>, kept: Option<PathBuf>) -> Renewable {
        Renewable { name: device.info().name.clone(), kept, current: RwLock::new(device) }
    }

    /// The device to make things on now.
    pub fn current(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why the driver gave the device up, where it did. Does not wait.
    pub fn lost(&self) -> Option<DeviceError> {
        self.current().check().err()
    }

    /// Opens the device again. May take as long as its driver.
    ///
    /// # Errors
    /// Those of [`choose::open`]; the lost one stays the current one then.
    pub fn renew(&self) -> Result<(), DeviceError> {
        let usage = Usage { kept: self.kept.as_deref(), ..Usage::default() };
        let device = choose::open_for(&self.name, usage)?.backend;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = device;
        Ok(())
    }
}
