//! Where a job stands, and why.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where a job, or an attempt at it, stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobState {
    /// Waiting for its turn.
    Queued,
    /// Claimed; the worker is on its way.
    Starting,
    /// The training is under way.
    Running,
    /// Told to stop; saving its state.
    Stopping,
    /// Done.
    Succeeded,
    /// Ended by an error.
    Failed,
    /// Ended by a user.
    Cancelled,
    /// Ended by its maximum run time.
    TimedOut,
}

impl JobState {
    /// Every state, in the order in which a job meets them.
    pub const ALL: [JobState; 8] = [
        JobState::Queued,
        JobState::Starting,
        JobState::Running,
        JobState::Stopping,
        JobState::Succeeded,
        JobState::Failed,
        JobState::Cancelled,
        JobState::TimedOut,
    ];

    /// The name users see: `TIMED_OUT`.
    pub const fn name(self) -> &'static str {
        match self {
            JobState::Queued => "QUEUED",
            JobState::Starting => "STARTING",
            JobState::Running => "RUNNING",
            JobState::Stopping => "STOPPING",
            JobState::Succeeded => "SUCCEEDED",
            JobState::Failed => "FAILED",
            JobState::Cancelled => "CANCELLED",
            JobState::TimedOut => "TIMED_OUT",
        }
    }

    /// Whether nothing comes after it.
    pub const fn is_final(self) -> bool {
        match self {
            JobState::Succeeded | JobState::Failed | JobState::Cancelled | JobState::TimedOut => true,
            JobState::Queued | JobState::Starting | JobState::Running | JobState::Stopping => false,
        }
    }

    /// Whether a worker has it.
    pub const fn is_active(self) -> bool {
        match self {
            JobState::Starting | JobState::Running | JobState::Stopping => true,
            JobState::Queued | JobState::Succeeded | JobState::Failed | JobState::Cancelled | JobState::TimedOut => {
                false
            }
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Text that is no state's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no job state")]
pub struct ParseJobStateError(pub String);

impl FromStr for JobState {
    type Err = ParseJobStateError;

    fn from_str(text: &str) -> Result<JobState, ParseJobStateError> {
        let found = JobState::ALL.into_iter().find(|state| state.name() == text);
        found.ok_or_else(|| ParseJobStateError(text.to_owned()))
    }
}

/// Why something is in its state: a code for machines, a sentence for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateReason {
    /// `UPPER_SNAKE`: `HOST_RESTART`, `DEVICE_LOST`; empty where there is nothing to explain.
    pub code: String,
    /// One sentence, for people.
    pub sentence: String,
}

impl StateReason {
    /// A reason of this code and sentence.
    pub fn new(code: impl Into<String>, sentence: impl Into<String>) -> StateReason {
        StateReason { code: code.into(), sentence: sentence.into() }
    }
}
