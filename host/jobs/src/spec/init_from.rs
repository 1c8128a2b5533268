//! The initial state of a job, if not initial values.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The initial state of a job that has no checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum InitFrom {
    /// The complete checkpoint of another job, including its step. `job:mnist-7`, `job:mnist-7/checkpoint@1200`,
    /// `job:mnist-7/checkpoint@best`.
    Checkpoint {
        /// The other job's name.
        job: String,
        /// The checkpoint of that job.
        which: CheckpointSelector,
    },
    /// A model version's weights; the training begins at step 0. `model:face`, `model:face@12`.
    Model {
        /// The model.
        model: String,
        /// Its version; the newest at submission if omitted.
        version: Option<u64>,
    },
}

/// A selector of one of a job's checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckpointSelector {
    /// The newest checkpoint.
    #[default]
    Latest,
    /// The best checkpoint by the job's metric.
    Best,
    /// The checkpoint of this step.
    Step(u64),
}

impl fmt::Display for CheckpointSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointSelector::Latest => f.write_str("latest"),
            CheckpointSelector::Best => f.write_str("best"),
            CheckpointSelector::Step(step) => write!(f, "{step}"),
        }
    }
}

/// Text that does not select a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid checkpoint {0:?}: expected a step, `latest` or `best`")]
pub struct CheckpointSelectorParseError(String);

impl FromStr for CheckpointSelector {
    type Err = CheckpointSelectorParseError;

    fn from_str(text: &str) -> Result<CheckpointSelector, CheckpointSelectorParseError> {
        match text {
            "latest" => Ok(CheckpointSelector::Latest),
            "best" => Ok(CheckpointSelector::Best),
            step => {
                step.parse().map(CheckpointSelector::Step).map_err(|_| CheckpointSelectorParseError(text.to_owned()))
            }
        }
    }
}

impl fmt::Display for InitFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InitFrom::Checkpoint { job, which } => write!(f, "job:{job}/checkpoint@{which}"),
            InitFrom::Model { model, version: None } => write!(f, "model:{model}"),
            InitFrom::Model { model, version: Some(version) } => write!(f, "model:{model}@{version}"),
        }
    }
}

/// Text that is not an initial state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid weights {0:?}: expected a checkpoint or a model, such as job:mnist-7, job:mnist-7/checkpoint@1200 or \
     model:face@12"
)]
pub struct InitFromParseError(String);

impl FromStr for InitFrom {
    type Err = InitFromParseError;

    fn from_str(text: &str) -> Result<InitFrom, InitFromParseError> {
        let wrong = || InitFromParseError(text.chars().take(200).collect());
        if let Some(rest) = text.strip_prefix("job:") {
            let (job, which) = match rest.split_once('/') {
                None => (rest, CheckpointSelector::Latest),
                Some((job, checkpoint)) => {
                    let which = checkpoint.strip_prefix("checkpoint@").ok_or_else(wrong)?;
                    (job, which.parse().map_err(|_| wrong())?)
                }
            };
            return if job.is_empty() { Err(wrong()) } else { Ok(InitFrom::Checkpoint { job: job.to_owned(), which }) };
        }
        let rest = text.strip_prefix("model:").ok_or_else(wrong)?;
        let (model, version) = match rest.split_once('@') {
            None => (rest, None),
            Some((model, version)) => (model, Some(version.parse().map_err(|_| wrong())?)),
        };
        if model.is_empty() { Err(wrong()) } else { Ok(InitFrom::Model { model: model.to_owned(), version }) }
    }
}

impl TryFrom<String> for InitFrom {
    type Error = InitFromParseError;

    fn try_from(text: String) -> Result<InitFrom, InitFromParseError> {
        text.parse()
    }
}

impl From<InitFrom> for String {
    fn from(origin: InitFrom) -> String {
        origin.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn init_from_references_round_trip_through_text() {
        for (text, whole) in [
            ("job:mnist-7", "job:mnist-7/checkpoint@latest"),
            ("job:mnist-7/checkpoint@1200", "job:mnist-7/checkpoint@1200"),
            ("job:mnist-7/checkpoint@best", "job:mnist-7/checkpoint@best"),
            ("model:face", "model:face"),
            ("model:face@12", "model:face@12"),
        ] {
            let origin: InitFrom = text.parse().unwrap();
            assert_eq!(origin.to_string(), whole);
            assert_eq!(whole.parse::<InitFrom>().unwrap(), origin);
        }
        for wrong in
            ["", "mnist-7", "job:", "job:a/checkpoint", "job:a/checkpoint@x", "model:", "model:a@b", "job:a/x@1"]
        {
            assert!(wrong.parse::<InitFrom>().is_err(), "{wrong}");
        }
    }
}
