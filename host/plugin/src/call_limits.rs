//! The limits of an instance and of its current call, which of them were exceeded, and the errors that explain why a
//! call failed.

use std::time::{Duration, Instant};

use saggar_device::{CancelToken, DeviceError};
use thiserror::Error;
use wasmtime::{PoolConcurrencyLimitError, ResourceLimiter, Trap, WasmBacktrace};

use crate::error::PluginError;
use crate::guest_error_code::GuestErrorCode;
use crate::host_error::{HostError, ReturnedError, device_error};
use crate::limits::{
    COMPONENT_HANDLES_MAX, CORE_INSTANCES_MAX, ERROR_TEXT_BYTES_MAX, HANDLES_MAX, STACK_BYTES_MAX, TABLE_ELEMENTS_MAX,
};

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
    /// Returns the limits of an instance with at most this much linear memory, and no call.
    pub(crate) fn new(memory_bytes_max: u64) -> InstanceLimiter {
        InstanceLimiter {
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
        }
    }

    /// Resets what earlier calls recorded, and starts the clock of the next call.
    pub(crate) fn begin_call(&mut self, clock: CallClock) {
        self.memory_refused = false;
        self.tables_refused = false;
        self.handles_refused = false;
        self.device_error = None;
        self.job_error = None;
        self.clock = clock;
        self.cancel = None;
        self.renew_token();
    }

    /// Sets the token that can cancel the current call.
    pub(crate) fn set_cancel_token(&mut self, cancel: Option<CancelToken>) {
        self.cancel = cancel;
        self.renew_token();
    }

    /// Returns a token that is cancelled when the call is over, for the device's and the compiler's work.
    pub(crate) fn cancel_token(&self) -> &CancelToken {
        &self.token
    }

    /// Resets the watchdog: the plugin made a host call.
    pub(crate) fn record_host_call(&mut self) {
        self.clock.last_host_call = Instant::now();
    }

    /// Limits the rest of the call, because the plugin was asked to return.
    pub(crate) fn set_stop_grace(&mut self, grace: Duration) {
        let latest = self.clock.began.elapsed() + grace;
        self.clock.limit = Some(self.clock.limit.map_or(latest, |limit| limit.min(latest)));
        self.renew_token();
    }

    /// Returns the error that the plugin gets. Records device, job and handle errors, which can explain a later
    /// failure.
    pub(crate) fn returned_error(&mut self, fault: HostError) -> wasmtime::Result<ReturnedError> {
        match fault {
            HostError::Answer(error) => Ok(error),
            // Report the reason for the cancellation. It still holds, because a call that is over stays over.
            HostError::Device(DeviceError::Cancelled) => {
                Err(self.check_call().err().unwrap_or(CallInterrupted::Cancelled).into())
            }
            HostError::Device(error) => {
                let answer = device_error(&error);
                self.device_error = Some(error);
                Ok(answer)
            }
            HostError::Job(error) => {
                let answer = ReturnedError { code: GuestErrorCode::Internal, message: error.to_string(), place: None };
                self.job_error = Some(error);
                Ok(answer)
            }
            HostError::HandlesFull => {
                self.handles_refused = true;
                let message = format!(
                    "the plugin holds {HANDLES_MAX} handles, which is the limit; drop some before creating more"
                );
                Ok(ReturnedError { code: GuestErrorCode::OutOfMemory, message, place: None })
            }
            HostError::Trap(error) => Err(error),
        }
    }

    /// Returns the error for a call to which the plugin returned an error. Long texts are truncated.
    pub(crate) fn guest_error(&mut self, during: &'static str, mut error: ReturnedError) -> PluginError {
        // If the device or the job caused the error that the plugin passes on, return the original error.
        if let Some(error @ DeviceError::Lost { .. }) = &self.device_error {
            return PluginError::Device(error.clone());
        }
        if let Some(cause) = self.job_error.take_if(|cause| error.message.contains(&cause.to_string())) {
            return cause;
        }
        for text in [Some(&mut error.message), error.place.as_mut()].into_iter().flatten() {
            text.truncate(text.floor_char_boundary(ERROR_TEXT_BYTES_MAX));
        }
        let reason = format!("{} ({})", error.message, error.code);
        self.limit_error(during, reason).unwrap_or(PluginError::Guest {
            during,
            code: error.code,
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
        if let Some(error @ DeviceError::Lost { .. }) = &self.device_error {
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
        if self.memory_refused {
            return Some(PluginError::MemoryLimit { during, limit_bytes: self.memory_bytes_max, reason });
        }
        if self.tables_refused {
            return Some(PluginError::TableLimit { during, limit: TABLE_ELEMENTS_MAX, reason });
        }
        self.handles_refused.then_some(PluginError::HandleLimit { during, limit: HANDLES_MAX, reason })
    }
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// Returns an error if the call is over, whatever it is doing.
    pub(crate) fn check_call(&self) -> Result<(), CallInterrupted> {
        if self.is_cancelled() {
            return Err(CallInterrupted::Cancelled);
        }
        self.clock.check_call()
    }

    /// Returns an error if the plugin's own code must be interrupted.
    pub(crate) fn check_plugin_code(&self) -> Result<(), CallInterrupted> {
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
