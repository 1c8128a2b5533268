//! The initial state of an attempt: the job's newest checkpoint, else the state that its specification names.

use std::error::Error;
use std::fmt::Display;

use saggar_plugin::{InitialState, PluginError};
use saggar_store::{Checkpoint, CheckpointError, CheckpointStore, ModelRegistry, SkippedCheckpoint};
use tokio::runtime::Handle;

use super::lost_worker::storage_error;
use crate::protocol::AttemptConfig;
use crate::spec::{CheckpointSelector, InitFrom};

/// The initial state, after skipping newer checkpoints that are damaged.
pub(super) struct FoundInitialState {
    pub(super) beginning: InitialState,
    pub(super) skipped: Vec<SkippedCheckpoint>,
    /// A line for the log, or `None` if there is nothing to report.
    pub(super) note: Option<String>,
}

/// Finds the initial state. The job's own checkpoints come first: a job that starts from another's must not return to
/// it after an interruption.
pub(super) fn find_initial_state(
    start: &AttemptConfig,
    checkpoints: &CheckpointStore,
    models: &ModelRegistry,
    runtime: &Handle,
) -> Result<FoundInitialState, PluginError> {
    let AttemptConfig { job, epoch, spec, .. } = start;
    let own = async {
        checkpoints.claim(job, *epoch).await?;
        checkpoints.latest(job, &spec.plugin).await
    };
    let own = runtime.block_on(own).map_err(|error| storage_error(&error, error.to_string()))?;
    let (beginning, note) = match (own.found, &spec.init_from) {
        (Some((_, checkpoint)), _) => (InitialState::Checkpoint(checkpoint), None),
        (None, None) => (InitialState::Nothing, None),
        (None, Some(origin)) => {
            let message = |error: &dyn Display| format!("starting from {origin}: {error}");
            let failed = |error: &(dyn Error + 'static)| storage_error(error, message(error));
            let missing = |what: &str| PluginError::job(message(&what));
            let beginning = match origin {
                InitFrom::Checkpoint { job, which } => {
                    let id = start.jobs.get(job).ok_or_else(|| missing("the job is gone"))?;
                    let read = runtime.block_on(read_checkpoint(checkpoints, id, *which));
                    let checkpoint = read.map_err(|error| failed(&error))?;
                    InitialState::Checkpoint(checkpoint.ok_or_else(|| missing("there is no whole checkpoint"))?)
                }
                InitFrom::Model { model, version } => {
                    let (_, variables) = models.open(model, *version).map_err(|error| failed(&error))?;
                    InitialState::Weights(variables)
                }
            };
            (beginning, Some(format!("starts from {origin}")))
        }
    };
    Ok(FoundInitialState { beginning, skipped: own.skipped, note })
}

/// Reads a checkpoint of another job, written by any build of a plugin: whether it fits is checked for each variable.
async fn read_checkpoint(
    checkpoints: &CheckpointStore,
    id: &str,
    which: CheckpointSelector,
) -> Result<Option<Checkpoint>, CheckpointError> {
    match which {
        CheckpointSelector::Step(step) => Ok(Some(checkpoints.load_step(id, step, None).await?.1)),
        // Submission has resolved the step; a specification recorded without one means the newest.
        CheckpointSelector::Latest | CheckpointSelector::Best => {
            let latest = checkpoints.latest_of_any_plugin(id).await?;
            Ok(latest.found.map(|(_, checkpoint)| checkpoint))
        }
    }
}
