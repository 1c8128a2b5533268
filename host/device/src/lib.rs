//! The interface of devices that run compiled programs, and what their implementations share: memory budgets and meters,
//! cancellation, 16-bit floats, and a device that computes nothing.
//!
//! The implementations are crates: `saggar-cpu` runs native kernels, `saggar-gpu` wgpu compute shaders. `saggar-devices` lists
//! them and opens a device by name.

#![deny(clippy::wildcard_enum_match_arm)]

pub mod backend;
pub mod cancel;
pub mod driver;
pub mod error;
pub mod half;
pub mod memory_budget;
pub mod meter;
pub mod null_backend;
pub mod owner_cache;
pub mod profile;
mod reduced_backend;
pub mod roofline;

pub use backend::{Backend, DeviceBuffer, DeviceInfo, Executable, ProfiledOutputs, TuningRecords};
pub use cancel::CancelToken;
pub use driver::{DeviceDriver, DeviceUsage};
pub use error::DeviceError;
pub use memory_budget::{MemoryControlGroup, available_host_bytes, check_host_memory};
pub use meter::{DeviceCounters, Meter};
pub use null_backend::NullBackend;
pub use reduced_backend::without_optimizations;
