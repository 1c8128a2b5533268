//! What users write about jobs: tags and a note.

use std::collections::BTreeMap;

use crate::error::RecordError;
use crate::limits::{JOB_NOTE_BYTES_MAX, JOB_TAGS_MAX, TAG_NAME_BYTES_MAX, TAG_VALUE_BYTES_MAX};

/// The annotations of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobAnnotations {
    /// Tags by name.
    pub tags: BTreeMap<String, String>,
    /// The note; empty without one.
    pub note: String,
}

/// A change of a job's annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnotationChange {
    /// Tags that get a value.
    pub set: BTreeMap<String, String>,
    /// Names of tags that are removed; missing ones are ignored.
    pub remove: Vec<String>,
    /// The new note; empty removes it, `None` keeps it.
    pub note: Option<String>,
}

impl JobAnnotations {
    /// Applies a change.
    ///
    /// # Errors
    /// Returns `Invalid` if a name or value has an invalid length or character, or there would be too many tags.
    pub(super) fn apply(&mut self, change: &AnnotationChange) -> Result<(), RecordError> {
        let invalid = |field, value: &str, expected| {
            let value = value.chars().take(80).collect();
            Err(RecordError::Invalid { field, value, expected })
        };
        for name in &change.remove {
            self.tags.remove(name);
        }
        for (name, value) in &change.set {
            let is_printable = !name.chars().any(|c| c.is_control() || c.is_whitespace() || c == '=');
            if name.is_empty() || name.len() > TAG_NAME_BYTES_MAX || !is_printable {
                return invalid("tag", name, "must have a name of 1 to 63 bytes without spaces and `=`");
            }
            if value.len() > TAG_VALUE_BYTES_MAX || value.chars().any(char::is_control) {
                return invalid("tag", value, "must have a value of at most 500 bytes in one line");
            }
            self.tags.insert(name.clone(), value.clone());
        }
        if self.tags.len() > JOB_TAGS_MAX {
            let count = self.tags.len().to_string();
            return invalid("tags", &count, "must be at most 50; `saggar tag JOB --rm NAME` removes one");
        }
        if let Some(note) = &change.note {
            if note.len() > JOB_NOTE_BYTES_MAX {
                return invalid("note", note, "must have at most 16 KiB");
            }
            self.note.clone_from(note);
        }
        Ok(())
    }
}

/// An experiment in one project: the number of its jobs in a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExperimentCount {
    /// The experiment.
    pub experiment: String,
    /// The project.
    pub project: String,
    /// The state.
    pub state: super::JobState,
    /// The number of jobs.
    pub jobs: u64,
    /// The time of the oldest submission.
    pub created_ms: saggar_clock::UnixMillis,
    /// The time of the last change.
    pub changed_ms: saggar_clock::UnixMillis,
}

/// The pipeline runs and sweeps that have jobs of an experiment, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExperimentMembers {
    /// The pipeline runs.
    pub pipeline_runs: Vec<ExperimentMember>,
    /// The sweeps.
    pub sweeps: Vec<ExperimentMember>,
}

/// A pipeline run or a sweep that has jobs of an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExperimentMember {
    /// Its name.
    pub name: String,
    /// Its project.
    pub project: String,
    /// The name of its state.
    pub state: String,
    /// When it was created.
    pub created_ms: saggar_clock::UnixMillis,
    /// The number of its jobs that are in the experiment.
    pub jobs: u64,
}
