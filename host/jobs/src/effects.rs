//! Effects of jobs and schedules on other things, or their refusals, for the audit log.

use saggar_store::{AccessAction, AccessRights};

/// An effect of a job or a schedule, or an attempt that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEffect {
    /// The action.
    pub effect: AccessAction,
    /// The name of the affected thing.
    pub thing: String,
    /// The rights that were checked.
    pub rights: AccessRights,
    /// The project of the job or schedule.
    pub project: String,
    /// A description for people: `version 3 by job digits-7`.
    pub detail: String,
    /// Whether it was done; `false` if it was refused.
    pub is_done: bool,
}

/// Returns lines for a job's log about the model version that it published. Called from supervisor tasks; may block to
/// read a small file.
pub type PublicationNotes = Box<dyn Fn(&str, u64) -> Vec<String> + Send + Sync>;

/// Writes effects to the audit log. Called from the tasks of supervisors and of the scheduler; may block to append to a
/// file.
pub type EffectLog = Box<dyn Fn(&JobEffect) + Send + Sync>;
