//! The registry of devices: lists the devices of this machine and opens one by name. The result always says why the device was
//! selected.
//!
//! A new kind of device is a crate that implements [`DeviceDriver`], and one line in [`DRIVERS`].

#![deny(clippy::wildcard_enum_match_arm)]

mod recoverable;

use std::sync::Arc;

use saggar_cpu::driver::CpuDriver;
use saggar_device::backend::{Backend, DeviceInfo};
pub use saggar_device::{DeviceDriver, DeviceError, DeviceUsage};
use saggar_gpu::driver::GpuDriver;

pub use recoverable::RecoverableDevice;

/// Every kind of device, in the order in which they are listed.
pub const DRIVERS: &[&dyn DeviceDriver] = &[&CpuDriver, &GpuDriver];

/// A device and the reason for its selection.
#[derive(Clone, Debug)]
pub struct DeviceSelection {
    /// The device.
    pub backend: Arc<dyn Backend>,
    /// A sentence for logs and job records.
    pub reason: String,
}

/// Returns every device of this machine, in the order of [`DRIVERS`]: the processor, then the adapters.
pub fn list_devices() -> Vec<DeviceInfo> {
    DRIVERS.iter().flat_map(|driver| driver.list()).collect()
}

/// Opens a device by name: `cpu`; `gpu`, the best adapter; `gpu:N` or `vulkan:N`, adapter N; `auto`, the first hardware
/// accelerator, else the processor. `auto` never selects a software adapter, because native kernels are much faster.
///
/// # Errors
/// Returns `NotFound` if there is no such device, with a list of the devices, and the errors of opening it.
pub fn open(name: &str) -> Result<DeviceSelection, DeviceError> {
    open_with_usage(name, DeviceUsage::default())
}

/// Like [`open`], for an intended use.
///
/// # Errors
/// Returns those of [`open`].
pub fn open_with_usage(name: &str, usage: DeviceUsage<'_>) -> Result<DeviceSelection, DeviceError> {
    if name == "auto" {
        return open_best(usage);
    }
    if let Some(driver) = DRIVERS.iter().find(|driver| driver.kind() == name) {
        let devices = driver.list();
        let hardware = devices.iter().position(|device| !device.software);
        let index = hardware.or((!devices.is_empty()).then_some(0)).ok_or_else(|| not_found_error(name))?;
        let software = if hardware.is_none() { ", and only software adapters were found" } else { "" };
        return Ok(DeviceSelection {
            backend: driver.open(index, &devices[index], usage)?,
            reason: format!("{name} was requested{software}"),
        });
    }
    let (prefix, index) = name.split_once(':').ok_or_else(|| not_found_error(name))?;
    let driver =
        DRIVERS.iter().find(|driver| driver.prefixes().contains(&prefix)).ok_or_else(|| not_found_error(name))?;
    let index: usize = index.parse().map_err(|_| not_found_error(name))?;
    let devices = driver.list();
    let device = devices.get(index).ok_or_else(|| not_found_error(name))?;
    Ok(DeviceSelection { backend: driver.open(index, device, usage)?, reason: format!("{name} was requested") })
}

/// Opens the first accelerator that is hardware, else the first device that is no accelerator.
fn open_best(usage: DeviceUsage<'_>) -> Result<DeviceSelection, DeviceError> {
    let mut software = None;
    for driver in DRIVERS.iter().filter(|driver| driver.is_accelerator()) {
        let devices = driver.list();
        if let Some(index) = devices.iter().position(|device| !device.software) {
            let reason = format!("the first {}", driver.label());
            return Ok(DeviceSelection { backend: driver.open(index, &devices[index], usage)?, reason });
        }
        software = software.or_else(|| devices.into_iter().next());
    }
    let reason = match software {
        None => "no GPU was found".to_owned(),
        Some(adapter) => {
            format!("no GPU was found; {} is software, which native kernels outrun", adapter.adapter)
        }
    };
    let driver = DRIVERS.iter().find(|driver| !driver.is_accelerator()).ok_or_else(|| not_found_error("auto"))?;
    let devices = driver.list();
    let device = devices.first().ok_or_else(|| not_found_error("auto"))?;
    Ok(DeviceSelection { backend: driver.open(0, device, usage)?, reason })
}

fn not_found_error(name: &str) -> DeviceError {
    let names: Vec<String> = list_devices().into_iter().map(|device| device.name).collect();
    let reason = format!("this machine has {}; run `saggar doctor` for details", names.join(", "));
    DeviceError::NotFound { name: name.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_device_is_always_listed() {
        assert_eq!(open("cpu").unwrap().backend.info().name, "cpu");
        assert_eq!(list_devices()[0].name, "cpu");
        assert!(!open("auto").unwrap().reason.is_empty());
    }

    #[test]
    fn auto_never_selects_a_software_adapter() {
        assert!(!open("auto").unwrap().backend.info().software);
    }

    #[test]
    fn an_unknown_device_error_lists_the_available_devices() {
        for name in ["vulkan:99", "gpu:x", "cpu:0", "tpu", "tpu:0", ""] {
            let error = open(name).unwrap_err();
            assert!(matches!(error, DeviceError::NotFound { .. }), "{name}");
            assert!(error.to_string().contains("cpu"), "{error}");
        }
    }
}
