//! What a plugin's instance is surrounded by: its handles, its device account, its limits and its clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_device::{Backend, CancelToken, DeviceError, Meter};
use thiserror::Error;
use wasmtime::component::{Resource, ResourceTable};
use wasmtime::{Engine, PoolConcurrencyLimitError, ResourceLimiter, Store, Trap, UpdateDeadline, WasmBacktrace};

use crate::bindings::tensors::{Error as WitError, ErrorCode};
use crate::compiler::Compiler;
use crate::convert::code_name;
use crate::error::PluginError;
use crate::fault::{Fault, device_error};
use crate::graphs::{Builder, Executables};
use crate::job::TrainRole;
use crate::limits::{
    CALL_BYTES_MAX, COMPONENT_HANDLES_MAX, CORE_INSTANCES_MAX, ERROR_TEXT_BYTES_MAX, HANDLES_MAX, HOST_BYTES_MAX,
    STACK_BYTES_MAX, TABLE_ELEMENTS_MAX,
};
use crate::logging::LogBudget;
use crate::replies::Reply;
use crate::variables::Weights;

/// What an instance may do, and for whom.
pub(crate) enum Role {
    /// It trains, inside a job.
    Train(Box<TrainRole>),
    /// It predicts. It has no job and no datasets, although its component may import them.
    Predict {
        /// For the log.
        plugin: Arc<str>,
        /// The prediction that is being computed; none while it loads, or imports.
        reply: Option<Reply>,
    },
}

/// Everything that host functions of one instance work on.
pub(crate) struct State {
    pub(crate) table: ResourceTable,
    pub(crate) backend: Arc<dyn Backend>,
    /// Charged with the instance's tensors, variables and programs.
    pub(crate) meter: Meter,
    /// Charged with constants and graphs that are being built, in host memory.
    pub(crate) host_meter: Meter,
    /// Graphs being built, by the number their handles carry.
    pub(crate) builders: BTreeMap<u64, Builder>,
    pub(crate) builders_made: u64,
    /// Programs that instances of one model version share.
    pub(crate) executables: Option<Arc<Executables>>,
    /// Where large graphs are compiled.
    pub(crate) compiler: Compiler,
    /// The weights that the call computes with, where its variables are such.
    pub(crate) weights: Option<Arc<Weights>>,
    /// Whether anything outlives a call that depends on its weights: the plugin read some, or computed with them while it
    /// loaded. Such an instance cannot go on with others.
    pub(crate) weights_seen: bool,
    pub(crate) logs: LogBudget,
    pub(crate) role: Role,
    pub(crate) guard: Guard,
}

/// The limits of an instance, and which of them it ran into since the call began.
#[derive(Debug)]
pub(crate) struct Guard {
    memory_bytes_max: u64,
    memory_bytes: u64,
    table_elements: usize,
    memory_refused: bool,
    tables_refused: bool,
    handles_refused: bool,
    /// The device's error that the plugin was told last.
    device: Option<DeviceError>,
    /// The job's error that the plugin was told last.
    job: Option<PluginError>,
    clock: Clock,
    /// Says when nobody waits for the call any more. Asked at every dispatch and every few milliseconds between.
    cancel: Option<CancelToken>,
    /// Says when both of them end the call, to work of the host that may take long.
    token: CancelToken,
}

impl Guard {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// Whether the call may go on, whatever it does.
    fn check_call(&self) -> Result<(), Interrupted> {
        if self.is_cancelled() {
            return Err(Interrupted::Cancelled);
        }
        self.clock.check_call()
    }

    /// Whether the plugin's own code may go on.
    fn check(&self) -> Result<(), Interrupted> {
        self.check_call()?;
        self.clock.check_quiet()
    }

    /// To be called when the clock or who may cancel has changed.
    fn renew_token(&mut self) {
        self.token = self.clock.token(self.cancel.clone());
    }
}

/// When the instance is interrupted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// When the call began.
    began: Instant,
    /// The whole call must be over after this.
    limit: Option<Duration>,
    /// The plugin must ask something of the host at least this often.
    quiet: Option<Duration>,
    /// When it last did.
    asked: Instant,
}

/// Why the clock interrupted an instance.
#[derive(Clone, Copy, Debug, Error)]
pub(crate) enum Interrupted {
    #[error("deadline passed")]
    Deadline { limit: Duration },
    #[error("hung")]
    Hung { limit: Duration },
    #[error("told to stop, and went on")]
    Stopped,
    #[error("nobody waits for it any more")]
    Cancelled,
}

impl Clock {
    pub(crate) fn new(limit: Option<Duration>, quiet: Option<Duration>) -> Clock {
        let now = Instant::now();
        Clock { began: now, limit, quiet, asked: now }
    }

    fn check_call(&self) -> Result<(), Interrupted> {
        match self.limit.filter(|&limit| self.began.elapsed() >= limit) {
            Some(limit) => Err(Interrupted::Deadline { limit }),
            None => Ok(()),
        }
    }

    fn check_quiet(&self) -> Result<(), Interrupted> {
        match self.quiet.filter(|&quiet| self.asked.elapsed() >= quiet) {
            Some(limit) => Err(Interrupted::Hung { limit }),
            None => Ok(()),
        }
    }

    /// Cancels work of the host once the call is over, or cancelled. Not for a plugin that asks nothing: it has asked for
    /// this.
    pub(crate) fn token(self, cancel: Option<CancelToken>) -> CancelToken {
        if self.limit.is_none() && cancel.is_none() {
            return CancelToken::never();
        }
        CancelToken::new(move || self.check_call().is_err() || cancel.as_ref().is_some_and(CancelToken::is_cancelled))
    }
}

impl State {
    pub(crate) fn new(backend: Arc<dyn Backend>, meter: Meter, memory_bytes_max: u64, role: Role) -> State {
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES_MAX);
        State {
            table,
            backend,
            meter,
            host_meter: Meter::new(HOST_BYTES_MAX),
            builders: BTreeMap::new(),
            builders_made: 0,
            executables: None,
            compiler: Compiler::InProcess,
            weights: None,
            weights_seen: false,
            logs: LogBudget::default(),
            role,
            guard: Guard {
                memory_bytes_max,
                memory_bytes: 0,
                table_elements: 0,
                memory_refused: false,
                tables_refused: false,
                handles_refused: false,
                device: None,
                job: None,
                clock: Clock::new(None, None),
                cancel: None,
                token: CancelToken::never(),
            },
        }
    }

    /// A store around this state, with every limit of the engine set.
    pub(crate) fn into_store(self, engine: &Engine) -> Store<State> {
        let mut store = Store::new(engine, self);
        store.limiter(|state| &mut state.guard);
        store.set_hostcall_fuel(CALL_BYTES_MAX);
        store.set_max_component_handles(COMPONENT_HANDLES_MAX);
        store.epoch_deadline_callback(|store| {
            store.data().guard.check()?;
            Ok(UpdateDeadline::Continue(1))
        });
        store.set_epoch_deadline(1);
        store
    }

    /// Forgets what earlier calls ran into, and starts the clock of the next.
    pub(crate) fn begin_call(&mut self, clock: Clock) {
        self.guard.memory_refused = false;
        self.guard.tables_refused = false;
        self.guard.handles_refused = false;
        self.guard.device = None;
        self.guard.job = None;
        self.guard.clock = clock;
        self.guard.cancel = None;
        self.guard.renew_token();
    }

    /// Says who may end the call that has begun.
    pub(crate) fn cancel_by(&mut self, cancel: Option<CancelToken>) {
        self.guard.cancel = cancel;
        self.guard.renew_token();
    }

    /// To be asked by every host function that may take more than a millisecond, before its work and between the parts of it.
    ///
    /// # Errors
    /// A trap, which no plugin can catch, if the call's time is over or nobody waits for it any more.
    pub(crate) fn check_deadline(&self) -> Result<(), Fault> {
        self.guard.check_call().map_err(|interrupted| Fault::Trap(interrupted.into()))
    }

    /// The same for the device's work, and the compiler's.
    pub(crate) fn cancel_token(&self) -> &CancelToken {
        &self.guard.token
    }

    /// Whether a prediction is being computed, and nothing else.
    pub(crate) fn predicts(&self) -> bool {
        matches!(self.role, Role::Predict { reply: Some(_), .. })
    }

    /// The plugin did something other than compute by itself.
    pub(crate) fn asked(&mut self) {
        self.guard.clock.asked = Instant::now();
    }

    /// The plugin was told to return: it has this long.
    pub(crate) fn leave_within(&mut self, grace: Duration) {
        let clock = &mut self.guard.clock;
        let latest = clock.began.elapsed() + grace;
        clock.limit = Some(clock.limit.map_or(latest, |limit| limit.min(latest)));
        self.guard.renew_token();
    }

    /// Hands an object to the plugin.
    pub(crate) fn push<T: Send + 'static>(&mut self, entry: T) -> Result<Resource<T>, Fault> {
        self.asked();
        Ok(self.table.push(entry)?)
    }

    /// What the plugin is told of a fault; the guard remembers those that explain a later failure.
    pub(crate) fn answer(&mut self, fault: Fault) -> wasmtime::Result<WitError> {
        match fault {
            Fault::Answer(error) => Ok(error),
            // Whoever cancelled is asked why; it stays so.
            Fault::Device(DeviceError::Cancelled) => {
                Err(self.guard.check_call().err().unwrap_or(Interrupted::Cancelled).into())
            }
            Fault::Device(error) => {
                let answer = device_error(&error);
                self.guard.device = Some(error);
                Ok(answer)
            }
            Fault::Job(error) => {
                let answer = WitError { code: ErrorCode::Internal, message: error.to_string(), place: None };
                self.guard.job = Some(error);
                Ok(answer)
            }
            Fault::HandlesFull => {
                self.guard.handles_refused = true;
                let message = format!(
                    "{HANDLES_MAX} handles are in use, the most a plugin may hold; drop some before making more"
                );
                Ok(WitError { code: ErrorCode::OutOfMemory, message, place: None })
            }
            Fault::Trap(error) => Err(error),
        }
    }

    /// The error that the plugin answered to a call. What is too long of it is cut.
    pub(crate) fn guest_error(&mut self, during: &'static str, mut error: WitError) -> PluginError {
        // What the plugin passes on, perhaps in other words, is the host's error where the device or the job caused it.
        if let Some(error @ DeviceError::Lost { .. }) = &self.guard.device {
            return PluginError::Device(error.clone());
        }
        if let Some(cause) = self.guard.job.take_if(|cause| error.message.contains(&cause.to_string())) {
            return cause;
        }
        for text in [Some(&mut error.message), error.place.as_mut()].into_iter().flatten() {
            text.truncate(text.floor_char_boundary(ERROR_TEXT_BYTES_MAX));
        }
        let reason = format!("{} ({})", error.message, code_name(error.code));
        self.refused(during, reason).unwrap_or_else(|| PluginError::Guest {
            during,
            code: code_name(error.code),
            message: error.message,
            place: error.place,
        })
    }

    /// Why a call trapped.
    pub(crate) fn trap(&mut self, during: &'static str, error: &wasmtime::Error) -> PluginError {
        if let Some(interrupted) = error.downcast_ref::<Interrupted>() {
            return match *interrupted {
                Interrupted::Deadline { limit } => PluginError::Deadline { during, limit_ms: millis(limit) },
                Interrupted::Hung { limit } => PluginError::Hung { limit_ms: millis(limit) },
                Interrupted::Cancelled => PluginError::Cancelled { during },
                Interrupted::Stopped => PluginError::Trap { during, reason: interrupted.to_string() },
            };
        }
        if error.downcast_ref::<PoolConcurrencyLimitError>().is_some() {
            return PluginError::engine("too many instances of plugins at a time");
        }
        let trap = error.downcast_ref::<Trap>();
        if trap == Some(&Trap::StackOverflow) {
            return PluginError::StackOverflow { during, limit_bytes: STACK_BYTES_MAX };
        }
        if let Some(error @ DeviceError::Lost { .. }) = &self.guard.device {
            return PluginError::Device(error.clone());
        }
        let reason = match trap {
            Some(Trap::MemoryOutOfBounds) => {
                // A Rust plugin's own stack lies at the bottom of its memory.
                format!("{}; recursion that is too deep ends like this{}", Trap::MemoryOutOfBounds, frames(error))
            }
            Some(trap) => format!("{trap}{}", frames(error)),
            None => format!("{}{}", error.root_cause(), frames(error)),
        };
        if is_handle_limit(error) {
            return PluginError::HandleLimit { during, limit: COMPONENT_HANDLES_MAX, reason };
        }
        self.refused(during, reason.clone()).unwrap_or(PluginError::Trap { during, reason })
    }

    fn refused(&self, during: &'static str, reason: String) -> Option<PluginError> {
        if self.guard.memory_refused {
            return Some(PluginError::MemoryLimit { during, limit_bytes: self.guard.memory_bytes_max, reason });
        }
        if self.guard.tables_refused {
            return Some(PluginError::TableLimit { during, limit: TABLE_ELEMENTS_MAX, reason });
        }
        self.guard.handles_refused.then_some(PluginError::HandleLimit { during, limit: HANDLES_MAX, reason })
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
fn frames(error: &wasmtime::Error) -> String {
    const FRAMES: usize = 6;
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return String::new() };
    let names: Vec<&str> = backtrace.frames().iter().filter_map(|frame| frame.func_name()).take(FRAMES).collect();
    if names.is_empty() { String::new() } else { format!(" in {}", names.join(" < ")) }
}

impl ResourceLimiter for Guard {
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
