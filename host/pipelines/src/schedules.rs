//! Scheduled pipelines: cron lines of five fields, in UTC, as for jobs. A time that comes while the schedule's previous
//! run is not over is skipped. Of the times that passed while no server ran, only the last one counts.

use saggar_clock::UnixMillis;
use saggar_project::CronSchedule;
use saggar_store::AccessRights;
use saggar_store::records::PipelineSchedule;

use crate::error::PipelineError;
use crate::service::{PipelineService, RunRequest};

impl PipelineService {
    /// Sets a schedule, replacing one of the same name, which is that of the pipeline. Its first time is the next one
    /// after now.
    ///
    /// # Errors
    /// `Cron`; `ScheduledReuse`; the errors of [`PipelineService::check`]; `Records`.
    pub async fn set_schedule(
        &self,
        cron: &str,
        request: &RunRequest,
        rights: AccessRights,
    ) -> Result<PipelineSchedule, PipelineError> {
        let cron = CronSchedule::parse(cron).map_err(|error| PipelineError::Cron { reason: error.to_string() })?;
        PipelineService::check(request)?;
        if let Some(run) = &request.from_failed {
            return Err(PipelineError::ScheduledReuse { run: run.chars().take(80).collect() });
        }
        let now_ms = self.now_ms();
        let schedule = PipelineSchedule {
            name: request.plan.name.clone(),
            project: request.plan.project.clone(),
            cron: cron.as_str().to_owned(),
            request: serde_json::to_string(request).map_err(std::io::Error::other)?,
            owner: rights.key().map(str::to_owned),
            rights,
            created_ms: now_ms,
            settled_ms: now_ms,
            last_run: None,
        };
        let put = schedule.clone();
        self.with_records(move |records| records.put_pipeline_schedule(&put)).await?;
        self.wake();
        Ok(schedule)
    }

    /// Returns the schedules by name, each with its next time.
    ///
    /// # Errors
    /// `Records`.
    pub async fn schedules(&self) -> Result<Vec<(PipelineSchedule, Option<UnixMillis>)>, PipelineError> {
        let schedules = self.with_records(|records| records.pipeline_schedules()).await?;
        let now_ms = self.now_ms();
        let next = |schedule: &PipelineSchedule| CronSchedule::parse(&schedule.cron).ok()?.next_after(now_ms);
        Ok(schedules.into_iter().map(|schedule| (schedule.clone(), next(&schedule))).collect())
    }

    /// Removes a schedule; its runs stay.
    ///
    /// # Errors
    /// `NoSchedule`; `Records`.
    pub async fn remove_schedule(&self, name: &str) -> Result<(), PipelineError> {
        let asked = name.to_owned();
        match self.with_records(move |records| records.remove_pipeline_schedule(&asked)).await? {
            true => Ok(()),
            false => Err(PipelineError::NoSchedule { name: name.to_owned() }),
        }
    }
}

/// Starts the runs of schedules that are due.
pub(crate) async fn start_due_runs(service: &PipelineService) {
    let schedules = match service.with_records(|records| records.pipeline_schedules()).await {
        Ok(schedules) => schedules,
        Err(error) => return tracing::error!(%error, "schedules of pipelines cannot be read; trying again"),
    };
    for schedule in schedules {
        let name = schedule.name.clone();
        if let Err(error) = start_if_due(service, schedule).await {
            tracing::error!(schedule = name, %error, "a scheduled pipeline was not started");
        }
    }
}

async fn start_if_due(service: &PipelineService, schedule: PipelineSchedule) -> Result<(), PipelineError> {
    let now_ms = service.now_ms();
    let name = schedule.name.clone();
    if schedule.settled_ms > now_ms {
        // The clock was set back. A repeated time starts no second run, because its idempotency key is the same.
        tracing::warn!(schedule = name, "the clock was set back; its times count from now on");
        let reset = PipelineSchedule { settled_ms: now_ms, ..schedule };
        return service.with_records(move |records| records.put_pipeline_schedule(&reset)).await;
    }
    let Some(due_ms) =
        CronSchedule::parse(&schedule.cron).ok().and_then(|cron| cron.last_between(schedule.settled_ms, now_ms))
    else {
        return Ok(());
    };
    let previous = match &schedule.last_run {
        // A run that was removed is over.
        Some(last) => service.get(last).await.ok(),
        None => None,
    };
    let run = if previous.is_some_and(|run| !run.state.is_final()) {
        tracing::info!(schedule = name, "skipped: the previous run is not over");
        None
    } else {
        let request: RunRequest = serde_json::from_str(&schedule.request).map_err(std::io::Error::other)?;
        let key = Some(format!("pipeline schedule {name} {due_ms}"));
        match service.start(&request, schedule.rights.clone(), key).await {
            Ok(run) => {
                tracing::info!(schedule = name, run = run.name, "scheduled pipeline started");
                Some(run.name)
            }
            Err(error @ (PipelineError::Io(_) | PipelineError::Records(_))) => return Err(error),
            // Another try would be refused too.
            Err(error) => {
                tracing::error!(schedule = name, %error, "skipped: the pipeline cannot be started");
                None
            }
        }
    };
    service.with_records(move |records| records.advance_pipeline_schedule(&name, due_ms, run.as_deref())).await?;
    Ok(())
}
