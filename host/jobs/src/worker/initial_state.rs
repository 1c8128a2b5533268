//! The initial state of an attempt: the job's newest checkpoint, else the state that its specification names.

use saggar_plugin::{InitialState, PluginError};
use saggar_store::{Checkpoint, CheckpointError, SkippedCheckpoint};

use super::job_context::JobContextParts;
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
pub(super) fn find_initial_state(parts: &JobContextParts) -> Result<FoundInitialState, PluginError> {
    let AttemptConfig { job, epoch, spec, .. } = &parts.start;
    let own = async {
        parts.checkpoints.claim(job, *epoch).await?;
        parts.checkpoints.latest(job, &parts.plugin_digest).await
    };
    let own = parts.runtime.block_on(own).map_err(|error| PluginError::job(error.to_string()))?;
    let (beginning, note) = match (own.found, &spec.init_from) {
        (Some((_, checkpoint)), _) => (InitialState::Checkpoint(checkpoint), None),
        (None, None) => (InitialState::Nothing, None),
        (None, Some(origin)) => {
            let beginning = load_init_from(parts, origin)?;
            (beginning, Some(format!("starts from {origin}")))
        }
    };
    Ok(FoundInitialState { beginning, skipped: own.skipped, note })
}

fn load_init_from(parts: &JobContextParts, origin: &InitFrom) -> Result<InitialState, PluginError> {
    let failed = |error: &dyn std::fmt::Display| PluginError::job(format!("starting from {origin}: {error}"));
    match origin {
        InitFrom::Checkpoint { job, which } => {
            let id = parts.start.jobs.get(job).ok_or_else(|| failed(&"the job is gone"))?;
            let read = read_checkpoint(parts, id, *which);
            let checkpoint = parts.runtime.block_on(read).map_err(|error| failed(&error))?;
            let checkpoint = checkpoint.ok_or_else(|| failed(&"there is no whole checkpoint"))?;
            Ok(InitialState::Checkpoint(checkpoint))
        }
        InitFrom::Model { model, version } => {
            let (_, variables) = parts.models.open(model, *version).map_err(|error| failed(&error))?;
            Ok(InitialState::Weights(variables))
        }
    }
}

/// Reads a checkpoint of another job, written by any build of a plugin: whether it fits is checked for each variable.
async fn read_checkpoint(
    parts: &JobContextParts,
    id: &str,
    which: CheckpointSelector,
) -> Result<Option<Checkpoint>, CheckpointError> {
    match which {
        CheckpointSelector::Step(step) => Ok(Some(parts.checkpoints.load_step(id, step, None).await?.1)),
        // Submission has resolved the step; a specification recorded without one means the newest.
        CheckpointSelector::Latest | CheckpointSelector::Best => {
            let latest = parts.checkpoints.latest_of_any_plugin(id).await?;
            Ok(latest.found.map(|(_, checkpoint)| checkpoint))
        }
    }
}
