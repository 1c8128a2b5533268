//! What an attempt starts from: its job's own newest checkpoint; where it has none, what the job was told to start from.

use saggar_plugin::{Beginning, PluginError};
use saggar_store::{Checkpoint, CheckpointError, Skipped};

use super::context::Parts;
use crate::protocol::Start;
use crate::spec::{Origin, Which};

/// What was found, and newer checkpoints that were passed over because they are damaged.
pub(super) struct Found {
    pub(super) beginning: Beginning,
    pub(super) skipped: Vec<Skipped>,
    /// A line for the log, where there is something to say.
    pub(super) note: Option<String>,
}

/// Finds it. Own checkpoints come first: a job that starts from another's must not go back to it after an interruption.
pub(super) fn find(parts: &Parts) -> Result<Found, PluginError> {
    let Start { job, epoch, spec, .. } = &parts.start;
    let own = async {
        parts.checkpoints.claim(job, *epoch).await?;
        parts.checkpoints.latest(job, &parts.plugin_digest).await
    };
    let own = parts.runtime.block_on(own).map_err(|error| PluginError::job(error.to_string()))?;
    let (beginning, note) = match (own.found, &spec.init_from) {
        (Some((_, checkpoint)), _) => (Beginning::Checkpoint(checkpoint), None),
        (None, None) => (Beginning::Nothing, None),
        (None, Some(origin)) => {
            let beginning = from_origin(parts, origin)?;
            (beginning, Some(format!("starts from {origin}")))
        }
    };
    Ok(Found { beginning, skipped: own.skipped, note })
}

fn from_origin(parts: &Parts, origin: &Origin) -> Result<Beginning, PluginError> {
    let failed = |error: &dyn std::fmt::Display| PluginError::job(format!("starting from {origin}: {error}"));
    match origin {
        Origin::Checkpoint { job, which } => {
            let id = parts.start.jobs.get(job).ok_or_else(|| failed(&"the job is gone"))?;
            let read = read(parts, id, *which);
            let checkpoint = parts.runtime.block_on(read).map_err(|error| failed(&error))?;
            let checkpoint = checkpoint.ok_or_else(|| failed(&"there is no whole checkpoint"))?;
            Ok(Beginning::Checkpoint(checkpoint))
        }
        Origin::Model { model, version } => {
            let (_, variables) = parts.models.open(model, *version).map_err(|error| failed(&error))?;
            Ok(Beginning::Weights(variables))
        }
    }
}

/// A checkpoint of another job, whatever build of a plugin wrote it: whether it fits is seen variable by variable.
async fn read(parts: &Parts, id: &str, which: Which) -> Result<Option<Checkpoint>, CheckpointError> {
    match which {
        Which::Step(step) => Ok(Some(parts.checkpoints.at(id, step, None).await?.1)),
        // Submission has named the step; a specification that was recorded without one means the newest.
        Which::Latest | Which::Best => {
            let latest = parts.checkpoints.latest_of_any_plugin(id).await?;
            Ok(latest.found.map(|(_, checkpoint)| checkpoint))
        }
    }
}
