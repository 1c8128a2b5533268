//! How a kind of device is found and opened: what each implementation registers.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use crate::backend::{Backend, DeviceInfo};
use crate::error::DeviceError;

/// Intended use of a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceUsage<'a> {
    /// Number of processes that use the device at the same time, including this one. Each takes its share of a
    /// processor's threads.
    pub processes: usize,
    /// Directory that keeps the driver's compiled pipelines between processes, or `None` to keep none.
    pub pipeline_cache_dir: Option<&'a Path>,
}

/// A kind of device. Its devices are named by [`DeviceInfo::name`].
pub trait DeviceDriver: Debug + Sync {
    /// Returns the name that stands for the best device of this kind, such as `gpu`.
    fn kind(&self) -> &'static str;

    /// Returns what its devices are called in messages, such as `GPU`.
    fn label(&self) -> &'static str;

    /// Returns the prefixes that select a device by its index, such as `vulkan` in `vulkan:0`. Empty if the kind has one device.
    fn prefixes(&self) -> &'static [&'static str];

    /// Returns whether its devices accelerate the host. `auto` prefers them to the processor.
    fn is_accelerator(&self) -> bool;

    /// Returns the devices of this kind on this machine, in the order of [`DeviceDriver::open`]'s index. Opens none.
    fn list(&self) -> Vec<DeviceInfo>;

    /// Opens device `index` of [`DeviceDriver::list`], which described it as `device`.
    ///
    /// # Errors
    /// Returns `NotFound` if there is no such device, and the implementation's errors.
    fn open(&self, index: usize, device: &DeviceInfo, usage: DeviceUsage<'_>) -> Result<Arc<dyn Backend>, DeviceError>;
}
