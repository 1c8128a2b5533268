//! Training: one call of a plugin's trainer inside a job, which it accesses through [`JobContext`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use saggar_device::{Backend, Meter};
use saggar_store::dataset::ColumnarDataset;

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
    let memory_bytes_max = limits.memory_bytes.unwrap_or(MEMORY_BYTES_DEFAULT).min(MEMORY_BYTES_MAX);
    let role = TrainRole::new(context, datasets, plugin.digest().hex());
    let state = InstanceState::new(device, meter, memory_bytes_max, InstanceRole::Train(Box::new(role)));
    let mut store = state.into_store(host.engine());
    let clock = CallClock::new(limits.time, Some(limits.watchdog_timeout));
    let instance = plugin.instantiate(&mut store, clock)?;
    let guest = trainer.load(&mut store, &instance).map_err(|error| store.data_mut().trap_error("start", &error))?;
    store.data_mut().begin_call(clock);
    let answer = guest.call_train(&mut store);
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
    let failure = match answer {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(state.guest_error("train", error)),
        Err(error) => Some(state.trap_error("train", &error)),
    };
    if matches!(&state.role, InstanceRole::Train(train) if train.stopped) {
        // Its state was saved before it was asked to stop, so an error does not matter.
        if let Some(error) = failure {
            state.write_log(
                LogLevel::Warn,
                &format!("the plugin ended with an error after it was asked to stop: {error}"),
            );
        }
        return Ok(TrainOutcome::Stopped);
    }
    failure.map_or(Ok(TrainOutcome::Finished), Err)
}
