//! Where a job begins, if not with initial values.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a job's first attempt starts from, where it has no checkpoint of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Origin {
    /// Everything that a checkpoint of another job holds: its step, too. `job:mnist-7`, `job:mnist-7/checkpoint@1200`,
    /// `job:mnist-7/checkpoint@best`.
    Checkpoint {
        /// The other job's name.
        job: String,
        /// Which of its checkpoints.
        which: Which,
    },
    /// A model version's weights; the training begins at step 0. `model:face`, `model:face@12`.
    Model {
        /// The model.
        model: String,
        /// Its version; the newest at submission where none was asked for.
        version: Option<u64>,
    },
}

/// One of a job's checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// The newest.
    #[default]
    Latest,
    /// The one that is kept for being the best.
    Best,
    /// That of this step.
    Step(u64),
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Latest => f.write_str("latest"),
            Which::Best => f.write_str("best"),
            Which::Step(step) => write!(f, "{step}"),
        }
    }
}

/// Text that names no checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no checkpoint; expected a step, `latest` or `best`")]
pub struct NotACheckpoint(String);

impl FromStr for Which {
    type Err = NotACheckpoint;

    fn from_str(text: &str) -> Result<Which, NotACheckpoint> {
        match text {
            "latest" => Ok(Which::Latest),
            "best" => Ok(Which::Best),
            step => step.parse().map(Which::Step).map_err(|_| NotACheckpoint(text.to_owned())),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Checkpoint { job, which } => write!(f, "job:{job}/checkpoint@{which}"),
            Origin::Model { model, version: None } => write!(f, "model:{model}"),
            Origin::Model { model, version: Some(version) } => write!(f, "model:{model}@{version}"),
        }
    }
}

/// Text that is no origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is nothing to start from; expected such as job:mnist-7, job:mnist-7/checkpoint@1200 or model:face@12")]
pub struct NotAnOrigin(String);

impl FromStr for Origin {
    type Err = NotAnOrigin;

    fn from_str(text: &str) -> Result<Origin, NotAnOrigin> {
        let wrong = || NotAnOrigin(text.chars().take(200).collect());
        if let Some(rest) = text.strip_prefix("job:") {
            let (job, which) = match rest.split_once('/') {
                None => (rest, Which::Latest),
                Some((job, checkpoint)) => {
                    let which = checkpoint.strip_prefix("checkpoint@").ok_or_else(wrong)?;
                    (job, which.parse().map_err(|_| wrong())?)
                }
            };
            return if job.is_empty() { Err(wrong()) } else { Ok(Origin::Checkpoint { job: job.to_owned(), which }) };
        }
        let rest = text.strip_prefix("model:").ok_or_else(wrong)?;
        let (model, version) = match rest.split_once('@') {
            None => (rest, None),
            Some((model, version)) => (model, Some(version.parse().map_err(|_| wrong())?)),
        };
        if model.is_empty() { Err(wrong()) } else { Ok(Origin::Model { model: model.to_owned(), version }) }
    }
}

impl TryFrom<String> for Origin {
    type Error = NotAnOrigin;

    fn try_from(text: String) -> Result<Origin, NotAnOrigin> {
        text.parse()
    }
}

impl From<Origin> for String {
    fn from(origin: Origin) -> String {
        origin.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_and_written() {
        for (text, whole) in [
            ("job:mnist-7", "job:mnist-7/checkpoint@latest"),
            ("job:mnist-7/checkpoint@1200", "job:mnist-7/checkpoint@1200"),
            ("job:mnist-7/checkpoint@best", "job:mnist-7/checkpoint@best"),
            ("model:face", "model:face"),
            ("model:face@12", "model:face@12"),
        ] {
            let origin: Origin = text.parse().unwrap();
            assert_eq!(origin.to_string(), whole);
            assert_eq!(whole.parse::<Origin>().unwrap(), origin);
        }
        for wrong in
            ["", "mnist-7", "job:", "job:a/checkpoint", "job:a/checkpoint@x", "model:", "model:a@b", "job:a/x@1"]
        {
            assert!(wrong.parse::<Origin>().is_err(), "{wrong}");
        }
    }
}
