//! The jobs of trials: submitted, paused, continued and stopped as the records say.

use saggar_jobs::{CheckpointSelector, InitFrom, JobError, JobSpec, JobSubmission};
use saggar_store::records::{
    JobRecord, PausePoint, StateReason, SweepRecord, SweepState, TrialParent, TrialRecord, TrialState,
};
use serde_json::{Map, Value};

use crate::SweepService;
use crate::error::SweepError;
use crate::spec::ValidSweep;

impl SweepService {
    /// Makes the job of a trial follow the records. Repeating it changes nothing. `parent` is the job of the trial that it
    /// continues from.
    pub(crate) async fn settle_trial(
        &self,
        record: &SweepRecord,
        sweep: &ValidSweep,
        trial: &mut TrialRecord,
        parent: Option<&str>,
    ) -> Result<(), SweepError> {
        match trial.state {
            TrialState::Running => self.run_job(record, sweep, trial, parent).await,
            TrialState::Stopped => self.stop_job(record, trial).await,
            TrialState::Paused | TrialState::Completed | TrialState::Failed => Ok(()),
        }
    }

    async fn run_job(
        &self,
        record: &SweepRecord,
        sweep: &ValidSweep,
        trial: &mut TrialRecord,
        parent: Option<&str>,
    ) -> Result<(), SweepError> {
        let point = match record.state {
            SweepState::Stopped => Some(PausePoint::now()),
            SweepState::Running | SweepState::Succeeded | SweepState::Failed => sweep.pause_point(trial.rung),
        };
        let job = match &trial.job {
            Some(job) => self.find_job(job).await?,
            None if record.state == SweepState::Stopped => return Ok(()),
            None => {
                let mut spec = trial_spec(record, sweep, trial)?;
                if let Some(origin) = &trial.parent {
                    spec.init_from = Some(parent_state(parent, origin)?);
                }
                let job = self.submit_job(record, trial, spec, point.clone()).await?;
                self.set_job(record, trial, &job).await?;
                Some(job)
            }
        };
        // A job that is gone or over is observed, not changed.
        let Some(job) = job.filter(|job| !job.state.is_final() && job.stop.is_none()) else { return Ok(()) };
        if job.pause == point {
            return Ok(());
        }
        match self.shared.jobs.set_pause(&job.id, point).await {
            // It ended, or was removed, in between.
            Err(JobError::State { .. } | JobError::NotFound { .. }) => Ok(()),
            set => Ok(set.map(drop)?),
        }
    }

    async fn stop_job(&self, record: &SweepRecord, trial: &mut TrialRecord) -> Result<(), SweepError> {
        let job = match &trial.job {
            Some(job) => self.find_job(job).await?,
            // A server that was killed can have submitted it without recording that.
            None => self.shared.jobs.job_by_idempotency_key(&idempotency_key(record, trial)).await?,
        };
        let Some(job) = job else { return Ok(()) };
        if trial.job.is_none() {
            self.set_job(record, trial, &job).await?;
        }
        if job.state.is_final() || job.stop.is_some() {
            return Ok(());
        }
        let StateReason { code, sentence } = &trial.reason;
        let reason = StateReason::new(code, format!("stopped by {}: {sentence}", record.name));
        match self.shared.jobs.stop(&job.id, reason).await {
            Err(JobError::State { .. } | JobError::NotFound { .. }) => Ok(()),
            stopped => Ok(stopped.map(drop)?),
        }
    }

    async fn find_job(&self, id: &str) -> Result<Option<JobRecord>, SweepError> {
        match self.shared.jobs.get(id).await {
            Ok(job) => Ok(Some(job)),
            Err(JobError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn submit_job(
        &self,
        record: &SweepRecord,
        trial: &TrialRecord,
        spec: JobSpec,
        pause: Option<PausePoint>,
    ) -> Result<JobRecord, SweepError> {
        let submission = JobSubmission {
            spec,
            owner: record.owner.clone(),
            rights: record.rights.clone(),
            pause,
            idempotency_key: Some(idempotency_key(record, trial)),
            trace: None,
        };
        Ok(self.shared.jobs.submit_later(submission, &format!("sweep {}", record.name)).await?)
    }

    async fn set_job(&self, record: &SweepRecord, trial: &mut TrialRecord, job: &JobRecord) -> Result<(), SweepError> {
        let (sweep, number, id) = (record.id.clone(), trial.number, job.id.clone());
        self.with_records(move |records| records.set_trial_job(&sweep, number, &id)).await?;
        trial.job = Some(job.id.clone());
        Ok(())
    }
}

/// Returns the key under which the job of a trial is submitted, however often that is.
fn idempotency_key(record: &SweepRecord, trial: &TrialRecord) -> String {
    format!("sweep {} trial {}", record.id, trial.number)
}

/// Returns the state of the trial that a copy continues from: its newest checkpoint. It is resolved to a step when the job
/// of the copy is submitted, and the parent is paused at that state until then.
fn parent_state(job: Option<&str>, parent: &TrialParent) -> Result<InitFrom, SweepError> {
    let job = job.ok_or_else(|| JobError::no_job(&format!("of trial {}", parent.trial)))?.to_owned();
    Ok(InitFrom::Checkpoint { job, which: CheckpointSelector::Latest })
}

/// Returns the specification of a trial's job. Its experiment is the sweep, unless the sweep's job names one.
fn trial_spec(record: &SweepRecord, sweep: &ValidSweep, trial: &TrialRecord) -> Result<JobSpec, SweepError> {
    let mut spec = sweep.spec.job.clone();
    let chosen: Map<String, Value> = serde_json::from_str(&trial.parameters).map_err(std::io::Error::other)?;
    spec.parameters.extend(chosen);
    spec.experiment.get_or_insert_with(|| record.name.clone());
    spec.message = Some(format!("trial {} of {}", trial.number, record.name));
    Ok(spec)
}
