//! Which device a name means.
//!
//! `auto` prefers an adapter that is no processor and otherwise takes the native CPU kernels, which are faster than
//! shaders on a processor. A name that asks for an adapter gets one or an error, never something else.

use std::sync::Arc;

use crate::backend::{Backend, DeviceInfo};
use crate::error::DeviceError;
use crate::{cpu, gpu};

/// An opened device, and why it is this one.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The device.
    pub backend: Arc<dyn Backend>,
    /// For the log and the job record.
    pub reason: String,
}

/// What a device name asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Auto,
    Cpu,
    AnyAdapter,
    Adapter(usize),
}

fn parse(name: &str) -> Option<Wanted> {
    // Written otherwise (`+1`, `01`), one adapter would have several names.
    let index = |digits: &str| digits.parse().ok().filter(|index: &usize| index.to_string() == digits);
    match name.split_once(':') {
        None => match name {
            "auto" => Some(Wanted::Auto),
            "cpu" => Some(Wanted::Cpu),
            "gpu" => Some(Wanted::AnyAdapter),
            _ => None,
        },
        Some(("gpu" | "vulkan", digits)) => index(digits).map(Wanted::Adapter),
        Some(_) => None,
    }
}

/// Opens the device called `name`: `auto`, `cpu`, `gpu` (the first adapter that is no processor, else the first), or
/// `gpu:N`, which `vulkan:N` also means (an adapter by its place in [`list`]).
///
/// # Errors
/// `NotFound` for another name, or where there is no such adapter; `Lost` where its driver refuses; `Unsupported` where
/// the system starts no threads.
pub fn choose(name: &str) -> Result<Choice, DeviceError> {
    let unknown = || DeviceError::NotFound {
        name: name.to_owned(),
        reason: "a device is called auto, cpu, gpu, gpu:N or vulkan:N".to_owned(),
    };
    let wanted = parse(name).ok_or_else(unknown)?;
    let (backend, reason) = match wanted {
        Wanted::Cpu => (cpu::open(None)?, "asked for".to_owned()),
        Wanted::Adapter(index) => asked(index, name)?,
        Wanted::AnyAdapter => asked(preferred(&gpu::adapters()).unwrap_or(0), name)?,
        Wanted::Auto => automatic()?,
    };
    let info = backend.info();
    tracing::info!(device = info.name, adapter = info.adapter, driver = info.driver, reason, "device chosen");
    Ok(Choice { backend, reason })
}

/// As [`choose`], without the reason.
///
/// # Errors
/// As [`choose`].
pub fn open(name: &str) -> Result<Arc<dyn Backend>, DeviceError> {
    choose(name).map(|choice| choice.backend)
}

/// Every device of this machine: the processor, then adapters in the order of their numbers.
pub fn list() -> Vec<DeviceInfo> {
    let mut devices = vec![cpu::describe()];
    devices.extend(gpu::adapters());
    devices
}

fn asked(index: usize, name: &str) -> Result<(Arc<dyn Backend>, String), DeviceError> {
    let backend = gpu::open(index)?;
    let reason = match backend.info().software {
        true => format!("asked for as {name}; its shaders run on the processor, where the device cpu is faster"),
        false => format!("asked for as {name}"),
    };
    Ok((backend, reason))
}

fn automatic() -> Result<(Arc<dyn Backend>, String), DeviceError> {
    let adapters = gpu::adapters();
    let Some(index) = hardware(&adapters) else {
        let reason = match adapters.len() {
            0 => "no adapter with compute shaders".to_owned(),
            count => format!("all {count} adapters run shaders on the processor, where native kernels are faster"),
        };
        return Ok((cpu::open(None)?, reason));
    };
    Ok((gpu::open(index)?, "the first adapter that is no processor".to_owned()))
}

/// The first adapter that is no processor.
fn hardware(adapters: &[DeviceInfo]) -> Option<usize> {
    adapters.iter().position(|adapter| !adapter.software)
}

fn preferred(adapters: &[DeviceInfo]) -> Option<usize> {
    hardware(adapters).or(if adapters.is_empty() { None } else { Some(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_one_device() {
        let cases = [
            ("auto", Some(Wanted::Auto)),
            ("cpu", Some(Wanted::Cpu)),
            ("gpu", Some(Wanted::AnyAdapter)),
            ("gpu:0", Some(Wanted::Adapter(0))),
            ("vulkan:12", Some(Wanted::Adapter(12))),
            ("gpu:", None),
            ("gpu:+1", None),
            ("gpu:01", None),
            ("gpu:-1", None),
            ("cpu:0", None),
            ("cuda:0", None),
            ("", None),
            ("GPU", None),
        ];
        for (name, wanted) in cases {
            assert_eq!(parse(name), wanted, "{name}");
        }
    }

    #[test]
    fn the_processor_is_chosen_by_name_and_listed_first() {
        let choice = choose("cpu").unwrap();
        assert_eq!(choice.backend.info().name, "cpu");
        assert_eq!(list()[0], cpu::describe());
        assert!(matches!(open("tpu"), Err(DeviceError::NotFound { .. })));
        assert!(matches!(open("gpu:4096"), Err(DeviceError::NotFound { .. })));
    }

    #[test]
    fn auto_never_takes_shaders_on_a_processor() {
        let choice = choose("auto").unwrap();
        assert!(!choice.backend.info().software, "{}", choice.reason);
        assert!(!choice.reason.is_empty());
    }

    #[test]
    fn hardware_is_preferred() {
        let adapter = |name: &str, software| DeviceInfo { name: name.to_owned(), software, ..cpu::describe() };
        let (lavapipe, card) = (adapter("vulkan:0", true), adapter("vulkan:1", false));
        assert_eq!(preferred(&[lavapipe.clone(), card]), Some(1));
        assert_eq!(preferred(std::slice::from_ref(&lavapipe)), Some(0));
        assert_eq!(hardware(&[lavapipe]), None);
        assert_eq!(preferred(&[]), None);
    }
}
