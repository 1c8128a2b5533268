//! The host's state of a plugin instance: its handles, meters, limits and clock.

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

/// The purpose of an instance, which decides which interfaces it can use.
pub(crate) enum InstanceRole {
    /// Trains inside a job.
    Train(Box<TrainRole>),
    /// Predicts. It has no job and no datasets, although its component can import those interfaces.
    Predict {
        /// The plugin's name in the log.
        plugin: Arc<str>,
        /// The running prediction; `None` while the plugin loads or imports.
        reply: Option<StreamingReply>,
    },
}

/// The state that the host functions of one instance work on.
pub(crate) struct InstanceState {
    pub(crate) table: ResourceTable,
    pub(crate) backend: Arc<dyn Backend>,
    /// The meter charged with the instance's tensors, variables and programs on the device.
    pub(crate) meter: Meter,
    /// The meter charged with constants and graphs being built, in host memory.
    pub(crate) host_meter: Meter,
    /// Graphs being built, by the id in their handles.
    pub(crate) builders: BTreeMap<u64, PluginGraphBuilder>,
    pub(crate) builders_made: u64,
    /// The cache of programs that instances of one model version share.
    pub(crate) executables: Option<Arc<ExecutableCache>>,
    /// Where large graphs are compiled.
    pub(crate) compiler: CompilerMode,
    /// The weights of the current call, if its variables take their elements from the call.
    pub(crate) weights: Option<Arc<DeviceWeights>>,
    /// Whether state that outlives a call depends on its weights: the plugin has read some, or computed with them while
    /// it loaded. Such an instance cannot be used with other weights.
    pub(crate) weights_read: bool,
    pub(crate) logs: LogBudget,
    pub(crate) role: InstanceRole,
    pub(crate) limiter: InstanceLimiter,
}

/// The limits of an instance, and which of them it exceeded since the call began.
#[derive(Debug)]
pub(crate) struct InstanceLimiter {
    memory_bytes_max: u64,
    memory_bytes: u64,
    table_elements: usize,
    memory_refused: bool,
    tables_refused: bool,
    handles_refused: bool,
    /// The last device error that was returned to the plugin.
    device_error: Option<DeviceError>,
    /// The last job error that was returned to the plugin.
    job_error: Option<PluginError>,
    clock: CallClock,
    /// Cancelled when the result of the call is no longer needed. Checked at every dispatch and every few milliseconds
    /// in between.
    cancel: Option<CancelToken>,
    /// Cancelled when the clock or `cancel` ends the call; for long work of the host.
    token: CancelToken,
}

impl InstanceLimiter {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// Returns an error if the call is over, whatever it is doing.
    fn check_call(&self) -> Result<(), CallInterrupted> {
        if self.is_cancelled() {
            return Err(CallInterrupted::Cancelled);
        }
        self.clock.check_call()
    }

    /// Returns an error if the plugin's own code must be interrupted.
    fn check_plugin_code(&self) -> Result<(), CallInterrupted> {
        self.check_call()?;
        self.clock.check_watchdog()
    }

    /// Must be called when the clock or the cancel token has changed.
    fn renew_token(&mut self) {
        self.token = self.clock.cancel_token(self.cancel.clone());
    }
}

/// The deadlines of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallClock {
    /// When the call began.
    began: Instant,
    /// Time limit of the whole call.
    limit: Option<Duration>,
    /// Maximum time between two host calls that show progress.
    watchdog_timeout: Option<Duration>,
    /// Time of the last such host call.
    last_host_call: Instant,
}

/// The reason why an instance was interrupted.
#[derive(Clone, Copy, Debug, Error)]
pub(crate) enum CallInterrupted {
    #[error("deadline passed")]
    Deadline { limit: Duration },
    #[error("hung")]
    Hung { limit: Duration },
    #[error("it continued after it was asked to stop")]
    Stopped,
    #[error("its result is no longer needed")]
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

    /// Returns a token that cancels work of the host once the call is over or cancelled. The watchdog does not apply:
    /// the plugin has made a host call.
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

    /// Creates a store for this state, with all limits of the engine.
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

    /// Resets what earlier calls recorded, and starts the clock of the next call.
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

    /// Sets the token that can cancel the current call.
    pub(crate) fn set_cancel_token(&mut self, cancel: Option<CancelToken>) {
        self.limiter.cancel = cancel;
        self.limiter.renew_token();
    }

    /// Must be called by every host function that can take more than a millisecond, before its work and between parts
    /// of it.
    ///
    /// # Errors
    /// Traps, which a plugin cannot catch, if the call's time is over or the call is cancelled.
    pub(crate) fn check_deadline(&self) -> Result<(), HostError> {
        self.limiter.check_call().map_err(|interrupted| HostError::Trap(interrupted.into()))
    }

    /// Returns the same condition as a token, for the device's and the compiler's work.
    pub(crate) fn cancel_token(&self) -> &CancelToken {
        &self.limiter.token
    }

    /// Returns whether a prediction is running, as opposed to loading or importing.
    pub(crate) fn is_predicting(&self) -> bool {
        matches!(self.role, InstanceRole::Predict { reply: Some(_), .. })
    }

    /// Resets the watchdog: the plugin made a host call.
    pub(crate) fn record_host_call(&mut self) {
        self.limiter.clock.last_host_call = Instant::now();
    }

    /// Limits the rest of the call, because the plugin was asked to return.
    pub(crate) fn set_stop_grace(&mut self, grace: Duration) {
        let clock = &mut self.limiter.clock;
        let latest = clock.began.elapsed() + grace;
        clock.limit = Some(clock.limit.map_or(latest, |limit| limit.min(latest)));
        self.limiter.renew_token();
    }

    /// Returns a handle of an object to the plugin.
    pub(crate) fn push<T: Send + 'static>(&mut self, entry: T) -> Result<Resource<T>, HostError> {
        self.record_host_call();
        Ok(self.table.push(entry)?)
    }

    /// Returns the error that the plugin gets. Records device, job and handle errors, which can explain a later
    /// failure.
    pub(crate) fn wit_error(&mut self, fault: HostError) -> wasmtime::Result<WitError> {
        match fault {
            HostError::Answer(error) => Ok(error),
            // Report the reason for the cancellation. It still holds, because a call that is over stays over.
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
                    "the plugin holds {HANDLES_MAX} handles, which is the limit; drop some before creating more"
                );
                Ok(WitError { code: ErrorCode::OutOfMemory, message, place: None })
            }
            HostError::Trap(error) => Err(error),
        }
    }

    /// Returns the error for a call to which the plugin returned an error. Long texts are truncated.
    pub(crate) fn guest_error(&mut self, during: &'static str, mut error: WitError) -> PluginError {
        // If the device or the job caused the error that the plugin passes on, return the original error.
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

    /// Returns the error for a call that trapped.
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
            return PluginError::engine("too many concurrent plugin instances");
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
                // A Rust plugin's stack is at the bottom of its memory, so an overflow looks like this.
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

/// Returns whether the engine refused another handle. It has no error type for that, only this message.
fn is_handle_limit(error: &wasmtime::Error) -> bool {
    error.root_cause().to_string().contains("store handle limit exceeded")
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the plugin's innermost functions at the trap, as far as they have names.
fn format_frames(error: &wasmtime::Error) -> String {
    const FRAMES: usize = 6;
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return String::new() };
    let names: Vec<&str> = backtrace.frames().iter().filter_map(|frame| frame.func_name()).take(FRAMES).collect();
    if names.is_empty() { String::new() } else { format!(" in {}", names.join(" < ")) }
}

impl ResourceLimiter for InstanceLimiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        // The engine also refuses growth past the plugin's own maximum, which is not counted here.
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
