//! Hyper-parameter searches, called sweeps, and their trials.
//!
//! Records decide nothing: `saggar_sweeps` decides which trial runs how far, and records each decision here before it
//! takes effect.

use std::fmt;
use std::str::FromStr;

use saggar_clock::UnixMillis;
use serde::{Deserialize, Serialize};

use super::StateReason;
use crate::error::RecordError;
use crate::rights::AccessRights;

/// The state of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SweepState {
    /// Its trials run.
    Running,
    /// Stopped by a user: its trials are paused, and continue if it is resumed.
    Stopped,
    /// It has tried what it was to try.
    Succeeded,
    /// It cannot give a result.
    Failed,
}

impl SweepState {
    /// Every state.
    pub const ALL: [SweepState; 4] =
        [SweepState::Running, SweepState::Stopped, SweepState::Succeeded, SweepState::Failed];

    /// Returns the name that users see, such as `RUNNING`.
    pub const fn name(self) -> &'static str {
        match self {
            SweepState::Running => "RUNNING",
            SweepState::Stopped => "STOPPED",
            SweepState::Succeeded => "SUCCEEDED",
            SweepState::Failed => "FAILED",
        }
    }

    /// Returns whether the state is final.
    pub const fn is_final(self) -> bool {
        match self {
            SweepState::Succeeded | SweepState::Failed => true,
            SweepState::Running | SweepState::Stopped => false,
        }
    }
}

/// The state of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TrialState {
    /// Its job is to run, to its next rung or to its end.
    Running,
    /// Its job is paused at a rung, and can be promoted.
    Paused,
    /// Its job succeeded.
    Completed,
    /// It was stopped before its end, because others are better or the sweep is over.
    Stopped,
    /// Its job failed.
    Failed,
}

impl TrialState {
    /// Every state.
    pub const ALL: [TrialState; 5] =
        [TrialState::Running, TrialState::Paused, TrialState::Completed, TrialState::Stopped, TrialState::Failed];

    /// Returns the name that users see, such as `PAUSED`.
    pub const fn name(self) -> &'static str {
        match self {
            TrialState::Running => "RUNNING",
            TrialState::Paused => "PAUSED",
            TrialState::Completed => "COMPLETED",
            TrialState::Stopped => "STOPPED",
            TrialState::Failed => "FAILED",
        }
    }
}

/// Text that is not the name of a state of a sweep or a trial.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a state of a sweep or a trial")]
pub struct ParseSweepStateError(pub String);

/// Implements display and parsing by name.
macro_rules! named_states {
    ($($state:ident)*) => {
        $(impl fmt::Display for $state {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $state {
            type Err = ParseSweepStateError;

            fn from_str(text: &str) -> Result<$state, ParseSweepStateError> {
                let found = $state::ALL.into_iter().find(|state| state.name() == text);
                found.ok_or_else(|| ParseSweepStateError(text.to_owned()))
            }
        })*
    };
}

named_states!(SweepState TrialState);

/// A sweep to create.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewSweep {
    /// The project of its jobs, a valid name. The sweep is named `<project>-sweep-<number>`.
    pub project: String,
    /// What it searches: a JSON object.
    pub spec: String,
    /// The name of the key that created it.
    pub owner: Option<String>,
    /// The rights of that key.
    pub rights: AccessRights,
    /// Creating again with the same key returns the same sweep.
    pub idempotency_key: Option<String>,
}

/// A sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepRecord {
    /// Unique for ever: 26 letters and digits that sort by time.
    pub id: String,
    /// `<project>-sweep-<number>`.
    pub name: String,
    /// The project.
    pub project: String,
    /// A JSON object.
    pub spec: String,
    /// The name of the key that created it.
    pub owner: Option<String>,
    /// The rights of that key at that time.
    pub rights: AccessRights,
    /// Its state.
    pub state: SweepState,
    /// The reason for the state.
    pub reason: StateReason,
    /// The number of decisions about it.
    pub decisions: u64,
    /// When it was created.
    pub created_ms: UnixMillis,
    /// When it ended.
    pub finished_ms: Option<UnixMillis>,
}

/// A trial of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialRecord {
    /// Its number in the sweep, from 1.
    pub number: u32,
    /// The values of the searched parameters: a JSON object.
    pub parameters: String,
    /// The identifier of its job, once the job is submitted.
    pub job: Option<String>,
    /// Its state.
    pub state: TrialState,
    /// The index of the rung that it runs to or is paused at. A trial that runs to its end has the number of rungs.
    pub rung: u32,
    /// The metric's value at each rung that it reached, and at its end; `None` if the value is not finite.
    pub rung_values: Vec<Option<f64>>,
    /// The reason for the state.
    pub reason: StateReason,
    /// The trial whose state it continues from; `None` if it has the initial state of the sweep's job. Its values at the
    /// rungs up to that state are those of the parent.
    pub parent: Option<TrialParent>,
}

/// The trial that a trial of a population continues from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialParent {
    /// The member of the population in whose place the copy trains: the number of the member's first trial.
    pub member: u32,
    /// The number of the parent.
    pub trial: u32,
    /// The rung at which the parent was copied.
    pub rung: u32,
}

impl TrialRecord {
    /// Returns the member of the population that it belongs to: the number of the member's first trial.
    pub fn member(&self) -> u32 {
        self.parent.as_ref().map_or(self.number, |parent| parent.member)
    }

    /// Returns the values at its rungs as text, from which [`TrialRecord::parse_rung_values`] reads the same bits. JSON
    /// would not do: its reader can return a neighbour of the written number, and a trial would change its rank.
    pub fn rung_values_text(&self) -> String {
        let word = |value: &Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:?}"));
        self.rung_values.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    /// Reads the text of [`TrialRecord::rung_values_text`]. Returns `None` if it is not one.
    pub fn parse_rung_values(text: &str) -> Option<Vec<Option<f64>>> {
        let value = |word: &str| if word == "-" { Some(None) } else { word.parse().ok().map(Some) };
        text.split(' ').filter(|word| !word.is_empty()).map(value).collect()
    }
}

/// A decision about a sweep: what follows from its trials.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SweepDecision {
    /// New trials, and those that changed.
    pub trials: Vec<TrialRecord>,
    /// The state of the sweep and its reason, if it is over.
    pub end: Option<(SweepState, StateReason)>,
}

impl SweepDecision {
    /// Returns whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.trials.is_empty() && self.end.is_none()
    }
}

/// The records of sweeps. Each method is one transaction and can block on the disk.
pub trait SweepRecords: std::fmt::Debug + Send + Sync {
    /// Records a sweep in the state `Running`.
    ///
    /// # Errors
    /// Returns `Invalid` if the project's name, the specification or the key is not valid, or too many sweeps are not
    /// over; `Database`.
    fn create_sweep(&self, sweep: &NewSweep, now_ms: UnixMillis) -> Result<SweepRecord, RecordError>;

    /// Returns the sweep that was created with this idempotency key, or `None`.
    ///
    /// # Errors
    /// Returns `Database`.
    fn find_sweep_by_idempotency_key(&self, key: &str) -> Result<Option<SweepRecord>, RecordError>;

    /// Returns the sweep with this name or identifier, or `None`.
    ///
    /// # Errors
    /// Returns `Database`.
    fn find_sweep(&self, name_or_id: &str) -> Result<Option<SweepRecord>, RecordError>;

    /// Returns sweeps, newest first, at most `limits::SWEEPS_LISTED_MAX`. With `projects`, only those of these projects.
    ///
    /// # Errors
    /// Returns `Database`.
    fn list_sweeps(&self, projects: Option<&[String]>) -> Result<Vec<SweepRecord>, RecordError>;

    /// Returns the sweeps that are not settled, oldest first: those that are not over, and those whose jobs may still run.
    ///
    /// # Errors
    /// Returns `Database`.
    fn unsettled_sweeps(&self) -> Result<Vec<SweepRecord>, RecordError>;

    /// Returns the trials of a sweep, by number.
    ///
    /// # Errors
    /// Returns `Database`.
    fn trials(&self, sweep: &str) -> Result<Vec<TrialRecord>, RecordError>;

    /// Records a decision that follows from the records after `decisions` decisions. Returns `false`, and changes
    /// nothing, if there was another one since, or the sweep is over.
    ///
    /// # Errors
    /// Returns `Database`.
    fn record_decision(
        &self,
        sweep: &str,
        decisions: u64,
        decision: &SweepDecision,
        now_ms: UnixMillis,
    ) -> Result<bool, RecordError>;

    /// Records the job of a trial. The first one stays.
    ///
    /// # Errors
    /// Returns `Database`.
    fn set_trial_job(&self, sweep: &str, number: u32, job: &str) -> Result<(), RecordError>;

    /// Settles a sweep that is over: all its jobs are over too, or asked to stop.
    ///
    /// # Errors
    /// Returns `Database`.
    fn settle_sweep(&self, sweep: &str) -> Result<(), RecordError>;

    /// Stops a running sweep or resumes a stopped one, and counts as a decision. Returns `false` if the sweep does not
    /// exist or is over.
    ///
    /// # Errors
    /// Returns `Database`.
    fn set_sweep_stopped(&self, sweep: &str, reason: Option<&StateReason>) -> Result<bool, RecordError>;
}
