//! The host's state of a plugin instance: its handles, and one component for each concept that its interfaces work on.

use std::sync::Arc;
use std::time::Duration;

use saggar_device::{Backend, CancelToken, Meter};
use wasmtime::component::{Resource, ResourceTable};
use wasmtime::{Engine, Store, UpdateDeadline};

use crate::bindings::tensors::Error as WitError;
use crate::call_limits::{CallClock, InstanceLimiter};
use crate::convert;
use crate::error::PluginError;
use crate::graphs::graph_scope::GraphScope;
use crate::host_error::HostError;
use crate::http_handler::handler_call::StreamedResponse;
use crate::job::train_role::TrainRole;
use crate::limits::{CALL_BYTES_MAX, COMPONENT_HANDLES_MAX, HANDLES_MAX, HOST_BYTES_MAX};
use crate::logging::log_budget::LogBudget;
use crate::streaming::reply::StreamingReply;
use crate::variables::device_weights::CallWeights;
use crate::wasi_state::WasiState;

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
    /// The graphs being built, and how finished ones become programs.
    pub(crate) graphs: GraphScope,
    /// The weights of the current call.
    pub(crate) weights: CallWeights,
    pub(crate) logs: LogBudget,
    pub(crate) wasi: WasiState,
    pub(crate) role: InstanceRole,
    /// The response of the HTTP request that the plugin answers; `None` outside of such a call.
    pub(crate) response: Option<StreamedResponse>,
    pub(crate) limiter: InstanceLimiter,
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
        let seed = match &role {
            InstanceRole::Train(train) => train.context.seed(),
            InstanceRole::Predict { .. } => 0,
        };
        InstanceState {
            table,
            backend,
            meter,
            host_meter: Meter::new(HOST_BYTES_MAX),
            graphs: GraphScope::default(),
            weights: CallWeights::default(),
            logs: LogBudget::default(),
            wasi: WasiState::new(seed),
            role,
            response: None,
            limiter: InstanceLimiter::new(memory_bytes_max),
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
        self.wasi.stderr.take_tail();
        self.limiter.begin_call(clock);
    }

    /// Sets the token that can cancel the current call.
    pub(crate) fn set_cancel_token(&mut self, cancel: Option<CancelToken>) {
        self.limiter.set_cancel_token(cancel);
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
        self.limiter.cancel_token()
    }

    /// Returns whether a request is being answered, as opposed to loading or importing.
    pub(crate) fn is_predicting(&self) -> bool {
        self.response.is_some() || matches!(self.role, InstanceRole::Predict { reply: Some(_), .. })
    }

    /// Resets the watchdog: the plugin made a host call.
    pub(crate) fn record_host_call(&mut self) {
        self.limiter.record_host_call();
    }

    /// Limits the rest of the call, because the plugin was asked to return.
    pub(crate) fn set_stop_grace(&mut self, grace: Duration) {
        self.limiter.set_stop_grace(grace);
    }

    /// Returns a handle of an object to the plugin.
    pub(crate) fn push<T: Send + 'static>(&mut self, entry: T) -> Result<Resource<T>, HostError> {
        self.record_host_call();
        Ok(self.table.push(entry)?)
    }

    /// Returns the error that the plugin gets. Records it if it can explain a later failure.
    pub(crate) fn wit_error(&mut self, fault: HostError) -> wasmtime::Result<WitError> {
        self.limiter.returned_error(fault).map(convert::wit_error)
    }

    /// Returns the error for a call to which the plugin returned an error. Long texts are truncated.
    pub(crate) fn guest_error(&mut self, during: &'static str, error: WitError) -> PluginError {
        self.limiter.guest_error(during, convert::returned_error(error))
    }

    /// Returns the error for a call that trapped. Its reason contains what the plugin last wrote to standard error,
    /// where other languages than Rust write the reason for a trap.
    pub(crate) fn trap_error(&mut self, during: &'static str, error: &wasmtime::Error) -> PluginError {
        self.finish_output();
        self.limiter.trap_error(during, error).with_stderr(&self.wasi.stderr.take_tail())
    }
}
