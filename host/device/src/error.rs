//! Errors of devices.

use thiserror::Error;

/// An error of a device.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The allocation would exceed the owner's limit. Nothing was allocated.
    #[error(
        "out of device memory: {asked_bytes} bytes needed, {} available ({used_bytes} of {limit_bytes} in use); use \
         smaller batches or a higher limit",
        limit_bytes.saturating_sub(*used_bytes)
    )]
    OutOfMemory {
        /// Bytes of the refused allocation.
        asked_bytes: u64,
        /// Bytes that the owner holds.
        used_bytes: u64,
        /// The owner's limit in bytes.
        limit_bytes: u64,
    },
    /// The machine does not have that much memory. Nothing was allocated.
    #[error(
        "insufficient memory: {what} needs {asked_bytes} bytes, and {device} has {available_bytes} available ({of}); \
         use smaller batches, a smaller model or more memory"
    )]
    InsufficientMemory {
        /// The device.
        device: String,
        /// The tensor or program that was to be allocated.
        what: String,
        /// Bytes that it needs.
        asked_bytes: u64,
        /// Bytes that are available.
        available_bytes: u64,
        /// The source of the limit: the file or setting that says how much is available.
        of: String,
    },
    /// The device cannot compute this. Refused when the program is loaded, and never replaced by another computation.
    #[error("{device} cannot run {kernel}: {reason}")]
    Unsupported {
        /// The device.
        device: String,
        /// The kernel's label.
        kernel: String,
        /// What is missing.
        reason: String,
    },
    /// There is no device of this name.
    #[error("no device {name}: {reason}")]
    NotFound {
        /// The requested name.
        name: String,
        /// The devices that were found instead, and a remedy.
        reason: String,
    },
    /// The driver gave the device up. This process cannot use it again.
    #[error("{device} was lost: {reason}")]
    Lost {
        /// The device.
        device: String,
        /// The driver's message.
        reason: String,
    },
    /// The work was cancelled. Variables that it was to write can be half written.
    #[error("the work was cancelled")]
    Cancelled,
    /// A tensor's type, shape or device differs from that of the program's port.
    #[error("{port}: expected {expected}, got {actual}")]
    Mismatch {
        /// The port's name.
        port: String,
        /// What the program expects.
        expected: String,
        /// What was passed.
        actual: String,
    },
}
