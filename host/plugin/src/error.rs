//! Errors of a plugin, its instances and calls into it.

use std::time::Duration;

use saggar_device::DeviceError;
use thiserror::Error;

use crate::failure_reason::FailureReason;
use crate::guest_error_code::GuestErrorCode;
use crate::limits::ERROR_TEXT_BYTES_MAX;

/// The version of the WIT package that this host implements.
pub const WIT_VERSION: &str = "0.1.0";

/// The reason why a plugin was refused or a call into it failed. Messages contain no host paths.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum PluginError {
    /// The bytes are not a WebAssembly component.
    #[error("not a WebAssembly component: {reason}")]
    NotComponent {
        /// What was found instead, and how to fix it.
        reason: String,
    },
    /// The component file is larger than the limit.
    #[error("the component has {bytes} bytes, and at most {limit_bytes} are accepted")]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit_bytes: usize,
    },
    /// Compiling the component would take too much work.
    #[error(
        "the component has {count} {what}, and at most {limit} are accepted: build it with optimization, as \
         `saggar build` does, or split it into several plugins"
    )]
    TooComplex {
        /// The items that exceed the limit.
        what: &'static str,
        /// Their number.
        count: u64,
        /// The limit.
        limit: u64,
    },
    /// Compiling or importing exceeded a limit.
    #[error("{what} takes more than {limit} to {purpose}: make it smaller or simpler")]
    CompileLimit {
        /// `the component`, `the file`, `the graph`.
        what: &'static str,
        /// `compile`, `import`.
        purpose: &'static str,
        /// The exceeded limit.
        limit: String,
    },
    /// Too many components and files are already waiting for a compile child.
    #[error(
        "{waiting} components and files already wait to be compiled or imported, which is the limit: try again later"
    )]
    CompilerBusy {
        /// The number of waiting requests.
        waiting: usize,
    },
    /// The server is stopping and accepts no compilations.
    #[error("the server is stopping and accepts no compilations")]
    CompilerStopped,
    /// A compile child ended without an answer.
    #[error("the compiler crashed on {what}: {reason}")]
    CompilerCrashed {
        /// `the component`, `the file`, `the graph`.
        what: &'static str,
        /// The exit status and last line of its standard error.
        reason: String,
    },
    /// The component does not parse or does not validate.
    #[error("the component is malformed: {reason}; it may have been cut off: build or copy it again")]
    Malformed {
        /// The validator's message.
        reason: String,
    },
    /// The component was built against another version of the plugin interface.
    #[error(
        "{interface} has version {found}, and this host speaks {WIT_VERSION}: {}build the plugin against \
         saggar:plugin@{WIT_VERSION}, whose worlds `saggar plugins worlds` lists",
        if is_newer(found) { "take a newer saggar, or " } else { "" }
    )]
    WitVersion {
        /// The interface.
        interface: String,
        /// The version it was built against.
        found: String,
    },
    /// The component has an import that the host never provides.
    #[error("the component imports {import}, which this host does not have: {hint}")]
    UnknownImport {
        /// The import's name.
        import: String,
        /// How to fix it.
        hint: &'static str,
    },
    /// The component has an import that is only provided to another kind of plugin.
    #[error("the component imports {import}, which only a plugin that exports a trainer or a step is given")]
    NotGranted {
        /// The import's name.
        import: String,
    },
    /// The component exports no trainer, no predictor and no step.
    #[error(
        "the component exports none of saggar:plugin/trainer@{WIT_VERSION}, saggar:plugin/predictor@{WIT_VERSION} and \
         saggar:plugin/step@{WIT_VERSION}; it exports {exports}"
    )]
    NoExports {
        /// The exports that it has.
        exports: String,
    },
    /// The component exports handlers of HTTP requests, and no model that they could work with.
    #[error(
        "the component exports saggar:plugin/http-handler without saggar:plugin/predictor, whose model its handlers \
         work with: export both"
    )]
    HandlerWithoutModel,
    /// The component exports both things that a job can run.
    #[error(
        "the component exports both saggar:plugin/trainer and saggar:plugin/step, and a job runs one of them: build two \
         plugins"
    )]
    TrainerAndStep,
    /// The component lacks the export for the requested call.
    #[error("the plugin has no {export}: it cannot {purpose}")]
    MissingExport {
        /// The interface's name.
        export: &'static str,
        /// The requested operation: `train`, `predict`.
        purpose: &'static str,
    },
    /// The type of an import or export differs from the interface's.
    #[error("the component does not fit saggar:plugin@{WIT_VERSION}: {reason}; build it against this version")]
    Incompatible {
        /// The item, and how its type differs.
        reason: String,
    },
    /// The plugin's code trapped. The instance is dropped.
    #[error("the plugin trapped in {during}: {reason}")]
    Trap {
        /// The call: `train`, `load`, `predict` and so on.
        during: &'static str,
        /// The trap, and the plugin's innermost functions if it has a name section.
        reason: String,
    },
    /// The plugin's code exceeded its stack. The instance is dropped.
    #[error("the plugin ran out of stack in {during}: {limit_bytes} bytes are given")]
    StackOverflow {
        /// The call.
        during: &'static str,
        /// The stack limit in bytes.
        limit_bytes: usize,
    },
    /// The plugin exceeded its deadline and was interrupted. The instance is dropped.
    #[error("the plugin was interrupted in {during} after {limit_ms} ms")]
    Deadline {
        /// The call.
        during: &'static str,
        /// The time limit in milliseconds.
        limit_ms: u64,
    },
    /// The plugin was interrupted, or returned the error `cancelled`, because its result is no longer needed. The
    /// instance is dropped if it was interrupted.
    #[error("the plugin was interrupted in {during}: its result is no longer needed")]
    Cancelled {
        /// The call.
        during: &'static str,
    },
    /// The training made no host call for too long and was interrupted.
    #[error("the plugin made no host call for {limit_ms} ms and was interrupted as hung")]
    Hung {
        /// The time limit in milliseconds.
        limit_ms: u64,
    },
    /// The plugin failed after a request for linear memory was refused.
    #[error("the plugin needs more memory than the {limit_bytes} bytes it is given ({during}): {reason}")]
    MemoryLimit {
        /// The call.
        during: &'static str,
        /// The limit on linear memory in bytes.
        limit_bytes: u64,
        /// How the plugin failed.
        reason: String,
    },
    /// The plugin failed after a request for table elements was refused.
    #[error("the plugin needs more table elements than the {limit} it is given ({during}): {reason}")]
    TableLimit {
        /// The call.
        during: &'static str,
        /// The limit on the elements of all its tables.
        limit: usize,
        /// How the plugin failed.
        reason: String,
    },
    /// The plugin failed after a request for a handle was refused.
    #[error("the plugin holds {limit} handles, which is the limit ({during}): {reason}")]
    HandleLimit {
        /// The call.
        during: &'static str,
        /// The limit, either on host resources or on the component's handles, which include its own resources'.
        limit: usize,
        /// How the plugin failed.
        reason: String,
    },
    /// The plugin returned an error, its own or one of the host's.
    #[error("{during}: {message} ({code}{})", place.as_deref().map(|place| format!(", at {place}")).unwrap_or_default())]
    Guest {
        /// The call.
        during: &'static str,
        /// The error code.
        code: GuestErrorCode,
        /// The error message.
        message: String,
        /// The label, file or field at fault.
        place: Option<String>,
    },
    /// The weights lack a tensor that the plugin declares, or have it with another shape or data type.
    #[error("weights: tensor `{name}`: the plugin declares {declared}, and the weights have {given}")]
    Weights {
        /// The tensor's name.
        name: String,
        /// The data type and shape that the plugin declares.
        declared: String,
        /// What the weights have in its place.
        given: String,
    },
    /// The plugin reported an invalid signature.
    #[error("the plugin's signature is not usable: {reason}")]
    BadSignature {
        /// What is wrong with the signature.
        reason: String,
    },
    /// An output of the plugin does not match its signature.
    #[error("output {name}: the signature promises {expected}, and the plugin gave {given}")]
    BadOutput {
        /// The output's name.
        name: String,
        /// What the signature promises.
        expected: String,
        /// What the plugin returned.
        given: String,
    },
    /// An output of a step does not match its declaration.
    #[error("output `{name}`: the plugin declares {expected}, and the step returned {given}")]
    StepOutput {
        /// The output's name.
        name: String,
        /// What the plugin declares.
        expected: String,
        /// What the step returned.
        given: String,
    },
    /// A response of the plugin's handler cannot be sent.
    #[error("the handler's response, {place}: expected {expected}, got {given}")]
    BadResponse {
        /// The part at fault: `status`, `body`, a header, or the number of responses.
        place: String,
        /// What the host accepts.
        expected: String,
        /// What the plugin returned.
        given: String,
    },
    /// An input of the request does not match the model's signature.
    #[error("input {name}: expected {expected}, got {given}")]
    BadInput {
        /// The input's name.
        name: String,
        /// What the signature requires.
        expected: String,
        /// What the request contained.
        given: String,
    },
    /// No instance became free in time.
    #[error("all {instances} instances of the model were busy for {waited:?}")]
    Busy {
        /// The number of instances.
        instances: usize,
        /// The time that the request waited.
        waited: Duration,
    },
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The job around the training refused or failed.
    #[error("{message}")]
    Job {
        /// The reason.
        message: String,
    },
    /// The loss or a variable of the training is infinite or NaN.
    #[error("{message}")]
    NonFinite {
        /// Which value, and since which step.
        message: String,
    },
    /// One of the processes of a data-parallel training has ended or is out of step.
    #[error("{message}")]
    Ranks {
        /// The kind of failure.
        reason: FailureReason,
        /// Which process, and what happened to it.
        message: String,
    },
    /// The engine or an instance could not be created.
    #[error("the plugin engine failed: {reason}")]
    Engine {
        /// The reason.
        reason: String,
    },
}

/// Returns whether a version is newer than [`WIT_VERSION`], so that a newer host could support it.
fn is_newer(found: &str) -> bool {
    let numbers = |version: &str| version.split('.').map(|part| part.parse::<u64>().ok()).collect::<Option<Vec<_>>>();
    numbers(found) > numbers(WIT_VERSION)
}

impl PluginError {
    /// Returns a failure of the job around a training, for implementers of [`crate::JobContext`].
    pub fn job(message: impl Into<String>) -> PluginError {
        PluginError::Job { message: message.into() }
    }

    pub(crate) fn engine(reason: impl ToString) -> PluginError {
        PluginError::Engine { reason: reason.to_string() }
    }

    pub(crate) fn signature(reason: impl Into<String>) -> PluginError {
        PluginError::BadSignature { reason: reason.into() }
    }

    /// Adds the last lines of the plugin's standard error to the reason of a trap.
    pub(crate) fn with_stderr(mut self, lines: &[String]) -> PluginError {
        if let PluginError::Trap { reason, .. } | PluginError::MemoryLimit { reason, .. } = &mut self
            && !lines.is_empty()
        {
            *reason = format!("{}; standard error ends with: {}", reason, lines.join("\n"));
            reason.truncate(reason.floor_char_boundary(ERROR_TEXT_BYTES_MAX));
        }
        self
    }

    /// Returns the kind of failure, for job records, metrics and public messages.
    pub fn reason(&self) -> FailureReason {
        match self {
            PluginError::NotComponent { .. }
            | PluginError::TooLarge { .. }
            | PluginError::TooComplex { .. }
            | PluginError::Malformed { .. }
            | PluginError::WitVersion { .. }
            | PluginError::UnknownImport { .. }
            | PluginError::NotGranted { .. }
            | PluginError::NoExports { .. }
            | PluginError::HandlerWithoutModel
            | PluginError::TrainerAndStep
            | PluginError::MissingExport { .. }
            | PluginError::Incompatible { .. } => FailureReason::BadPlugin,
            PluginError::CompileLimit { .. } | PluginError::CompilerCrashed { .. } => FailureReason::CompileLimit,
            PluginError::CompilerBusy { .. } | PluginError::CompilerStopped => FailureReason::Busy,
            PluginError::Trap { .. } => FailureReason::Trap,
            PluginError::StackOverflow { .. } => FailureReason::StackOverflow,
            PluginError::Deadline { .. } => FailureReason::Deadline,
            PluginError::Cancelled { .. } => FailureReason::Cancelled,
            PluginError::Hung { .. } => FailureReason::Hung,
            PluginError::MemoryLimit { .. } => FailureReason::MemoryLimit,
            PluginError::TableLimit { .. } => FailureReason::TableLimit,
            PluginError::HandleLimit { .. } => FailureReason::HandleLimit,
            PluginError::Guest { code, .. } => match code {
                GuestErrorCode::DeviceLost => FailureReason::DeviceLost,
                GuestErrorCode::OutOfMemory => FailureReason::OutOfMemory,
                GuestErrorCode::InvalidArgument
                | GuestErrorCode::Unsupported
                | GuestErrorCode::Cancelled
                | GuestErrorCode::NotFound
                | GuestErrorCode::Internal => FailureReason::PluginError,
            },
            PluginError::Weights { .. } => FailureReason::BadWeights,
            PluginError::BadSignature { .. } => FailureReason::BadSignature,
            PluginError::BadOutput { .. } | PluginError::BadResponse { .. } | PluginError::StepOutput { .. } => {
                FailureReason::BadOutput
            }
            PluginError::BadInput { .. } => FailureReason::BadInput,
            PluginError::Busy { .. } => FailureReason::Busy,
            PluginError::Device(DeviceError::Lost { .. }) => FailureReason::DeviceLost,
            PluginError::Device(DeviceError::OutOfMemory { .. } | DeviceError::InsufficientMemory { .. }) => {
                FailureReason::OutOfMemory
            }
            PluginError::Device(_) => FailureReason::Device,
            PluginError::Job { .. } => FailureReason::Job,
            PluginError::NonFinite { .. } => FailureReason::NonFinite,
            PluginError::Ranks { reason, .. } => *reason,
            PluginError::Engine { .. } => FailureReason::Engine,
        }
    }
}
