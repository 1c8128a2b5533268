//! What jobs and schedules did to things outside of them, or were refused: for whoever keeps the audit log.

use saggar_store::{AccessAction, AccessRights};

/// An effect of a job or a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEffect {
    /// What was done, or wanted.
    pub effect: AccessAction,
    /// The thing's name.
    pub thing: String,
    /// Whose rights were asked.
    pub rights: AccessRights,
    /// The project that it was done in.
    pub project: String,
    /// For people: `version 3 by job digits-7`.
    pub detail: String,
    /// Whether it was done; else it was refused.
    pub is_done: bool,
}

/// What there is to say in a job's log of the version of a model that it published, a line each. Called from the tasks of
/// supervisors; may wait for a small file to be read.
pub type PublicationNotes = Box<dyn Fn(&str, u64) -> Vec<String> + Send + Sync>;

/// Writes effects down. Called from the tasks of supervisors and of the scheduler; may wait for an append to a file.
pub type EffectLog = Box<dyn Fn(&JobEffect) + Send + Sync>;
