//! Commands of users for jobs.

use std::collections::BTreeSet;

use saggar_compile::{DisabledOptimizations, Optimization};
use saggar_store::error::RecordError;
use saggar_store::records::{
    AnnotationChange, ExperimentCount, ExperimentMembers, JobAnnotations, JobFilter, JobOrder, JobRecord, JobRecords,
    NewJob, PausePoint, StateReason,
};
use saggar_store::{AccessAction, AccessRights, JobState};
use saggar_telemetry::TraceContext;
use serde_json::{Map, Value};

use crate::JobService;
use crate::effects::JobEffect;
use crate::error::JobError;
use crate::job_trace::{TRACE_EVENT, event_text};
use crate::spec::{CheckpointSelector, InitFrom, JobSpec, PREEMPTED};

/// A job to be submitted.
#[derive(Clone, Debug)]
pub struct JobSubmission {
    /// The specification. The caller has checked that the plugin and the datasets exist, and has filled in their
    /// versions.
    pub spec: JobSpec,
    /// The name of the submitting key.
    pub owner: Option<String>,
    /// The access rights of that key.
    pub rights: AccessRights,
    /// Where the job pauses first.
    pub pause: Option<PausePoint>,
    /// A submission with an already used key returns the existing job.
    pub idempotency_key: Option<String>,
    /// The trace context of the request, which caused the job.
    pub trace: Option<TraceContext>,
}

impl JobService {
    /// Records a job and queues it.
    ///
    /// # Errors
    /// `Spec`; `NoQueue`; `Records`, also if too many jobs are queued.
    pub async fn submit(&self, submission: JobSubmission) -> Result<JobRecord, JobError> {
        let JobSubmission { spec, owner, rights, pause, idempotency_key, trace } = submission;
        self.validate_spec(&spec)?;
        let job = NewJob {
            project: spec.project.clone(),
            task: spec.task.clone(),
            spec: serde_json::to_string(&spec).expect("a specification is plain data"),
            demand: spec.demand(),
            experiment: spec.experiment.clone(),
            owner,
            rights,
            pause,
            idempotency_key,
            storage: self.shared.server().storage.clone(),
            ..NewJob::default()
        };
        let now_ms = self.shared.clock.now_ms();
        let submit = move |records: &dyn JobRecords| {
            let job = records.submit(&job, now_ms)?;
            // A repeated submission returns the job of the first one, which has the trace of that one.
            if let Some(context) = trace.filter(|_| job.created_ms == now_ms && job.attempts == 0) {
                records.record_event(&job.id, TRACE_EVENT, &event_text(&context), now_ms)?;
            }
            Ok(job)
        };
        let job = self.shared.with_records(submit).await?;
        self.shared.metrics.families.jobs_submitted.with_label_values(&[&spec.project, &spec.task]).inc();
        self.shared.wake_scheduler();
        self.shared.notify_change();
        Ok(job)
    }

    /// Submits a job with the current rights of a key, whenever that is: its references are resolved now, and the effect
    /// log says that `cause` submitted it. If a job was submitted under the idempotency key before, returns that one.
    ///
    /// # Errors
    /// Those of [`JobService::submit`]; `Unresolved` if the rights are no longer sufficient or a reference cannot be
    /// resolved.
    pub async fn submit_later(&self, submission: JobSubmission, cause: &str) -> Result<JobRecord, JobError> {
        if let Some(key) = &submission.idempotency_key
            && let Some(job) = self.job_by_idempotency_key(key).await?
        {
            return Ok(job);
        }
        let (rights, project, secrets) =
            (submission.rights.clone(), submission.spec.project.clone(), submission.spec.secrets.clone());
        let submitted = match self.shared.resolve_spec(submission.spec.clone(), rights.clone()).await {
            Ok(spec) => self.submit(JobSubmission { spec, ..submission }).await,
            Err(error) => Err(error),
        };
        let detail = match &submitted {
            Err(error) => format!("by {cause}: {error}"),
            Ok(_) => format!("by {cause}"),
        };
        let (is_done, name) = (submitted.is_ok(), submitted.as_ref().map_or("", |job| &job.name).to_owned());
        let log = |effect, thing, detail| {
            let (rights, project) = (rights.clone(), project.clone());
            self.shared.log_effect(&JobEffect { effect, thing, rights, project, detail, is_done });
        };
        for secret in secrets.into_iter().filter(|_| is_done) {
            log(AccessAction::UseSecret, secret, format!("in job {name}"));
        }
        log(AccessAction::SubmitJob, name, detail);
        submitted
    }

    /// Returns the job that was submitted under this idempotency key, or `None`.
    ///
    /// # Errors
    /// `Records`.
    pub async fn job_by_idempotency_key(&self, key: &str) -> Result<Option<JobRecord>, JobError> {
        let key = key.to_owned();
        self.shared.with_records(move |records| records.find_by_idempotency_key(&key)).await
    }

    /// Checks that a job could be submitted: its specification is valid and its queue exists.
    ///
    /// # Errors
    /// `Spec`; `NoQueue`.
    pub fn validate_spec(&self, spec: &JobSpec) -> Result<(), JobError> {
        spec.validate()?;
        let layout = self.scheduler_config();
        if layout.queues.contains_key(&spec.queue) {
            return Ok(());
        }
        let known = layout.queues.keys().cloned().collect::<Vec<_>>().join(", ");
        Err(JobError::NoQueue { queue: spec.queue.clone(), known })
    }

    /// Asks a job to stop. A running one saves its state first.
    ///
    /// # Errors
    /// `NotFound`; `State` if the job is over; `Records`.
    pub async fn stop(&self, name: &str, reason: StateReason) -> Result<JobRecord, JobError> {
        let (name, now_ms) = (name.to_owned(), self.shared.clock.now_ms());
        let stop = move |records: &dyn JobRecords| {
            let id = records.get(&name)?.id;
            records.request_stop(&id, &reason, now_ms)
        };
        let job = self.shared.with_records(stop).await?;
        self.shared.update_control(&job.id, |orders| orders.stop = true);
        self.shared.notify_change();
        Ok(job)
    }

    /// Sets where a training pauses; `None` lets it continue to its end. A running job saves its state at the first step
    /// boundary at or after the point, and then waits without a device until the point is set again.
    ///
    /// # Errors
    /// `NotFound`; `State` if the job is over or is no training; `Records` if the point is not valid or the job is being
    /// stopped.
    pub async fn set_pause(&self, name: &str, point: Option<PausePoint>) -> Result<JobRecord, JobError> {
        let job = self.get(name).await?;
        let trains = |spec: JobSpec| spec.predict.is_none() && !spec.measure && spec.replay.is_none();
        if !serde_json::from_str(&job.spec).is_ok_and(trains) {
            let (state, hint) = (job.state.name().to_owned(), "only a training can be paused".to_owned());
            return Err(JobError::State { name: job.name, state, hint });
        }
        let (id, set, now_ms) = (job.id, point.clone(), self.shared.clock.now_ms());
        let job = self.shared.with_records(move |records| records.set_pause(&id, set.as_ref(), now_ms)).await?;
        self.shared.update_control(&job.id, |orders| orders.pause = point);
        self.shared.wake_scheduler();
        self.shared.notify_change();
        Ok(job)
    }

    /// Preempts a running job, also of another server: it saves its state and is queued again.
    ///
    /// # Errors
    /// `NotFound`; `State` if the job does not run; `Records`.
    pub async fn preempt(&self, name: &str) -> Result<JobRecord, JobError> {
        let job = self.get(name).await?;
        let reason = StateReason::new(PREEMPTED, "preempted by a user");
        if !self.shared.request_requeue(&job.id, reason.clone())
            && !self.order_elsewhere(&job, JobOrder::Preempt(reason)).await?
        {
            let (state, hint) = (job.state.name().to_owned(), "only a running job can be preempted".to_owned());
            return Err(JobError::State { name: job.name, state, hint });
        }
        Ok(job)
    }

    /// Changes the tags and the note of a job, which can have ended.
    ///
    /// # Errors
    /// `NotFound`; `Records` if a tag or the note is not valid.
    pub async fn annotate(&self, id: &str, change: AnnotationChange) -> Result<JobAnnotations, JobError> {
        let id = id.to_owned();
        let annotated = self.shared.with_records(move |records| records.annotate(&id, &change)).await?;
        self.shared.notify_change();
        Ok(annotated)
    }

    /// Returns the experiments that have jobs, with the number of jobs by project and state, sorted.
    ///
    /// # Errors
    /// `Records`.
    pub async fn experiments(&self) -> Result<Vec<ExperimentCount>, JobError> {
        self.shared.with_records(|records| records.experiments()).await
    }

    /// Returns the newest pipeline runs and sweeps of these projects that have jobs of the experiment. `None` means all
    /// projects.
    ///
    /// # Errors
    /// `Records`.
    pub async fn experiment_members(
        &self,
        experiment: String,
        projects: Option<Vec<String>>,
    ) -> Result<ExperimentMembers, JobError> {
        self.shared.with_records(move |records| records.experiment_members(&experiment, projects.as_deref())).await
    }

    /// Asks a running job, also of another server, for a checkpoint at its next step boundary. Returns `false` if the
    /// job does not run.
    ///
    /// # Errors
    /// `Records`.
    pub async fn request_checkpoint(&self, job: &JobRecord) -> Result<bool, JobError> {
        if self.shared.update_control(&job.id, |orders| orders.checkpoints += 1) {
            return Ok(true);
        }
        self.order_elsewhere(job, JobOrder::Checkpoint).await
    }

    /// Records an order for a job that another server runs. Returns `false` if none does.
    async fn order_elsewhere(&self, job: &JobRecord, order: JobOrder) -> Result<bool, JobError> {
        if !self.shared.records.is_shared() || !job.state.is_active() {
            return Ok(false);
        }
        let id = job.id.clone();
        match self.shared.with_records(move |records| records.order(&id, &order)).await {
            Ok(_) => Ok(true),
            // It has ended meanwhile.
            Err(JobError::Records(RecordError::Invalid { .. }) | JobError::State { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the jobs that are not over with their specifications, newest first. Jobs whose specification cannot be
    /// read are skipped.
    ///
    /// # Errors
    /// `Records`.
    pub async fn unfinished_jobs(&self) -> Result<Vec<(JobRecord, JobSpec)>, JobError> {
        let states = JobState::ALL.into_iter().filter(|state| !state.is_final()).collect();
        let mut filter = JobFilter { states, ..JobFilter::default() };
        let mut unfinished = Vec::new();
        loop {
            let jobs = self.list(filter.clone()).await?;
            let Some(last) = jobs.last() else { return Ok(unfinished) };
            filter.before = Some(last.cursor);
            let spec = |job: JobRecord| serde_json::from_str(&job.spec).ok().map(|spec| (job, spec));
            unfinished.extend(jobs.into_iter().filter_map(spec));
        }
    }

    /// Returns the newest finished jobs with their specifications; at most `JOBS_LISTED_MAX`.
    ///
    /// # Errors
    /// `Records`.
    pub async fn newest_finished_jobs(&self) -> Result<Vec<(JobRecord, JobSpec)>, JobError> {
        let states = JobState::ALL.into_iter().filter(|state| state.is_final()).collect();
        let jobs = self.list(JobFilter { states, ..JobFilter::default() }).await?;
        let spec = |job: JobRecord| serde_json::from_str(&job.spec).ok().map(|spec| (job, spec));
        Ok(jobs.into_iter().filter_map(spec).collect())
    }

    /// Deletes the record of a finished job. The caller must remove its files first: a record without files can be
    /// deleted later, but files without a record would never be removed.
    ///
    /// # Errors
    /// `NotFound`; `State` if the job is not over; `Records`.
    pub async fn delete_record(&self, id: &str) -> Result<JobRecord, JobError> {
        let id = id.to_owned();
        let job = self.shared.with_records(move |records| records.remove(&id)).await?;
        self.shared.with_series(|series, families| series.remove_job(families, &job.name));
        self.shared.notify_change();
        Ok(job)
    }

    /// Returns the disk space of removed records to the file system.
    ///
    /// # Errors
    /// `Records`.
    pub async fn compact(&self) -> Result<(), JobError> {
        self.shared.with_records(|records| records.compact()).await
    }
}

/// Returns the specification of a job that repeats another job.
///
/// `parameters` and `overrides` replace single keys; a null value removes a key. By default, a job that did not succeed
/// continues from its newest checkpoint, and one that succeeded starts from scratch.
///
/// # Errors
/// `Spec`; `Override` if an override names an unknown field or has an invalid value.
pub fn restart_spec(
    job: &JobRecord,
    parameters: Map<String, Value>,
    overrides: Map<String, Value>,
    resume: Option<bool>,
    has_checkpoint: bool,
) -> Result<JobSpec, JobError> {
    let unreadable = |error: serde_json::Error| JobError::Override { reason: error.to_string() };
    let mut spec: Map<String, Value> = serde_json::from_str(&job.spec).map_err(unreadable)?;
    let known: BTreeSet<String> = spec_field_names();
    for (key, value) in overrides {
        if !known.contains(&key) {
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            return Err(JobError::Override { reason: format!("there is no field {key:?}; there are: {known}") });
        }
        set_or_remove(&mut spec, key, value);
    }
    let given = spec.entry("parameters").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(given) = given {
        parameters.into_iter().for_each(|(key, value)| set_or_remove(given, key, value));
    }
    let mut spec: JobSpec = serde_json::from_value(Value::Object(spec)).map_err(unreadable)?;
    match resume.unwrap_or(has_checkpoint && job.state != JobState::Succeeded) {
        true if has_checkpoint => {
            spec.init_from = Some(InitFrom::Checkpoint { job: job.name.clone(), which: CheckpointSelector::Latest });
        }
        true => {
            let hint = "it has no checkpoint to resume from; leave `resume` out".to_owned();
            return Err(JobError::State { name: job.name.clone(), state: job.state.name().to_owned(), hint });
        }
        false => {}
    }
    Ok(spec)
}

fn set_or_remove(object: &mut Map<String, Value>, key: String, value: Value) {
    if value.is_null() {
        object.shift_remove(&key);
    } else {
        object.insert(key, value);
    }
}

/// Returns the names of all fields of a specification, taken from one in which every field is set.
fn spec_field_names() -> BTreeSet<String> {
    let whole = JobSpec {
        experiment: Some(String::new()),
        init_from: Some(InitFrom::Model { model: String::new(), version: None }),
        gpu_slots: 2.0,
        checkpoint_keep_best: Some(crate::spec::parse_keep_best("loss")),
        max_runtime_seconds: Some(1.0),
        auto_extend: 1,
        max_attempt_runtime_seconds: Some(1.0),
        memory_bytes: Some(1),
        gpu_memory_bytes: Some(1),
        non_finite: crate::spec::NonFinite::Continue,
        precision: crate::spec::Precision::Mixed,
        without: DisabledOptimizations::NONE.with(Optimization::Winograd),
        utilization: Some(crate::spec::UtilizationPolicy { min_gpu: 1.0, window_seconds: 1.0 }),
        secrets: vec![String::new()],
        replicas: 2,
        hosts: 2,
        shards: Some(2),
        predict: Some(crate::spec::PredictionSpec { model: String::new(), version: None, split: None, out: None }),
        measure: true,
        record: true,
        replay: Some(crate::spec::ReplaySpec { job: String::new(), from_step: 1, to_step: None, print: Vec::new() }),
        message: Some(String::new()),
        ..JobSpec::new("", "")
    };
    match serde_json::to_value(whole) {
        Ok(Value::Object(whole)) => whole.into_iter().map(|(key, _)| key).collect(),
        _ => BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use saggar_store::records::SchedulingRequest;
    use serde_json::json;

    use super::*;

    fn job(state: JobState) -> JobRecord {
        let spec = JobSpec {
            parameters: json!({"lr": 0.1, "epochs": 3}).as_object().cloned().unwrap(),
            ..JobSpec::new("mnist", "0".repeat(64))
        };
        JobRecord {
            id: "id".to_owned(),
            name: "mnist-3".to_owned(),
            project: "mnist".to_owned(),
            number: 3,
            task: "train".to_owned(),
            spec: serde_json::to_string(&spec).unwrap(),
            demand: SchedulingRequest::default(),
            experiment: None,
            owner: None,
            rights: saggar_store::AccessRights::default(),
            state,
            reason: StateReason::default(),
            stop: None,
            pause: None,
            is_paused: false,
            created_ms: 0,
            started_ms: None,
            finished_ms: None,
            not_before_ms: 0,
            step: 0,
            steps_target: 0,
            epoch: 1,
            attempts: 1,
            server: String::new(),
            server_id: String::new(),
            claim: String::new(),
            orders: saggar_store::records::JobOrders::default(),
            cursor: 1,
        }
    }

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn a_restart_changes_only_the_overridden_fields() {
        let old = job(JobState::Succeeded);
        let again =
            restart_spec(&old, object(json!({"lr": 0.01})), object(json!({"seed": 4, "message": "x"})), None, true)
                .unwrap();
        let before: JobSpec = serde_json::from_str(&old.spec).unwrap();
        let expected = JobSpec {
            parameters: object(json!({"lr": 0.01, "epochs": 3})),
            seed: 4,
            message: Some("x".to_owned()),
            ..before
        };
        assert_eq!(again, expected);
        let without = restart_spec(&old, object(json!({"lr": null})), Map::new(), None, true).unwrap();
        assert_eq!(without.parameters, object(json!({"epochs": 3})));
    }

    #[test]
    fn a_restart_of_an_unsuccessful_job_resumes_from_its_checkpoint() {
        let from = |state, resume, checkpoint| {
            restart_spec(&job(state), Map::new(), Map::new(), resume, checkpoint).map(|spec| spec.init_from.is_some())
        };
        assert!(from(JobState::TimedOut, None, true).unwrap());
        assert!(!from(JobState::TimedOut, None, false).unwrap());
        assert!(!from(JobState::TimedOut, Some(false), true).unwrap());
        assert!(!from(JobState::Succeeded, None, true).unwrap());
        assert!(from(JobState::Succeeded, Some(true), true).unwrap());
        assert!(matches!(from(JobState::Failed, Some(true), false), Err(JobError::State { .. })));
    }

    #[test]
    fn an_override_of_an_unknown_field_is_refused() {
        for wrong in [json!({"sed": 1}), json!({"seed": "x"}), json!({"retry_on": ["never"]})] {
            let refused = restart_spec(&job(JobState::Failed), Map::new(), object(wrong.clone()), None, false);
            assert!(matches!(refused, Err(JobError::Override { .. })), "{wrong}");
        }
        // Every field must be set in that specification.
        let known = spec_field_names();
        for field in ["project", "gpu_slots", "retry_on", "init_from", "shards", "checkpoint_keep_best"] {
            assert!(known.contains(field), "{field}");
        }
    }
}
