//! What queries about jobs select by, and what they return besides the jobs.

use saggar_clock::UnixMillis;
use serde::Serialize;

use super::{JobAnnotations, JobAttempt, JobState};

/// One value of a named series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricPoint {
    /// The name of the series, such as `loss`.
    pub name: String,
    /// The step.
    pub step: u64,
    /// The value; can be infinite or NaN.
    pub value: f64,
    /// The time of measurement.
    pub at_ms: UnixMillis,
}

/// The data needed to show a job besides its [`JobRecord`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobDetails {
    /// The job's attempts, in order.
    pub attempts: Vec<JobAttempt>,
    /// The last point of each series, sorted by name, from the newest attempt that has any points.
    pub latest: Vec<MetricPoint>,
    /// What users wrote about the job.
    pub annotations: JobAnnotations,
}

/// An event of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobEvent {
    /// Increases with every event of any job; the cursor of [`JobRecords::events`].
    pub sequence: u64,
    /// The job's identifier.
    pub job: String,
    /// The time of the event.
    pub at_ms: UnixMillis,
    /// The kind in `UPPER_SNAKE`, such as `CLAIMED` or `CHECKPOINT_SAVED`.
    pub kind: String,
    /// One sentence.
    pub text: String,
}

/// A filter for listing jobs, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFilter {
    /// Only jobs in these states; all if empty.
    pub states: Vec<JobState>,
    /// Only jobs of this project.
    pub project: Option<String>,
    /// Only jobs of one of these projects, in addition to `project`. An empty list matches no job.
    pub projects: Option<Vec<String>>,
    /// Only jobs of this experiment.
    pub experiment: Option<String>,
    /// The maximum number of jobs; 0 means `limits::JOBS_LISTED_MAX`.
    pub limit: u32,
    /// Only jobs older than the one with this cursor.
    pub before: Option<u64>,
}
