//! Training: one call of a plugin's trainer inside a job, which it accesses through [`JobContext`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use saggar_device::{Backend, Meter};
use saggar_store::dataset::ColumnarDataset;
use wasmtime::Store;
use wasmtime::component::Instance;

use crate::bindings::tensors::Error as WitError;
use crate::call_limits::CallClock;
use crate::engine::{CompiledPlugin, PluginEngine};
use crate::error::PluginError;
use crate::instance_state::{InstanceRole, InstanceState};
use crate::job::train_role::TrainRole;
use crate::job_context::{JobContext, LogLevel};
use crate::limits::{MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MAX, WATCHDOG_TIMEOUT_DEFAULT};

/// Limits of one training.
#[derive(Clone, Copy, Debug)]
pub struct TrainLimits {
    /// Linear memory of the instance in bytes; `None` means [`MEMORY_BYTES_DEFAULT`].
    pub memory_bytes: Option<u64>,
    /// Wall time of the whole training; `None` means no limit.
    pub time: Option<Duration>,
    /// Maximum time that it can compute without a host call.
    pub watchdog_timeout: Duration,
}

impl Default for TrainLimits {
    fn default() -> TrainLimits {
        TrainLimits { memory_bytes: None, time: None, watchdog_timeout: WATCHDOG_TIMEOUT_DEFAULT }
    }
}

/// The successful outcome of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainOutcome {
    /// The plugin returned because it was done.
    Finished,
    /// The plugin was asked to stop; its last state is in a checkpoint.
    Stopped,
}

/// The job that a plugin's export runs in.
pub(crate) struct JobRun {
    /// The device that computes.
    pub(crate) device: Arc<dyn Backend>,
    /// The meter charged with the device memory.
    pub(crate) meter: Meter,
    /// The datasets for `dataset.open` by mount point.
    pub(crate) datasets: BTreeMap<String, Arc<ColumnarDataset>>,
    /// The job's functions.
    pub(crate) context: Box<dyn JobContext>,
    /// The limits.
    pub(crate) limits: TrainLimits,
}

/// Runs a plugin's training to its end. Blocks; no async runtime is needed on this thread.
///
/// `datasets` are the datasets for `dataset.open` by mount point; `meter` is charged with the training's device memory.
///
/// # Errors
/// `MissingExport` if the plugin has no trainer; `Incompatible`; `Trap`, `StackOverflow`, `Deadline`, `Hung`,
/// `MemoryLimit`, `TableLimit` or `HandleLimit` if its code fails; `Guest` if it returns an error; `Device` if the
/// device was lost; `Job` if the context failed.
pub fn train(
    host: &PluginEngine,
    plugin: &CompiledPlugin,
    device: Arc<dyn Backend>,
    meter: Meter,
    datasets: BTreeMap<String, Arc<ColumnarDataset>>,
    context: Box<dyn JobContext>,
    limits: TrainLimits,
) -> Result<TrainOutcome, PluginError> {
    let trainer = plugin.trainer_export()?;
    let job = JobRun { device, meter, datasets, context, limits };
    let ended = job.run(host, plugin, "train", |store, instance, clock| {
        let guest =
            trainer.load(&mut *store, instance).map_err(|error| store.data_mut().trap_error("start", &error))?;
        store.data_mut().begin_call(clock);
        Ok(guest.call_train(store))
    })?;
    Ok(ended.map_or(TrainOutcome::Stopped, |()| TrainOutcome::Finished))
}

/// The answer of a plugin's export: its value or error, or a trap.
pub(crate) type ExportAnswer<T> = wasmtime::Result<Result<T, WitError>>;

impl JobRun {
    /// Calls an export of a new instance of the plugin. Returns its value, or `None` if the plugin was asked to stop.
    pub(crate) fn run<T>(
        self,
        host: &PluginEngine,
        plugin: &CompiledPlugin,
        during: &'static str,
        call: impl FnOnce(&mut Store<InstanceState>, &Instance, CallClock) -> Result<ExportAnswer<T>, PluginError>,
    ) -> Result<Option<T>, PluginError> {
        let JobRun { device, meter, datasets, context, limits } = self;
        let memory_bytes_max = limits.memory_bytes.unwrap_or(MEMORY_BYTES_DEFAULT).min(MEMORY_BYTES_MAX);
        let role = TrainRole::new(context, datasets, plugin.digest().hex());
        let state = InstanceState::new(device, meter, memory_bytes_max, InstanceRole::Train(Box::new(role)));
        let mut store = state.into_store(host.engine());
        let clock = CallClock::new(limits.time, Some(limits.watchdog_timeout));
        let instance = plugin.instantiate(&mut store, clock)?;
        let answer = call(&mut store, &instance, clock)?;
        let state = store.data_mut();
        state.finish_output();
        let dropped = state.logs.dropped();
        if dropped > 0 {
            state.write_log(LogLevel::Warn, &format!("{dropped} log lines were dropped"));
        }
        if answer.is_ok()
            && let Err(fault) = state.log_skipped_steps()
        {
            tracing::debug!(?fault, "cannot log the skipped steps");
        }
        let answer = match answer {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(state.guest_error(during, error)),
            Err(error) => Err(state.trap_error(during, &error)),
        };
        if matches!(&state.role, InstanceRole::Train(train) if train.stopped) {
            // Its state was saved before it was asked to stop, so an error does not matter.
            if let Err(error) = answer {
                state.write_log(
                    LogLevel::Warn,
                    &format!("the plugin ended with an error after it was asked to stop: {error}"),
                );
            }
            return Ok(None);
        }
        answer.map(Some)
    }
}
