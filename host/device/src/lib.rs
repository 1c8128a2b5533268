//! Devices that run programs: native CPU kernels (`cpu`) and wgpu compute shaders (`gpu`), behind one interface.
//!
//! Never a silent fallback: whoever chooses a device is told which adapter runs, and asking for one that is not there
//! is an error.

#![deny(clippy::wildcard_enum_match_arm)]

pub mod backend;
mod cancel;
pub mod choose;
pub mod cpu;
pub mod error;
pub mod gpu;
mod half;
pub mod meter;
mod owner;
pub mod peak;
pub mod profile;
pub mod recorder;
mod renewable;
mod room;

pub use backend::{Backend, Buffer, DeviceInfo, Executable, Profiled, Ways};
pub use cancel::CancelToken;
pub use error::DeviceError;
pub use meter::{Counts, Meter};
pub use recorder::Recorder;
pub use renewable::Renewable;
pub use room::{MemoryControlGroup, available_host_bytes, check_host};
