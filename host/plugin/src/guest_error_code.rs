//! The codes of the errors that plugins return.

use crate::named_enum::named_enum;

named_enum! {
    /// The code of an error that a plugin returned, its own or one of the host's. Names are those of the WIT package.
    GuestErrorCode {
        /// An argument is invalid.
        InvalidArgument = "invalid-argument",
        /// The operation is not supported.
        Unsupported = "unsupported",
        /// A limit of memory or handles is reached.
        OutOfMemory = "out-of-memory",
        /// The device was lost.
        DeviceLost = "device-lost",
        /// The result of the call is no longer needed.
        Cancelled = "cancelled",
        /// A named thing does not exist.
        NotFound = "not-found",
        /// Something else failed.
        Internal = "internal",
    }
}
