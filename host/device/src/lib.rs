//! Devices that run programs: native CPU kernels (`cpu`) and wgpu compute shaders (`gpu`), behind one interface.
//!
//! There is no silent fallback. Selecting a device reports which adapter runs, and a device that does not exist is an
//! error.

#![deny(clippy::wildcard_enum_match_arm)]

pub mod backend;
mod cancel;
pub mod cpu;
pub mod error;
pub mod gpu;
mod half;
mod memory_budget;
pub mod meter;
pub mod null_backend;
mod owner_cache;
pub mod profile;
mod recoverable;
pub mod roofline;
pub mod select;

pub use backend::{Backend, DeviceBuffer, DeviceInfo, Executable, ProfiledOutputs, TuningRecords};
pub use cancel::CancelToken;
pub use error::DeviceError;
pub use memory_budget::{MemoryControlGroup, available_host_bytes, check_host_memory};
pub use meter::{DeviceCounters, Meter};
pub use null_backend::NullBackend;
pub use recoverable::RecoverableDevice;
