//! Device selection by name. The result always says why the device was selected.

use std::path::Path;
use std::sync::Arc;

use crate::backend::{Backend, DeviceInfo};
use crate::error::DeviceError;
use crate::{cpu, gpu};

/// A device and the reason for its selection.
#[derive(Clone, Debug)]
pub struct DeviceSelection {
    /// The device.
    pub backend: Arc<dyn Backend>,
    /// A sentence for logs and job records.
    pub reason: String,
}

/// Returns every device of this machine: the processor, then the adapters.
pub fn list_devices() -> Vec<DeviceInfo> {
    let mut devices = vec![cpu::describe()];
    devices.extend(gpu::adapters());
    devices
}

/// Opens a device by name: `cpu`; `gpu`, the best adapter; `gpu:N` or `vulkan:N`, adapter N; `auto`, the first hardware
/// adapter, else the processor. `auto` never selects a software adapter, because native kernels are much faster.
///
/// # Errors
/// Returns `NotFound` if there is no such device, with a list of the devices, and the errors of opening it.
pub fn open(name: &str) -> Result<DeviceSelection, DeviceError> {
    open_with_usage(name, DeviceUsage::default())
}

/// Intended use of a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceUsage<'a> {
    /// Number of processes that use the device at the same time, including this one. Each takes its share of a
    /// processor's threads.
    pub processes: usize,
    /// Directory that keeps the driver's compiled pipelines between processes, or `None` to keep none.
    pub pipeline_cache_dir: Option<&'a Path>,
}

/// Like [`open`], for an intended use.
///
/// # Errors
/// Returns those of [`open`].
pub fn open_with_usage(name: &str, usage: DeviceUsage<'_>) -> Result<DeviceSelection, DeviceError> {
    let asked = || format!("{name} was requested");
    let cpu = || match usage.processes {
        0 | 1 => cpu::open(None),
        processes => cpu::open(Some((cpu::core_count() / processes).max(1))),
    };
    if name == "cpu" {
        return Ok(DeviceSelection { backend: cpu()?, reason: asked() });
    }
    let adapters = gpu::adapters();
    let gpu = |index: usize| {
        // Synchronised processes must compute alike, so they do not autotune. Software adapters gain too little from
        // it.
        let is_alone = usage.processes < 2 && adapters.get(index).is_some_and(|adapter| !adapter.software);
        let tried_operations_min = is_alone.then_some(gpu::AUTOTUNE_OPERATIONS_MIN);
        gpu::open_with(
            index,
            gpu::GpuOptions {
                cache_dir: usage.pipeline_cache_dir,
                autotune_operations_min: tried_operations_min,
                ..gpu::GpuOptions::default()
            },
        )
    };
    let hardware = adapters.iter().position(|adapter| !adapter.software);
    if name == "auto" {
        return match hardware {
            Some(index) => Ok(DeviceSelection { backend: gpu(index)?, reason: "the first GPU".to_owned() }),
            None => Ok(DeviceSelection { backend: cpu()?, reason: no_gpu_reason(&adapters) }),
        };
    }
    if name == "gpu" {
        let index = hardware.or((!adapters.is_empty()).then_some(0)).ok_or_else(|| not_found_error(name, &adapters))?;
        let software = if hardware.is_none() { ", and only software adapters were found" } else { "" };
        return Ok(DeviceSelection { backend: gpu(index)?, reason: format!("{}{software}", asked()) });
    }
    let index = name.strip_prefix("gpu:").or_else(|| name.strip_prefix("vulkan:")).and_then(|index| index.parse().ok());
    match index {
        Some(index) if index < adapters.len() => Ok(DeviceSelection { backend: gpu(index)?, reason: asked() }),
        _ => Err(not_found_error(name, &adapters)),
    }
}

fn no_gpu_reason(adapters: &[DeviceInfo]) -> String {
    match adapters {
        [] => "no GPU was found".to_owned(),
        [first, ..] => format!("no GPU was found; {} is software, which native kernels outrun", first.adapter),
    }
}

fn not_found_error(name: &str, adapters: &[DeviceInfo]) -> DeviceError {
    let names: Vec<&str> = ["cpu"].into_iter().chain(adapters.iter().map(|adapter| adapter.name.as_str())).collect();
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
        for name in ["vulkan:99", "gpu:x", "tpu", ""] {
            let error = open(name).unwrap_err();
            assert!(matches!(error, DeviceError::NotFound { .. }), "{name}");
            assert!(error.to_string().contains("cpu"), "{error}");
        }
    }
}
