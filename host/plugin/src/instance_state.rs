//! What a plugin's instance is surrounded by: its handles, its device account, its limits and its clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_device::{Backend, CancelToken, DeviceError, Meter};
use thiserror::Error;
use wasmtime::component::{Resource, ResourceTable};
use wasmtime::{Engine, PoolConcurrencyLimitError, ResourceLimiter, Store, Trap, UpdateDeadline, WasmBacktrace};

use crate::bindings::tensors::{Error as WitError, ErrorCode};
use crate::compiler::CompilerMode;
use crate::convert::code_name;
use crate::error::PluginError;
use crate::graphs::{ExecutableCache, PluginGraphBuilder};
use crate::host_error::{HostError, wit_device_error};
use crate::job::TrainRole;
use crate::limits::{
    CALL_BYTES_MAX, COMPONENT_HANDLES_MAX, CORE_INSTANCES_MAX, ERROR_TEXT_BYTES_MAX, HANDLES_MAX, HOST_BYTES_MAX,
    STACK_BYTES_MAX, TABLE_ELEMENTS_MAX,
};
use crate::logging::LogBudget;
use crate::streaming::StreamingReply;
use crate::variables::DeviceWeights;

/// What an instance may do, and for whom.
pub(crate) enum InstanceRole {
    /// It trains, inside a job.
    Train(Box<TrainRole>),
    /// It predicts. It has no job and no datasets, although its component may import them.
    Predict {
        /// For the log.
        plugin: Arc<str>,
        /// The prediction that is being computed; none while it loads, or imports.
        reply: Option<StreamingReply>,
    },
}

/// Everything that host functions of one instance work on.
pub(crate) struct InstanceState {
    pub(crate) table: ResourceTable,
    pub(crate) backend: Arc<dyn Backend>,
    /// Charged with the instance's tensors, variables and programs.
    pub(crate) meter: Meter,
    /// Charged with constants and graphs that are being built, in host memory.
    pub(crate) host_meter: Meter,
    /// Graphs being built, by the number their handles carry.
    pub(crate) builders: BTreeMap<u64, PluginGraphBuilder>,
    pub(crate) builders_made: u64,
    /// Programs that instances of one model version share.
    pub(crate) executables: Option<Arc<ExecutableCache>>,
    /// Where large graphs are compiled.
    pub(crate) compiler: CompilerMode,
    /// The weights that the call computes with, where its variables are such.
    pub(crate) weights: Option<Arc<DeviceWeights>>,
    /// Whether anything outlives a call that depends on its weights: the plugin read some, or computed with them while it
    /// loaded. Such an instance cannot go on with others.
    pub(crate) weights_read: bool,
    pub(crate) logs: LogBudget,
    pub(crate) role: InstanceRole,
    pub(crate) limiter: InstanceLimiter,
}

/// The limits of an instance, and which of them it ran into since the call began.
#[derive(Debug)]
pub(crate) struct InstanceLimiter {
    memory_bytes_max: u64,
    memory_bytes: u64,
    table_elements: usize,
    memory_refused: bool,
    tables_refused: bool,
    handles_refused: bool,
    /// The device's error that the plugin was told last.
    device_error: Option<DeviceError>,
    /// The job's error that the plugin was told last.
    job_error: Option<PluginError>,
    clock: CallClock,
    /// Says when nobody waits for the call any more. Asked at every dispatch and every few milliseconds between.
    cancel: Option<CancelToken>,
    /// Says when both of them end the call, to work of the host that may take long.
    token: CancelToken,
}

impl InstanceLimiter {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// Whether the call may go on, whatever it does.
    fn check_call(&self) -> Result<(), CallInterrupted> {
        if self.is_cancelled() {
            return Err(CallInterrupted::Cancelled);
        }
        self.clock.check_call()
    }

    /// Whether the plugin's own code may go on.
    fn check_plugin_code(&self) -> Result<(), CallInterrupted> {
        self.check_call()?;
        self.clock.check_watchdog()
    }

    /// To be called when the clock or who may cancel has changed.
    fn renew_token(&mut self) {
        self.token = self.clock.cancel_token(self.cancel.clone());
    }
}

/// When the instance is interrupted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallClock {
    /// When the call began.
    began: Instant,
    /// The whole call must be over after this.
    limit: Option<Duration>,
    /// The plugin must ask something of the host at least this often.
    watchdog_timeout: Option<Duration>,
    /// When it last did.
    last_host_call: Instant,
}

/// Why the clock interrupted an instance.
#[derive(Clone, Copy, Debug, Error)]
pub(crate) enum CallInterrupted {
    #[error("deadline passed")]
    Deadline { limit: Duration },
    #[error("hung")]
    Hung { limit: Duration },
    #[error("told to stop, and went on")]
    Stopped,
    #[error("nobody waits for it any more")]
    Cancelled,
}

impl CallClock {
    pub(crate) fn new(limit: Option<Duration>, quiet: Option<Duration>) -> CallClock {
        let now = Instant::now();
        CallClock { began: now, limit, watchdog_timeout: quiet, last_host_call: now }
    }

    fn check_call(&self) -> Result<(), CallInterrupted> {
        match self.limit.filter(|&limit| self.began.elapsed() >= limit) {
            Some(limit) => Err(CallInterrupted::Deadline { limit }),
            None => Ok(()),
        }
    }

    fn check_watchdog(&self) -> Result<(), CallInterrupted> {
        match self.watchdog_timeout.filter(|&quiet| self.last_host_call.elapsed() >= quiet) {
            Some(limit) => Err(CallInterrupted::Hung { limit }),
            None => Ok(()),
        }
    }

    /// Cancels work of the host once the call is over, or cancelled. Not for a plugin that asks nothing: it has asked for
    /// this.
    pub(crate) fn cancel_token(self, cancel: Option<CancelToken>) -> CancelToken {
        if self.limit.is_none() && cancel.is_none() {
            return CancelToken::never();
        }
        CancelToken::new(move || self.check_call().is_err() || cancel.as_ref().is_some_and(CancelToken::is_cancelled))
    }
}

impl InstanceState {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        meter: Meter,
        memory_bytes_max: u64,
        role: InstanceRole,
    ) -> InstanceState {
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES_MAX);
        InstanceState {
            table,
            backend,
            meter,
            host_meter: Meter::new(HOST_BYTES_MAX),
            builders: BTreeMap::new(),
            builders_made: 0,
            executables: None,
            compiler: CompilerMode::InProcess,
            weights: None,
            weights_read: false,
            logs: LogBudget::default(),
            role,
            limiter: InstanceLimiter {
                memory_bytes_max,
                memory_bytes: 0,
                table_elements: 0,
                memory_refused: false,
                tables_refused: false,
                handles_refused: false,
                device_error: None,
                job_error: None,
                clock: CallClock::new(None, None),
                cancel: None,
                token: CancelToken::never(),
            },
        }
    }

    /// A store around this state, with every limit of the engine set.
    pub(crate) fn into_store(self, engine: &Engine) -> Store<InstanceState> {
        let mut store = Store::new(engine, self);
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(CALL_BYTES_MAX);
        store.set_max_component_handles(COMPONENT_HANDLES_MAX);
        store.epoch_deadline_callback(|store| {
            store.data().limiter.check_plugin_code()?;
            Ok(UpdateDeadline::Continue(1))
        });
        store.set_epoch_deadline(1);
        store
    }

    /// Forgets what earlier calls ran into, and starts the clock of the next.
    pub(crate) fn begin_call(&mut self, clock: CallClock) {
        self.limiter.memory_refused = false;
        self.limiter.tables_refused = false;
        self.limiter.handles_refused = false;
        self.limiter.device_error = None;
        self.limiter.job_error = None;
        self.limiter.clock = clock;
        self.limiter.cancel = None;
        self.limiter.renew_token();
    }

    /// Says who may end the call that has begun.
    pub(crate) fn set_cancel_token(&mut self, cancel: Option<CancelToken>) {
        self.limiter.cancel = cancel;
        self.limiter.renew_token();
    }

    /// To be asked by every host function that may take more than a millisecond, before its work and between the parts of it.
    ///
    /// # Errors
    /// A trap, which no plugin can catch, if the call's time is over or nobody waits for it any more.
    pub(crate) fn check_deadline(&self) -> Result<(), HostError> {
        self.limiter.check_call().map_err(|interrupted| HostError::Trap(interrupted.into()))
    }

    /// The same for the device's work, and the compiler's.
    pub(crate) fn cancel_token(&self) -> &CancelToken {
        &self.limiter.token
    }

    /// Whether a prediction is being computed, and nothing else.
    pub(crate) fn is_predicting(&self) -> bool {
        matches!(self.role, InstanceRole::Predict { reply: Some(_), .. })
    }

    /// The plugin did something other than compute by itself.
    pub(crate) fn record_host_call(&mut self) {
        self.limiter.clock.last_host_call = Instant::now();
    }

    /// The plugin was told to return: it has this long.
    pub(crate) fn set_stop_grace(&mut self, grace: Duration) {
        let clock = &mut self.limiter.clock;
        let latest = clock.began.elapsed() + grace;
        clock.limit = Some(clock.limit.map_or(latest, |limit| limit.min(latest)));
        self.limiter.renew_token();
    }

    /// Hands an object to the plugin.
    pub(crate) fn push<T: Send + 'static>(&mut self, entry: T) -> Result<Resource<T>, HostError> {
        self.record_host_call();
        Ok(self.table.push(entry)?)
    }

    /// What the plugin is told of a fault; the guard remembers those that explain a later failure.
    pub(crate) fn to_wit_error(&mut self, fault: HostError) -> wasmtime::Result<WitError> {
        match fault {
            HostError::Answer(error) => Ok(error),
            // Whoever cancelled is asked why; it stays so.
            HostError::Device(DeviceError::Cancelled) => {
                Err(self.limiter.check_call().err().unwrap_or(CallInterrupted::Cancelled).into())
            }
            HostError::Device(error) => {
                let answer = wit_device_error(&error);
                self.limiter.device_error = Some(error);
                Ok(answer)
            }
            HostError::Job(error) => {
                let answer = WitError { code: ErrorCode::Internal, message: error.to_string(), place: None };
                self.limiter.job_error = Some(error);
                Ok(answer)
            }
            HostError::HandlesFull => {
                self.limiter.handles_refused = true;
                let message = format!(
                    "{HANDLES_MAX} handles are in use, the most a plugin may hold; drop some before making more"
                );
                Ok(WitError { code: ErrorCode::OutOfMemory, message, place: None })
            }
            HostError::Trap(error) => Err(error),
        }
    }

    /// The error that the plugin answered to a call. What is too long of it is cut.
    pub(crate) fn guest_error(&mut self, during: &'static str, mut error: WitError) -> PluginError {
        // What the plugin passes on, perhaps in other words, is the host's error where the device or the job caused it.
        if let Some(error @ DeviceError::Lost { .. }) = &self.limiter.device_error {
            return PluginError::Device(error.clone());
        }
        if let Some(cause) = self.limiter.job_error.take_if(|cause| error.message.contains(&cause.to_string())) {
            return cause;
        }
        for text in [Some(&mut error.message), error.place.as_mut()].into_iter().flatten() {
            text.truncate(text.floor_char_boundary(ERROR_TEXT_BYTES_MAX));
        }
        let reason = format!("{} ({})", error.message, code_name(error.code));
        self.limit_error(during, reason).unwrap_or_else(|| PluginError::Guest {
            during,
            code: code_name(error.code),
            message: error.message,
            place: error.place,
        })
    }

    /// Why a call trapped.
    pub(crate) fn trap_error(&mut self, during: &'static str, error: &wasmtime::Error) -> PluginError {
        if let Some(interrupted) = error.downcast_ref::<CallInterrupted>() {
            return match *interrupted {
                CallInterrupted::Deadline { limit } => PluginError::Deadline { during, limit_ms: millis(limit) },
                CallInterrupted::Hung { limit } => PluginError::Hung { limit_ms: millis(limit) },
                CallInterrupted::Cancelled => PluginError::Cancelled { during },
                CallInterrupted::Stopped => PluginError::Trap { during, reason: interrupted.to_string() },
            };
        }
        if error.downcast_ref::<PoolConcurrencyLimitError>().is_some() {
            return PluginError::engine("too many instances of plugins at a time");
        }
        let trap = error.downcast_ref::<Trap>();
        if trap == Some(&Trap::StackOverflow) {
            return PluginError::StackOverflow { during, limit_bytes: STACK_BYTES_MAX };
        }
        if let Some(error @ DeviceError::Lost { .. }) = &self.limiter.device_error {
            return PluginError::Device(error.clone());
        }
        let reason = match trap {
            Some(Trap::MemoryOutOfBounds) => {
                // A Rust plugin's own stack lies at the bottom of its memory.
                format!(
                    "{}; recursion that is too deep ends like this{}",
                    Trap::MemoryOutOfBounds,
                    format_frames(error)
                )
            }
            Some(trap) => format!("{trap}{}", format_frames(error)),
            None => format!("{}{}", error.root_cause(), format_frames(error)),
        };
        if is_handle_limit(error) {
            return PluginError::HandleLimit { during, limit: COMPONENT_HANDLES_MAX, reason };
        }
        self.limit_error(during, reason.clone()).unwrap_or(PluginError::Trap { during, reason })
    }

    fn limit_error(&self, during: &'static str, reason: String) -> Option<PluginError> {
        if self.limiter.memory_refused {
            return Some(PluginError::MemoryLimit { during, limit_bytes: self.limiter.memory_bytes_max, reason });
        }
        if self.limiter.tables_refused {
            return Some(PluginError::TableLimit { during, limit: TABLE_ELEMENTS_MAX, reason });
        }
        self.limiter.handles_refused.then_some(PluginError::HandleLimit { during, limit: HANDLES_MAX, reason })
    }
}

/// Whether the engine refused another handle. It has no type for that, only these words.
fn is_handle_limit(error: &wasmtime::Error) -> bool {
    error.root_cause().to_string().contains("store handle limit exceeded")
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The plugin's innermost functions when it trapped, as far as it names them.
fn format_frames(error: &wasmtime::Error) -> String {
    const FRAMES: usize = 6;
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return String::new() };
    let names: Vec<&str> = backtrace.frames().iter().filter_map(|frame| frame.func_name()).take(FRAMES).collect();
    if names.is_empty() { String::new() } else { format!(" in {}", names.join(" < ")) }
}

impl ResourceLimiter for InstanceLimiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        // Other refusals are the plugin's own maximum.
        let total = self.memory_bytes.saturating_add(desired.saturating_sub(current) as u64);
        if total > self.memory_bytes_max {
            self.memory_refused = true;
            return Ok(false);
        }
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        self.memory_bytes = total;
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let total = self.table_elements.saturating_add(desired.saturating_sub(current));
        if total > TABLE_ELEMENTS_MAX {
            self.tables_refused = true;
            return Ok(false);
        }
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        self.table_elements = total;
        Ok(true)
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES_MAX as usize
    }

    fn tables(&self) -> usize {
        CORE_INSTANCES_MAX as usize
    }

    fn memories(&self) -> usize {
        CORE_INSTANCES_MAX as usize
    }
}
