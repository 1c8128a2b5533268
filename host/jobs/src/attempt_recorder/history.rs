//! What the records say about a job when its next attempt begins.

use saggar_store::records::{JobRecord, JobRecords};

use super::{AttemptRecorder, EXTENDED_EVENT};
use crate::error::JobError;
use crate::spec::RetryCause;

/// The history of a job's earlier attempts.
pub(crate) struct AttemptHistory {
    /// Seconds that they ran.
    pub(crate) wall_seconds: f64,
    /// The number of attempts whose end counts against the job's retries.
    pub(crate) interruptions: u32,
    /// The number of extensions of the job's running time.
    pub(crate) extensions: u32,
}

impl AttemptRecorder {
    /// Returns the history of the attempts before this one.
    pub(crate) async fn history(&mut self) -> Result<AttemptHistory, JobError> {
        let id = self.lease.job.clone();
        let read =
            move |records: &dyn JobRecords| Ok((records.attempts(&id)?, records.count_events(&id, EXTENDED_EVENT)?));
        let (attempts, extensions) = self.shared.with_records(read).await?;
        let before = attempts.iter().filter(|attempt| attempt.number < self.lease.attempt);
        self.previous_cause =
            before.clone().next_back().map_or_else(String::new, |attempt| attempt.reason.code.clone());
        let counts = |code: &str| RetryCause::from_code(code).is_some_and(RetryCause::counts_against_retries);
        let interruptions = before.clone().filter(|attempt| counts(&attempt.reason.code)).count();
        Ok(AttemptHistory {
            wall_seconds: before.map(|attempt| attempt.usage.wall_seconds).sum(),
            interruptions: u32::try_from(interruptions).unwrap_or(u32::MAX),
            extensions: u32::try_from(extensions).unwrap_or(u32::MAX),
        })
    }

    /// Returns the step from which a checkpoint includes all that the job's pause waits for: the pause's step, or the
    /// step of the metric's first value there. `None` if the job is not to pause, or that is not recorded yet.
    pub(crate) async fn paused_from(&self, job: &JobRecord) -> Result<Option<u64>, JobError> {
        let Some(point) = &job.pause else { return Ok(None) };
        let Some(at) = point.at.resolve(job.steps_target) else { return Ok(None) };
        let Some(metric) = point.metric.clone() else { return Ok(Some(at)) };
        let id = self.lease.job.clone();
        let points = self.shared.with_records(move |records| records.series(&id, &metric, at, 1)).await?;
        Ok(points.first().map(|point| point.step))
    }
}
