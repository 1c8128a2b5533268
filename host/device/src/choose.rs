//! Choosing a device by name. Never silent: the choice says why it was made.

use std::path::Path;
use std::sync::Arc;

use crate::backend::{Backend, DeviceInfo};
use crate::error::DeviceError;
use crate::{cpu, gpu};

/// A device and why it was taken.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The device.
    pub backend: Arc<dyn Backend>,
    /// A sentence for logs and job records.
    pub reason: String,
}

/// Every device of this machine: the processor, then its adapters.
pub fn list() -> Vec<DeviceInfo> {
    let mut devices = vec![cpu::describe()];
    devices.extend(gpu::adapters());
    devices
}

/// Opens a device: `cpu`; `gpu`, the best adapter; `gpu:N` or `vulkan:N`, that adapter; `auto`, the first adapter that is
/// hardware, else the processor. An adapter in software is never taken by `auto`: native kernels are much faster.
///
/// # Errors
/// `NotFound` where there is no such device, naming what there is; whatever opening it says.
pub fn open(name: &str) -> Result<Choice, DeviceError> {
    open_for(name, Usage::default())
}

/// How a device is used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage<'a> {
    /// Processes that use it at the same time, this one included: of a processor it takes its share of threads.
    pub processes: usize,
    /// Where what an adapter's driver compiles is kept from one process to the next; nowhere if none.
    pub kept: Option<&'a Path>,
}

/// As [`open`], for a use.
///
/// # Errors
/// As [`open`].
pub fn open_for(name: &str, usage: Usage<'_>) -> Result<Choice, DeviceError> {
    let asked = || format!("{name} was asked for");
    let cpu = || match usage.processes {
        0 | 1 => cpu::open(None),
        processes => cpu::open(Some((cpu::threads() / processes).max(1))),
    };
    if name == "cpu" {
        return Ok(Choice { backend: cpu()?, reason: asked() });
    }
    let adapters = gpu::adapters();
    let gpu = |index: usize| {
        // Processes that go in step must compute alike, and shaders of a processor are not worth the trouble.
        let is_alone = usage.processes < 2 && adapters.get(index).is_some_and(|adapter| !adapter.software);
        let tried_operations_min = is_alone.then_some(gpu::TRIED_OPERATIONS_MIN);
        gpu::open_with(index, gpu::Options { kept: usage.kept, tried_operations_min, ..gpu::Options::default() })
    };
    let hardware = adapters.iter().position(|adapter| !adapter.software);
    if name == "auto" {
        return match hardware {
            Some(index) => Ok(Choice { backend: gpu(index)?, reason: "the first GPU".to_owned() }),
            None => Ok(Choice { backend: cpu()?, reason: no_hardware(&adapters) }),
        };
    }
    if name == "gpu" {
        let index = hardware.or((!adapters.is_empty()).then_some(0)).ok_or_else(|| not_found(name, &adapters))?;
        let software = if hardware.is_none() { ", and no adapter but a software one is there" } else { "" };
        return Ok(Choice { backend: gpu(index)?, reason: format!("{}{software}", asked()) });
    }
    let index = name.strip_prefix("gpu:").or_else(|| name.strip_prefix("vulkan:")).and_then(|index| index.parse().ok());
    match index {
        Some(index) if index < adapters.len() => Ok(Choice { backend: gpu(index)?, reason: asked() }),
        _ => Err(not_found(name, &adapters)),
    }
}

fn no_hardware(adapters: &[DeviceInfo]) -> String {
    match adapters {
        [] => "no GPU was found".to_owned(),
        [first, ..] => format!("no GPU was found; {} is software, which native kernels outrun", first.adapter),
    }
}

fn not_found(name: &str, adapters: &[DeviceInfo]) -> DeviceError {
    let names: Vec<&str> = ["cpu"].into_iter().chain(adapters.iter().map(|adapter| adapter.name.as_str())).collect();
    let reason = format!("this machine has {}; `saggar doctor` tells more", names.join(", "));
    DeviceError::NotFound { name: name.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_always_there() {
        assert_eq!(open("cpu").unwrap().backend.info().name, "cpu");
        assert_eq!(list()[0].name, "cpu");
        assert!(!open("auto").unwrap().reason.is_empty());
    }

    #[test]
    fn auto_takes_no_software_adapter() {
        assert!(!open("auto").unwrap().backend.info().software);
    }

    #[test]
    fn what_is_not_there_is_named_with_what_is() {
        for name in ["vulkan:99", "gpu:x", "tpu", ""] {
            let error = open(name).unwrap_err();
            assert!(matches!(error, DeviceError::NotFound { .. }), "{name}");
            assert!(error.to_string().contains("cpu"), "{error}");
        }
    }
}
