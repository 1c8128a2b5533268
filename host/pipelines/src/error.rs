//! Errors of pipelines.

use saggar_project::{ParameterError, PlanMistake};
use saggar_store::error::RecordError;
use thiserror::Error;

/// An error of a pipeline run.
#[derive(Debug, Error)]
pub enum PipelineError {
    /// The plan has mistakes.
    #[error("{}", describe_mistakes(.mistakes))]
    Plan {
        /// Every mistake, each with the name of its step.
        mistakes: Vec<(String, PlanMistake)>,
    },
    /// A parameter is not valid.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// The job of a step cannot be described.
    #[error("step {step}: {reason}")]
    Step {
        /// The step.
        step: String,
        /// What is wrong.
        reason: String,
    },
    /// The run does not exist.
    #[error("there is no pipeline run {name}")]
    NotFound {
        /// The name or identifier.
        name: String,
    },
    /// The schedule does not exist.
    #[error("there is no pipeline schedule {name}")]
    NoSchedule {
        /// The name.
        name: String,
    },
    /// A cron line that is not valid.
    #[error("schedule: {reason}")]
    Cron {
        /// What is wrong.
        reason: String,
    },
    /// A schedule whose runs would take the results of one run.
    #[error("a schedule has no from_failed: each of its runs would take the results of {run}")]
    ScheduledReuse {
        /// The run that the request names.
        run: String,
    },
    /// The state of the run or the step does not allow this.
    #[error("{name} is {state}: {hint}")]
    State {
        /// The run, or the run and the step.
        name: String,
        /// The state.
        state: String,
        /// What is possible instead.
        hint: String,
    },
    /// The records failed.
    #[error(transparent)]
    Records(RecordError),
    /// A part of the server failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl From<RecordError> for PipelineError {
    fn from(error: RecordError) -> PipelineError {
        match error {
            RecordError::NoSuchRun { run } => PipelineError::NotFound { name: run },
            error => PipelineError::Records(error),
        }
    }
}

fn describe_mistakes(mistakes: &[(String, PlanMistake)]) -> String {
    const SHOWN: usize = 8;
    let line = |(step, mistake): &(String, PlanMistake)| match step.is_empty() {
        true => mistake.message.clone(),
        false => format!("step {step}: {}", mistake.message),
    };
    let mut lines: Vec<String> = mistakes.iter().take(SHOWN).map(line).collect();
    if mistakes.len() > SHOWN {
        lines.push(format!("and {} more mistakes", mistakes.len() - SHOWN));
    }
    lines.join("; ")
}
