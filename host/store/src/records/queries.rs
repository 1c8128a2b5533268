//! The queries of job records, the same for every database engine.
//!
//! Each method of [`JobRecords`] is one transaction of an engine ([`RecordsEngine`]). A transaction locks what it decides
//! about before it reads it.

use std::collections::HashMap;

use saggar_clock::UnixMillis;

use super::session::RecordsEngine;
use super::{
    ActiveJob, AnnotationChange, AttemptUsage, ClaimedJob, ExperimentCount, ExperimentMembers, JobAnnotations,
    JobAttempt, JobDetails, JobEvent, JobFilter, JobLease, JobMembership, JobRecord, JobRecords, JobSchedule, JobState,
    MetricPoint, NewJob, PausePoint, QueuedJob, StateReason, UsageTotal,
};
use crate::error::RecordError;

mod annotation;
mod attempt_host;
mod audit;
mod document;
pub(super) mod event;
mod host;
mod host_part;
mod job;
mod job_details;
mod key_usage;
mod lease;
mod log;
mod membership;
mod pause;
mod pipeline;
mod point_batch;
mod prediction;
mod publication;
mod queue;
mod removal;
mod row;
mod schedule;
mod series;
mod series_counts;
mod sweep;
mod thinning;
mod usage_totals;

/// Returns the limit of a listing; 0 means the maximum.
fn clamp_limit(limit: u32, max: u32) -> u32 {
    if limit == 0 { max } else { limit.min(max) }
}

/// Returns names as a text in which `instr` finds `,NAME,`. Names contain no commas.
fn comma_list(names: &[impl AsRef<str>]) -> String {
    names.iter().fold(",".to_owned(), |list, name| list + name.as_ref() + ",")
}

impl<E: RecordsEngine> JobRecords for E {
    fn submit(&self, job: &NewJob, now_ms: UnixMillis) -> Result<JobRecord, RecordError> {
        job::validate(job)?;
        self.write(|tx| job::submit(tx, job, now_ms))
    }

    fn find_by_idempotency_key(&self, key: &str) -> Result<Option<JobRecord>, RecordError> {
        self.read(|tx| job::find_by_idempotency_key(tx, key))
    }

    fn get(&self, name_or_id: &str) -> Result<JobRecord, RecordError> {
        self.read(|tx| job::get(tx, name_or_id))
    }

    fn list(&self, filter: &JobFilter) -> Result<Vec<JobRecord>, RecordError> {
        self.read(|tx| job::list(tx, filter))
    }

    fn projects(&self) -> Result<Vec<(String, UnixMillis, UnixMillis)>, RecordError> {
        self.read(job::projects)
    }

    fn count_by_state(&self) -> Result<Vec<(JobState, u64)>, RecordError> {
        self.read(job::count_by_state)
    }

    fn queued_jobs(&self) -> Result<Vec<QueuedJob>, RecordError> {
        self.read(queue::queued_jobs)
    }

    fn unfinished_specs_with(&self, text: &str) -> Result<Vec<String>, RecordError> {
        self.read(|tx| job::unfinished_specs_with(tx, text))
    }

    fn active_jobs(&self) -> Result<Vec<ActiveJob>, RecordError> {
        self.read(queue::active_jobs)
    }

    fn claim(&self, id: &str, pool: &str, now_ms: UnixMillis) -> Result<Option<ClaimedJob>, RecordError> {
        self.write(|tx| job::claim(tx, id, pool, now_ms))
    }

    fn take_over(&self, id: &str, now_ms: UnixMillis) -> Result<JobLease, RecordError> {
        self.write(|tx| job::take_over(tx, id, now_ms))
    }

    fn jobs_left_active(&self) -> Result<Vec<JobRecord>, RecordError> {
        self.read(job::list_active)
    }

    fn set_state(
        &self,
        lease: &JobLease,
        state: JobState,
        reason: &StateReason,
        now_ms: UnixMillis,
    ) -> Result<(), RecordError> {
        self.write(|tx| job::set_state(tx, lease, state, reason, now_ms))
    }

    fn set_device(&self, lease: &JobLease, device: &str, exact: bool) -> Result<(), RecordError> {
        self.write(|tx| job::set_device(tx, lease, device, exact))
    }

    fn record_progress(
        &self,
        lease: &JobLease,
        step: u64,
        steps_target: u64,
        usage: &AttemptUsage,
    ) -> Result<Option<StateReason>, RecordError> {
        self.write(|tx| job::record_progress(tx, lease, step, steps_target, usage))
    }

    fn record_metrics(&self, lease: &JobLease, points: &[MetricPoint]) -> Result<(), RecordError> {
        self.write(|tx| series::record_points(tx, lease, points))
    }

    fn record_event(&self, id: &str, kind: &str, text: &str, now_ms: UnixMillis) -> Result<(), RecordError> {
        self.write(|tx| {
            job::get_locked(tx, id)?;
            event::record(tx, id, kind, text, now_ms)
        })
    }

    fn finish_attempt(
        &self,
        lease: &JobLease,
        state: JobState,
        reason: &StateReason,
        usage: &AttemptUsage,
        now_ms: UnixMillis,
    ) -> Result<(), RecordError> {
        self.write(|tx| job::finish_attempt(tx, lease, state, reason, usage, now_ms))
    }

    fn finish_job(
        &self,
        lease: &JobLease,
        state: JobState,
        reason: &StateReason,
        now_ms: UnixMillis,
    ) -> Result<JobRecord, RecordError> {
        self.write(|tx| job::finish(tx, lease, state, reason, now_ms))
    }

    fn requeue(
        &self,
        lease: &JobLease,
        reason: &StateReason,
        not_before_ms: UnixMillis,
        now_ms: UnixMillis,
    ) -> Result<JobRecord, RecordError> {
        self.write(|tx| job::requeue(tx, lease, reason, not_before_ms, now_ms))
    }

    fn pause_at_point(
        &self,
        lease: &JobLease,
        point: &PausePoint,
        usage: &AttemptUsage,
        now_ms: UnixMillis,
    ) -> Result<JobRecord, RecordError> {
        self.write(|tx| pause::pause_at_point(tx, lease, point, usage, now_ms))
    }

    fn set_pause(&self, id: &str, point: Option<&PausePoint>, now_ms: UnixMillis) -> Result<JobRecord, RecordError> {
        point.map_or(Ok(()), PausePoint::validate)?;
        self.write(|tx| pause::set_pause(tx, id, point, now_ms))
    }

    fn request_stop(&self, id: &str, reason: &StateReason, now_ms: UnixMillis) -> Result<JobRecord, RecordError> {
        self.write(|tx| job::request_stop(tx, id, reason, now_ms))
    }

    fn remove(&self, id: &str) -> Result<JobRecord, RecordError> {
        while self.write(|tx| removal::remove_some_points(tx, id))? {
            self.free_log_space();
        }
        let job = self.write(|tx| removal::remove(tx, id))?;
        if let Err(error) = self.return_disk_space() {
            tracing::warn!(job = job.name, %error, "the disk space of its records was not freed; `saggar gc` tries again");
        }
        Ok(job)
    }

    fn compact(&self) -> Result<(), RecordError> {
        self.return_disk_space()
    }

    fn usage_totals(&self) -> Result<Vec<UsageTotal>, RecordError> {
        self.read(usage_totals::list)
    }

    fn attempts(&self, id: &str) -> Result<Vec<JobAttempt>, RecordError> {
        self.read(|tx| {
            job::get(tx, id)?;
            job_details::list_attempts(tx, id)
        })
    }

    fn series_names(&self, id: &str) -> Result<Vec<String>, RecordError> {
        self.read(|tx| series::names(tx, id))
    }

    fn series(&self, id: &str, name: &str, from_step: u64, limit: u32) -> Result<Vec<MetricPoint>, RecordError> {
        self.read(|tx| series::points(tx, id, name, from_step, limit))
    }

    fn job_details(&self, ids: &[String]) -> Result<HashMap<String, JobDetails>, RecordError> {
        self.read(|tx| job_details::read(tx, ids))
    }

    fn annotate(&self, name_or_id: &str, change: &AnnotationChange) -> Result<JobAnnotations, RecordError> {
        self.write(|tx| annotation::annotate(tx, name_or_id, change))
    }

    fn experiments(&self) -> Result<Vec<ExperimentCount>, RecordError> {
        self.read(annotation::experiments)
    }

    fn experiment_members(
        &self,
        experiment: &str,
        projects: Option<&[String]>,
    ) -> Result<ExperimentMembers, RecordError> {
        self.read(|tx| annotation::experiment_members(tx, experiment, projects))
    }

    fn job_membership(&self, name_or_id: &str) -> Result<JobMembership, RecordError> {
        self.read(|tx| membership::read(tx, name_or_id))
    }

    fn events(&self, id: Option<&str>, after: u64, limit: u32) -> Result<Vec<JobEvent>, RecordError> {
        self.read(|tx| event::list(tx, id, after, limit))
    }

    fn newest_events(&self, id: &str, limit: u32) -> Result<Vec<JobEvent>, RecordError> {
        self.read(|tx| event::list_newest(tx, id, limit))
    }

    fn events_of_kinds(&self, id: &str, kinds: &[&str]) -> Result<Vec<JobEvent>, RecordError> {
        self.read(|tx| event::list_of_kinds(tx, id, kinds))
    }

    fn count_events(&self, id: &str, kind: &str) -> Result<u64, RecordError> {
        self.read(|tx| event::count(tx, id, kind))
    }

    fn put_schedule(&self, schedule: &JobSchedule) -> Result<(), RecordError> {
        schedule::validate(schedule)?;
        self.write(|tx| schedule::put(tx, schedule))
    }

    fn schedules(&self) -> Result<Vec<JobSchedule>, RecordError> {
        self.read(schedule::list)
    }

    fn remove_schedule(&self, name: &str) -> Result<bool, RecordError> {
        self.write(|tx| schedule::remove(tx, name))
    }

    fn advance_schedule(&self, name: &str, due_ms: UnixMillis, job: Option<&str>) -> Result<bool, RecordError> {
        self.write(|tx| schedule::advance(tx, name, due_ms, job))
    }

    fn newest_event_sequence(&self) -> Result<u64, RecordError> {
        self.read(event::newest_sequence)
    }
}
