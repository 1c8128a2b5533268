//! Job states and the reasons for them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The state of a job or an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobState {
    /// Waiting for its turn.
    Queued,
    /// Claimed; its worker is starting.
    Starting,
    /// Training.
    Running,
    /// Asked to stop; saving its state.
    Stopping,
    /// Finished successfully.
    Succeeded,
    /// Ended by an error.
    Failed,
    /// Stopped by a user.
    Cancelled,
    /// Stopped at its maximum run time.
    TimedOut,
}

impl JobState {
    /// Every state, in the order in which a job passes through them.
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

    /// Returns the name that users see, such as `TIMED_OUT`.
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

    /// Returns whether the state is final.
    pub const fn is_final(self) -> bool {
        match self {
            JobState::Succeeded | JobState::Failed | JobState::Cancelled | JobState::TimedOut => true,
            JobState::Queued | JobState::Starting | JobState::Running | JobState::Stopping => false,
        }
    }

    /// Returns whether a worker owns the job in this state.
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

/// Text that is not the name of a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a job state")]
pub struct ParseJobStateError(pub String);

impl FromStr for JobState {
    type Err = ParseJobStateError;

    fn from_str(text: &str) -> Result<JobState, ParseJobStateError> {
        let found = JobState::ALL.into_iter().find(|state| state.name() == text);
        found.ok_or_else(|| ParseJobStateError(text.to_owned()))
    }
}

/// The reason for a state: a code for programs, a sentence for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateReason {
    /// `UPPER_SNAKE`, such as `HOST_RESTART` or `DEVICE_LOST`; empty if there is nothing to explain.
    pub code: String,
    /// One sentence, for people.
    pub sentence: String,
}

impl StateReason {
    /// Returns a reason with this code and sentence.
    pub fn new(code: impl Into<String>, sentence: impl Into<String>) -> StateReason {
        StateReason { code: code.into(), sentence: sentence.into() }
    }
}
