//! The kinds of failures of plugins, from a closed set.

use crate::named_enum::named_enum;

named_enum! {
    /// The kind of a plugin's failure, for job records, metrics and public messages.
    FailureReason {
        /// The component can never run on this host.
        BadPlugin = "BAD_PLUGIN",
        /// The compiler reached a limit or crashed.
        CompileLimit = "COMPILE_LIMIT",
        /// No compile child or instance was free, or the server is stopping.
        Busy = "BUSY",
        /// The plugin trapped.
        Trap = "TRAP",
        /// The plugin exceeded its stack.
        StackOverflow = "STACK_OVERFLOW",
        /// A call took longer than its deadline.
        Deadline = "DEADLINE",
        /// The result of the call is no longer needed.
        Cancelled = "CANCELLED",
        /// The training made no host call for too long.
        Hung = "HUNG",
        /// The plugin needs more linear memory than its limit.
        MemoryLimit = "MEMORY_LIMIT",
        /// The plugin needs more table elements than its limit.
        TableLimit = "TABLE_LIMIT",
        /// The plugin holds more handles than its limit.
        HandleLimit = "HANDLE_LIMIT",
        /// The driver gave up the device.
        DeviceLost = "DEVICE_LOST",
        /// The device's memory is exhausted, or a limit on it.
        OutOfMemory = "OUT_OF_MEMORY",
        /// The plugin returned an error.
        PluginError = "PLUGIN_ERROR",
        /// The weights do not fit the plugin.
        BadWeights = "BAD_WEIGHTS",
        /// The plugin reported an invalid signature.
        BadSignature = "BAD_SIGNATURE",
        /// An output does not match the signature.
        BadOutput = "BAD_OUTPUT",
        /// An input does not match the signature.
        BadInput = "BAD_INPUT",
        /// The device refused or failed in another way.
        Device = "DEVICE",
        /// The job around the training refused or failed.
        Job = "JOB",
        /// A loss or a variable is infinite or not a number.
        NonFinite = "NON_FINITE",
        /// The processes of a data-parallel training have different states.
        RanksDiffer = "RANKS_DIFFER",
        /// A process of the training ended without a final event.
        WorkerLost = "WORKER_LOST",
        /// The engine or an instance could not be created.
        Engine = "ENGINE",
    }
}

impl FailureReason {
    /// Returns whether the plugin exceeded a limit of memory, the device's included.
    pub const fn is_memory_limit(self) -> bool {
        matches!(
            self,
            FailureReason::MemoryLimit
                | FailureReason::TableLimit
                | FailureReason::HandleLimit
                | FailureReason::OutOfMemory
        )
    }
}
