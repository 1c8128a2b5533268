//! What can go wrong on a device.

use thiserror::Error;

/// Why a device did not do what it was asked.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The owner's limit would be passed; nothing was allocated.
    #[error(
        "out of device memory: {asked_bytes} bytes wanted, {} available, for {used_bytes} of {limit_bytes} are in use; \
         smaller batches or a higher limit would do",
        limit_bytes.saturating_sub(*used_bytes)
    )]
    OutOfMemory {
        /// Bytes of the allocation that was refused.
        asked_bytes: u64,
        /// Bytes the owner holds.
        used_bytes: u64,
        /// Bytes the owner may hold.
        limit_bytes: u64,
    },
    /// The machine has not that much memory; nothing was allocated.
    #[error(
        "no room: {what} wants {asked_bytes} bytes, and {device} has {available_bytes} available ({of}); smaller batches, a \
         smaller model or more memory would do"
    )]
    InsufficientMemory {
        /// The device.
        device: String,
        /// The tensor or the program.
        what: String,
        /// Bytes that it takes.
        asked_bytes: u64,
        /// Bytes that are left.
        available_bytes: u64,
        /// What says that no more are left.
        of: String,
    },
    /// The device has no way to compute this; refused when the program is loaded, never computed as something else.
    #[error("{device} cannot run {kernel}: {reason}")]
    Unsupported {
        /// The device.
        device: String,
        /// The kernel's label.
        kernel: String,
        /// What is missing.
        reason: String,
    },
    /// No device of that name is there.
    #[error("no device {name}: {reason}")]
    NotFound {
        /// What was asked for.
        name: String,
        /// What was found instead, and what would help.
        reason: String,
    },
    /// The driver gave the device up; this process cannot use it again.
    #[error("{device} was lost: {reason}")]
    Lost {
        /// The device.
        device: String,
        /// The driver's words.
        reason: String,
    },
    /// Whoever asked for the work gave it up; variables that it was to write may be half written.
    #[error("the work was given up before its end")]
    Cancelled,
    /// A tensor of another type, shape or device than the program's port.
    #[error("{port}: expected {expected}, got {actual}")]
    Mismatch {
        /// The port's name.
        port: String,
        /// What the program takes.
        expected: String,
        /// What it was given.
        actual: String,
    },
}
