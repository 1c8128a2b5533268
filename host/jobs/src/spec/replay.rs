//! The specification of a replay: a job that repeats steps of another one, compares them with what was recorded, and
//! stores only a report.

use saggar_store::records::JobRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CheckpointSelector, InitFrom, JobSpec};
use crate::error::{JobError, SpecError};
use crate::limits::{PRINTED_OPERAND_BYTES_MAX, PRINTED_OPERANDS_MAX};

/// The output file of a replay.
pub const REPLAY_FILE: &str = "replay.json";

/// Steps of a training to repeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaySpec {
    /// The name of the training's job.
    pub job: String,
    /// The first step to look at, from 1.
    #[serde(default = "first_step")]
    #[schemars(range(min = 1))]
    pub from_step: u64,
    /// The last step; the replay goes on to the end of the training if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub to_step: Option<u64>,
    /// Names of operands to print: labels, inputs, variables and outputs of the graphs, or numbers of nodes such as `%12`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub print: Vec<String>,
}

fn first_step() -> u64 {
    1
}

impl ReplaySpec {
    /// Checks everything that needs no lookup.
    ///
    /// # Errors
    /// `Replay`.
    pub(super) fn validate(&self, spec: &JobSpec) -> Result<(), SpecError> {
        let refuse = |reason: String| Err(SpecError::Replay { reason });
        if spec.predict.is_some() || spec.data_step.is_some() || spec.notebook.is_some() || spec.measure || spec.record
        {
            return refuse(
                "only a training can be replayed; leave `predict`, `data_step`, `notebook`, `measure`, `record` out"
                    .into(),
            );
        }
        if spec.replicas > 1 {
            return refuse("a replay computes in one process: set `replicas` to 1 and `shards` to the job's".into());
        }
        if self.from_step == 0 {
            return refuse("from_step: steps are counted from 1".into());
        }
        if let Some(to) = self.to_step.filter(|to| *to < self.from_step) {
            return refuse(format!("to_step: {to} is before from_step, {}", self.from_step));
        }
        if self.print.len() > PRINTED_OPERANDS_MAX {
            return refuse(format!("print: at most {PRINTED_OPERANDS_MAX} operands"));
        }
        if self.print.iter().any(|name| name.is_empty() || name.len() > PRINTED_OPERAND_BYTES_MAX) {
            return refuse(format!("print: the name of an operand has 1 to {PRINTED_OPERAND_BYTES_MAX} bytes"));
        }
        Ok(())
    }
}

/// Returns the specification of a replay of `job`, whose checkpoints are at the steps `checkpoints`: it starts from the
/// newest one before the first step to look at, or as the job did.
///
/// # Errors
/// `State` if the job is no training; `Spec`.
pub fn replay_spec(
    job: &JobRecord,
    replay: ReplaySpec,
    checkpoints: &[u64],
    device: Option<String>,
) -> Result<JobSpec, JobError> {
    let old: JobSpec =
        serde_json::from_str(&job.spec).map_err(|error| JobError::Override { reason: error.to_string() })?;
    if old.predict.is_some() || old.data_step.is_some() || old.notebook.is_some() || old.measure || old.replay.is_some()
    {
        let hint = "only a training can be replayed".to_owned();
        return Err(JobError::State { name: job.name.clone(), state: job.state.name().to_owned(), hint });
    }
    let start = checkpoints.iter().copied().filter(|step| *step < replay.from_step).max();
    let init_from = match start {
        Some(step) => Some(InitFrom::Checkpoint { job: job.name.clone(), which: CheckpointSelector::Step(step) }),
        None => old.init_from.clone(),
    };
    Ok(JobSpec {
        init_from,
        device: device.unwrap_or_else(|| old.device.clone()),
        shards: old.shards.or(Some(old.replicas).filter(|replicas| *replicas > 1)),
        replicas: 1,
        hosts: 1,
        retry: 0,
        experiment: None,
        record: false,
        max_runtime_seconds: None,
        auto_extend: 0,
        max_attempt_runtime_seconds: None,
        utilization: None,
        message: Some(format!("replay of {} from step {}", job.name, replay.from_step)),
        replay: Some(replay),
        ..old
    })
}
