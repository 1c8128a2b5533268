//! What can be wrong with a plugin, its instance or a call into it.

use std::time::Duration;

use saggar_device::DeviceError;
use thiserror::Error;

/// The version of the WIT package that this host speaks.
pub const WIT_VERSION: &str = "0.1.0";

/// Why a plugin was refused, or a call into it failed. Messages hold no host paths.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum PluginError {
    /// The bytes are not a WebAssembly component.
    #[error("not a WebAssembly component: {reason}")]
    NotComponent {
        /// What was found instead, and what would help.
        reason: String,
    },
    /// The component file is larger than any may be.
    #[error("the component has {bytes} bytes, and at most {limit_bytes} are taken")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The component would take too much work to compile.
    #[error(
        "the component has {count} {what}, and at most {limit} are accepted: build it with optimization, as \
         `saggar build` does, or split it into several plugins"
    )]
    TooComplex {
        /// What there is too much of.
        what: &'static str,
        /// How much.
        count: u64,
        /// The limit.
        limit: u64,
    },
    /// Compiling or importing took more than it may.
    #[error("{what} takes more than {limit} to {purpose}: make it smaller or simpler")]
    CompileLimit {
        /// `the component`, `the file`, `the graph`.
        what: &'static str,
        /// `compile`, `import`.
        purpose: &'static str,
        /// How much it may take.
        limit: String,
    },
    /// Too many components and files wait for a compile child already.
    #[error("{waiting} components and files wait to be compiled or imported, the most that may: try again later")]
    CompilerBusy {
        /// How many.
        waiting: usize,
    },
    /// The server is stopping, and compiles nothing any more.
    #[error("the server is stopping and compiles nothing any more")]
    CompilerStopped,
    /// A compile child ended without an answer.
    #[error("the compiler crashed on {what}: {reason}")]
    CompilerCrashed {
        /// `the component`, `the file`, `the graph`.
        what: &'static str,
        /// How it ended.
        reason: String,
    },
    /// The component does not parse, or does not validate.
    #[error("the component is malformed: {reason}; it may have been cut off: build or copy it again")]
    Malformed {
        /// The validator's words.
        reason: String,
    },
    /// The component was built against another version of the plugin interface.
    #[error(
        "{interface} has version {found}, and this host speaks {WIT_VERSION}: {}build the plugin against \
         saggar:plugin@{WIT_VERSION}, whose worlds `saggar env ls` lists",
        if is_newer(found) { "take a newer saggar, or " } else { "" }
    )]
    WitVersion {
        /// The interface.
        interface: String,
        /// The version it was built against.
        found: String,
    },
    /// The component wants something that no plugin is given.
    #[error("the component imports {import}, which this host does not have: {hint}")]
    UnknownImport {
        /// The import's name.
        import: String,
        /// What would help.
        hint: &'static str,
    },
    /// The component wants something that its kind of plugin is not given.
    #[error("the component imports {import}, which only a plugin that exports a trainer is given")]
    NotGranted {
        /// The import's name.
        import: String,
    },
    /// The component exports neither half of the plugin interface.
    #[error(
        "the component exports neither saggar:plugin/trainer@{WIT_VERSION} nor saggar:plugin/predictor@{WIT_VERSION}; \
         it exports {exports}"
    )]
    NoExports {
        /// What it exports.
        exports: String,
    },
    /// The component was asked to do what it has no export for.
    #[error("the plugin has no {export}: it cannot {purpose}")]
    MissingExport {
        /// The interface's name.
        export: &'static str,
        /// What was asked: `train`, `predict`.
        purpose: &'static str,
    },
    /// An import or export has another type than the interface gives it.
    #[error(
        "the component does not fit saggar:plugin@{WIT_VERSION}: {reason}; build it against the interface as it is"
    )]
    Incompatible {
        /// Which item, and how its type differs.
        reason: String,
    },
    /// The plugin's code trapped. The instance is gone.
    #[error("the plugin trapped in {during}: {reason}")]
    Trap {
        /// The call: `train`, `load`, `predict` ...
        during: &'static str,
        /// The trap, and the plugin's innermost functions where it names them.
        reason: String,
    },
    /// The plugin's code ran too deep. The instance is gone.
    #[error("the plugin ran out of stack in {during}: {limit_bytes} bytes are given")]
    StackOverflow {
        /// The call.
        during: &'static str,
        /// The limit.
        limit_bytes: usize,
    },
    /// The plugin did not finish in time and was interrupted. The instance is gone.
    #[error("the plugin was interrupted in {during} after {limit_ms} ms")]
    Deadline {
        /// The call.
        during: &'static str,
        /// The limit.
        limit_ms: u64,
    },
    /// The plugin was interrupted, or gave up when it was told, because nobody waits for what it computes. Where it was
    /// interrupted the instance is gone.
    #[error("the plugin was interrupted in {during}: nobody waits for it any more")]
    Cancelled {
        /// The call.
        during: &'static str,
    },
    /// The training did nothing but compute by itself for too long, and was interrupted.
    #[error("the plugin asked nothing of the host for {limit_ms} ms and was interrupted as hung")]
    Hung {
        /// The limit.
        limit_ms: u64,
    },
    /// The plugin failed after it was refused linear memory.
    #[error("the plugin needs more memory than the {limit_bytes} bytes it is given ({during}): {reason}")]
    MemoryLimit {
        /// The call.
        during: &'static str,
        /// The limit on linear memory.
        limit_bytes: u64,
        /// How it failed.
        reason: String,
    },
    /// The plugin failed after it was refused table elements.
    #[error("the plugin needs more table elements than the {limit} it is given ({during}): {reason}")]
    TableLimit {
        /// The call.
        during: &'static str,
        /// The limit on the elements of all its tables.
        limit: usize,
        /// How it failed.
        reason: String,
    },
    /// The plugin failed after it was refused another handle.
    #[error("the plugin holds {limit} handles, the most it may ({during}): {reason}")]
    HandleLimit {
        /// The call.
        during: &'static str,
        /// The limit: of the host's resources, or of the component's handles, its own resources' among them.
        limit: usize,
        /// How it failed.
        reason: String,
    },
    /// The plugin answered with an error of its own or passed one of the host's on.
    #[error("{during}: {message} ({code}{})", place.as_deref().map(|place| format!(", at {place}")).unwrap_or_default())]
    Guest {
        /// The call.
        during: &'static str,
        /// WIT name of the error's code.
        code: &'static str,
        /// Its message.
        message: String,
        /// The label, file or field at fault.
        place: Option<String>,
    },
    /// The plugin describes itself in a way that makes no sense.
    #[error("the plugin's signature is not usable: {reason}")]
    BadSignature {
        /// What is wrong with it.
        reason: String,
    },
    /// The plugin answered something that its signature does not promise.
    #[error("output {name}: the signature promises {expected}, and the plugin gave {given}")]
    BadOutput {
        /// The output's name.
        name: String,
        /// What the signature says.
        expected: String,
        /// What came.
        given: String,
    },
    /// The request does not fit the plugin's signature.
    #[error("input {name}: expected {expected}, got {given}")]
    BadInput {
        /// The input's name.
        name: String,
        /// What the signature says.
        expected: String,
        /// What came.
        given: String,
    },
    /// No instance became free in time.
    #[error("all {instances} instances of the model were busy for {waited:?}")]
    Busy {
        /// How many there are.
        instances: usize,
        /// How long the request waited.
        waited: Duration,
    },
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The job that a training runs in refused or failed.
    #[error("{message}")]
    Job {
        /// Why.
        message: String,
    },
    /// A training's loss or variables are infinite or not a number.
    #[error("{message}")]
    NonFinite {
        /// Which, and since when.
        message: String,
    },
    /// One of the processes that train one model together is gone, or does something else.
    #[error("{message}")]
    Ranks {
        /// The kind of failure, from a closed set of the job's.
        reason: &'static str,
        /// Which process, and what became of it.
        message: String,
    },
    /// A watcher of the models directory could not be started.
    #[error("the models directory cannot be watched: {reason}")]
    Watch {
        /// The system's words.
        reason: String,
    },
    /// The engine could not be set up, or an instance could not be made.
    #[error("the plugin engine failed: {reason}")]
    Engine {
        /// Why.
        reason: String,
    },
}

/// Whether a version is one that this host may speak once it is newer.
fn is_newer(found: &str) -> bool {
    let numbers = |version: &str| version.split('.').map(|part| part.parse::<u64>().ok()).collect::<Option<Vec<_>>>();
    numbers(found) > numbers(WIT_VERSION)
}

impl PluginError {
    /// A failure of the job around a training: for implementers of [`crate::JobContext`].
    pub fn job(message: impl Into<String>) -> PluginError {
        PluginError::Job { message: message.into() }
    }

    pub(crate) fn engine(reason: impl ToString) -> PluginError {
        PluginError::Engine { reason: reason.to_string() }
    }

    pub(crate) fn signature(reason: impl Into<String>) -> PluginError {
        PluginError::BadSignature { reason: reason.into() }
    }

    /// The kind of failure, from a closed set: for job records, metrics and public messages.
    pub fn reason(&self) -> &'static str {
        match self {
            PluginError::NotComponent { .. }
            | PluginError::TooLarge { .. }
            | PluginError::TooComplex { .. }
            | PluginError::Malformed { .. }
            | PluginError::WitVersion { .. }
            | PluginError::UnknownImport { .. }
            | PluginError::NotGranted { .. }
            | PluginError::NoExports { .. }
            | PluginError::MissingExport { .. }
            | PluginError::Incompatible { .. } => "BAD_PLUGIN",
            PluginError::CompileLimit { .. } | PluginError::CompilerCrashed { .. } => "COMPILE_LIMIT",
            PluginError::CompilerBusy { .. } | PluginError::CompilerStopped => "BUSY",
            PluginError::Trap { .. } => "TRAP",
            PluginError::StackOverflow { .. } => "STACK_OVERFLOW",
            PluginError::Deadline { .. } => "DEADLINE",
            PluginError::Cancelled { .. } => "CANCELLED",
            PluginError::Hung { .. } => "HUNG",
            PluginError::MemoryLimit { .. } => "MEMORY_LIMIT",
            PluginError::TableLimit { .. } => "TABLE_LIMIT",
            PluginError::HandleLimit { .. } => "HANDLE_LIMIT",
            PluginError::Guest { code, .. } => match *code {
                "device-lost" => "DEVICE_LOST",
                "out-of-memory" => "OUT_OF_MEMORY",
                _ => "PLUGIN_ERROR",
            },
            PluginError::BadSignature { .. } => "BAD_SIGNATURE",
            PluginError::BadOutput { .. } => "BAD_OUTPUT",
            PluginError::BadInput { .. } => "BAD_INPUT",
            PluginError::Busy { .. } => "BUSY",
            PluginError::Device(DeviceError::Lost { .. }) => "DEVICE_LOST",
            PluginError::Device(DeviceError::OutOfMemory { .. } | DeviceError::InsufficientMemory { .. }) => {
                "OUT_OF_MEMORY"
            }
            PluginError::Device(_) => "DEVICE",
            PluginError::Job { .. } => "JOB",
            PluginError::NonFinite { .. } => "NON_FINITE",
            PluginError::Ranks { reason, .. } => reason,
            PluginError::Watch { .. } => "WATCH",
            PluginError::Engine { .. } => "ENGINE",
        }
    }
}
