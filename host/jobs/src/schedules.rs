//! Scheduled jobs: cron expressions of five fields, in UTC. A time that comes while the schedule's previous job is not
//! over is skipped. Times that passed while no server ran are skipped too, except the last one.

use std::sync::Arc;

use saggar_clock::UnixMillis;
use saggar_project::CronSchedule;
use saggar_store::records::JobSchedule;
use saggar_store::{AccessAction, AccessRights, JobState};

use crate::JobService;
use crate::commands::JobSubmission;
use crate::effects::JobEffect;
use crate::error::JobError;
use crate::shared::SharedState;
use crate::spec::JobSpec;

impl JobService {
    /// Sets a schedule, replacing one of the same name. Its first time is the next one after now.
    ///
    /// # Errors
    /// `Cron`; `Spec`; `Records` if its name is invalid.
    pub async fn set_schedule(
        &self,
        name: &str,
        cron: &str,
        spec: &JobSpec,
        rights: AccessRights,
    ) -> Result<JobSchedule, JobError> {
        let wrong = |error: saggar_project::CronError| JobError::Cron { reason: error.to_string() };
        let cron = CronSchedule::parse(cron).map_err(wrong)?;
        self.validate_spec(spec)?;
        let now_ms = self.shared.clock.now_ms();
        let schedule = JobSchedule {
            name: name.to_owned(),
            cron: cron.as_str().to_owned(),
            spec: serde_json::to_string(spec).expect("a specification is plain data"),
            owner: rights.key().map(str::to_owned),
            rights,
            created_ms: now_ms,
            settled_ms: now_ms,
            last_job: None,
        };
        let put = schedule.clone();
        self.shared.with_records(move |records| records.put_schedule(&put)).await?;
        self.shared.wake_scheduler();
        Ok(schedule)
    }

    /// Returns the schedules by name, each with its next time.
    ///
    /// # Errors
    /// `Records`.
    pub async fn schedules(&self) -> Result<Vec<(JobSchedule, Option<UnixMillis>)>, JobError> {
        let schedules = self.shared.with_records(|records| records.schedules()).await?;
        let now_ms = self.shared.clock.now_ms();
        let timed = |schedule: JobSchedule| {
            let next = CronSchedule::parse(&schedule.cron).ok().and_then(|cron| cron.next_after(now_ms));
            (schedule, next)
        };
        Ok(schedules.into_iter().map(timed).collect())
    }

    /// Removes a schedule; its jobs stay.
    ///
    /// # Errors
    /// `NotFound`; `Records`.
    pub async fn remove_schedule(&self, name: &str) -> Result<(), JobError> {
        let asked = name.to_owned();
        if self.shared.with_records(move |records| records.remove_schedule(&asked)).await? {
            return Ok(());
        }
        Err(JobError::no_schedule(name))
    }
}

/// Submits the jobs of schedules that are due.
pub(crate) async fn submit_due_jobs(shared: &Arc<SharedState>) {
    let schedules = match shared.with_records(|records| records.schedules()).await {
        Ok(schedules) => schedules,
        Err(error) => return tracing::error!(%error, "schedules cannot be read; trying again"),
    };
    for schedule in schedules {
        let name = schedule.name.clone();
        if let Err(error) = submit_if_due(shared, schedule).await {
            tracing::error!(schedule = name, %error, "a scheduled job was not submitted");
        }
    }
}

/// Returns the last time of a schedule that is due and not handled, or `None`.
fn last_due_time(schedule: &JobSchedule, now_ms: UnixMillis) -> Option<UnixMillis> {
    CronSchedule::parse(&schedule.cron).ok()?.last_between(schedule.settled_ms, now_ms)
}

async fn submit_if_due(shared: &Arc<SharedState>, schedule: JobSchedule) -> Result<(), JobError> {
    let now_ms = shared.clock.now_ms();
    if schedule.settled_ms > now_ms {
        // The clock was set back. A repeated time creates no second job, because its idempotency key is the same.
        tracing::warn!(schedule = schedule.name, "the clock was set back; its times count from now on");
        let reset = JobSchedule { settled_ms: now_ms, ..schedule };
        shared.with_records(move |records| records.put_schedule(&reset)).await?;
        return Ok(());
    }
    let Some(due_ms) = last_due_time(&schedule, now_ms) else { return Ok(()) };
    if let Some(last) = &schedule.last_job {
        let last = last.clone();
        let state = shared.with_records(move |records| records.get(&last)).await.map(|job| job.state);
        if state.is_ok_and(|state: JobState| !state.is_final()) {
            tracing::info!(schedule = schedule.name, "skipped: the previous job is not over");
            shared.with_records(move |records| records.advance_schedule(&schedule.name, due_ms, None)).await?;
            return Ok(());
        }
    }
    let unreadable = |error: serde_json::Error| JobError::Override { reason: error.to_string() };
    let spec: JobSpec = serde_json::from_str(&schedule.spec).map_err(unreadable)?;
    // The key prevents a second job if a time is handled twice, as after a server was killed in between.
    let idempotency_key = Some(format!("schedule {} {due_ms}", schedule.name));
    let jobs = JobService::from_shared(Arc::clone(shared));
    let (project, rights, secrets) = (spec.project.clone(), schedule.rights, spec.secrets.clone());
    let submitted = match shared.resolve_spec(spec, rights.clone()).await {
        Ok(spec) => {
            let (owner, rights) = (schedule.owner, rights.clone());
            jobs.submit(JobSubmission { spec, owner, rights, pause: None, idempotency_key, trace: None }).await
        }
        Err(error) => Err(error),
    };
    let detail = match &submitted {
        Err(error) => format!("by schedule {}: {error}", schedule.name),
        Ok(_) => format!("by schedule {}", schedule.name),
    };
    let (is_done, thing) = (submitted.is_ok(), submitted.as_ref().map_or("", |job| &job.name).to_owned());
    for secret in secrets.into_iter().filter(|_| is_done) {
        let (effect, detail) = (AccessAction::UseSecret, format!("in job {thing}"));
        let (rights, project) = (rights.clone(), project.clone());
        shared.log_effect(&JobEffect { effect, thing: secret, rights, project, detail, is_done });
    }
    shared.log_effect(&JobEffect { effect: AccessAction::SubmitJob, thing, rights, project, detail, is_done });
    let job = match submitted {
        Ok(job) => {
            tracing::info!(schedule = schedule.name, job = job.name, "scheduled job submitted");
            Some(job.name)
        }
        Err(error) if error.is_server_fault() => return Err(error),
        // A retry a second later would be refused too; the missing thing may exist at the next time.
        Err(error) => {
            tracing::error!(schedule = schedule.name, %error, "skipped: the job cannot be submitted");
            None
        }
    };
    shared.with_records(move |records| records.advance_schedule(&schedule.name, due_ms, job.as_deref())).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    fn schedule(settled_ms: UnixMillis) -> JobSchedule {
        JobSchedule {
            name: "s".to_owned(),
            cron: "*/10 * * * *".to_owned(),
            spec: "{}".to_owned(),
            owner: None,
            rights: AccessRights::default(),
            created_ms: 0,
            settled_ms,
            last_job: None,
        }
    }

    #[test]
    fn a_schedule_time_is_due_once() {
        let noon = 1_795_262_400_000;
        assert_eq!(last_due_time(&schedule(noon), noon + 9 * MINUTE), None);
        assert_eq!(last_due_time(&schedule(noon), noon + 10 * MINUTE), Some(noon + 10 * MINUTE));
        assert_eq!(last_due_time(&schedule(noon + 10 * MINUTE), noon + 10 * MINUTE + 1), None);
    }

    #[test]
    fn only_the_last_missed_schedule_time_is_due() {
        let noon = 1_795_262_400_000;
        assert_eq!(last_due_time(&schedule(noon), noon + 65 * MINUTE), Some(noon + 60 * MINUTE));
        let year = 365 * 24 * 60 * MINUTE;
        assert_eq!(last_due_time(&schedule(noon), noon + year + 5 * MINUTE), Some(noon + year));
        // After the clock was set back, nothing is due until its time comes again.
        assert_eq!(last_due_time(&schedule(noon), noon - year), None);
    }
}
