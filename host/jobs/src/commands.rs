//! What users tell jobs to do.

use std::collections::BTreeSet;

use saggar_store::records::{Job, JobFilter, NewJob, Reason, Records};
use saggar_store::{JobState, Rights};
use serde_json::{Map, Value};

use crate::Jobs;
use crate::error::JobError;
use crate::scheduler;
use crate::spec::{JobSpec, Origin, PREEMPTED, Which};

/// A job to record.
#[derive(Clone, Debug)]
pub struct Submission {
    /// What it is to do. The caller has checked that plugin and datasets exist, and filled in their versions.
    pub spec: JobSpec,
    /// The key that it comes with.
    pub owner: Option<String>,
    /// What that key may do.
    pub rights: Rights,
    /// Submitting again under the same one gives the same job.
    pub idempotency_key: Option<String>,
}

impl Jobs {
    /// Records a job and has it run in its turn.
    ///
    /// # Errors
    /// `Spec`; `NoQueue`; `Records`, among them that too many wait.
    pub async fn submit(&self, submission: Submission) -> Result<Job, JobError> {
        let Submission { spec, owner, rights, idempotency_key } = submission;
        self.check(&spec)?;
        let job = NewJob {
            project: spec.project.clone(),
            task: spec.task.clone(),
            spec: serde_json::to_string(&spec).expect("a specification is plain data"),
            demand: spec.demand(),
            experiment: spec.experiment.clone(),
            owner,
            rights,
            idempotency_key,
            ..NewJob::default()
        };
        let now_ms = self.shared.clock.now_ms();
        let job = self.shared.records(move |records| records.submit(&job, now_ms)).await?;
        self.shared.metrics.families.jobs_submitted.with_label_values(&[&spec.project, &spec.task]).inc();
        self.shared.wake();
        self.shared.touch();
        Ok(job)
    }

    /// The job that was submitted under this idempotency key, if there is one.
    ///
    /// # Errors
    /// `Records`.
    pub async fn submitted(&self, key: &str) -> Result<Option<Job>, JobError> {
        let key = key.to_owned();
        self.shared.records(move |records| records.submitted(&key)).await
    }

    /// Whether a job could be submitted: its specification is one, and its queue is there.
    ///
    /// # Errors
    /// `Spec`; `NoQueue`.
    pub(crate) fn check(&self, spec: &JobSpec) -> Result<(), JobError> {
        spec.validate()?;
        let layout = self.layout();
        if layout.queues.contains_key(&spec.queue) {
            return Ok(());
        }
        let known = layout.queues.keys().cloned().collect::<Vec<_>>().join(", ");
        Err(JobError::NoQueue { queue: spec.queue.clone(), known })
    }

    /// Asks a job to stop. A running one saves its state first.
    ///
    /// # Errors
    /// `NotFound`; `State` where it is over; `Records`.
    pub async fn stop(&self, name: &str, reason: Reason) -> Result<Job, JobError> {
        let (name, now_ms) = (name.to_owned(), self.shared.clock.now_ms());
        let stop = move |records: &dyn Records| {
            let id = records.get(&name)?.id;
            records.request_stop(&id, &reason, now_ms)
        };
        let job = self.shared.records(stop).await?;
        self.shared.order(&job.id, |orders| orders.stop = true);
        self.shared.touch();
        Ok(job)
    }

    /// Has a running job save its state and be queued again.
    ///
    /// # Errors
    /// `NotFound`; `State` where it does not run here; `Records`.
    pub async fn preempt(&self, name: &str) -> Result<Job, JobError> {
        let job = self.get(name).await?;
        if !scheduler::requeue(&self.shared, &job.id, Reason::new(PREEMPTED, "preempted by a user")) {
            let (state, hint) = (job.state.name().to_owned(), "only a running job can be preempted".to_owned());
            return Err(JobError::State { name: job.name, state, hint });
        }
        Ok(job)
    }

    /// Has a running job take a checkpoint at its next step boundary. False where it is not running here.
    pub fn checkpoint(&self, id: &str) -> bool {
        self.shared.order(id, |orders| orders.checkpoints += 1)
    }

    /// Jobs that are not over with what they were asked for, newest first. Those whose specification cannot be read are left
    /// out.
    ///
    /// # Errors
    /// `Records`.
    pub async fn unfinished(&self) -> Result<Vec<(Job, JobSpec)>, JobError> {
        let states = JobState::ALL.into_iter().filter(|state| !state.is_final()).collect();
        let mut filter = JobFilter { states, ..JobFilter::default() };
        let mut unfinished = Vec::new();
        loop {
            let jobs = self.list(filter.clone()).await?;
            let Some(last) = jobs.last() else { return Ok(unfinished) };
            filter.before = Some(last.cursor);
            let spec = |job: Job| serde_json::from_str(&job.spec).ok().map(|spec| (job, spec));
            unfinished.extend(jobs.into_iter().filter_map(spec));
        }
    }

    /// The newest jobs that are over, with what they were asked to do; at most `JOBS_LISTED_MAX`.
    ///
    /// # Errors
    /// `Records`.
    pub async fn newest_finished(&self) -> Result<Vec<(Job, JobSpec)>, JobError> {
        let states = JobState::ALL.into_iter().filter(|state| state.is_final()).collect();
        let jobs = self.list(JobFilter { states, ..JobFilter::default() }).await?;
        let spec = |job: Job| serde_json::from_str(&job.spec).ok().map(|spec| (job, spec));
        Ok(jobs.into_iter().filter_map(spec).collect())
    }

    /// Forgets a job that is over. Its files are the caller's to remove, before: a job whose files are gone can be
    /// forgotten later, files whose job is forgotten would stay for ever.
    ///
    /// # Errors
    /// `NotFound`; `State` where it is not over; `Records`.
    pub async fn forget(&self, id: &str) -> Result<Job, JobError> {
        let id = id.to_owned();
        let job = self.shared.records(move |records| records.remove(&id)).await?;
        self.shared.series(|series, families| series.forget(families, &job.name));
        self.shared.touch();
        Ok(job)
    }

    /// Gives the disk space of what was removed from the records back.
    ///
    /// # Errors
    /// `Records`.
    pub async fn compact(&self) -> Result<(), JobError> {
        self.shared.records(|records| records.compact()).await
    }
}

/// The specification of a job that does again what another did.
///
/// `parameters` and `overrides` replace single keys; null removes one. Without a word about it, a job that did not succeed
/// goes on from its newest checkpoint, and one that did starts anew.
///
/// # Errors
/// `Spec` where an override names no field or has no such value.
pub fn restarted(
    job: &Job,
    parameters: Map<String, Value>,
    overrides: Map<String, Value>,
    resume: Option<bool>,
    has_checkpoint: bool,
) -> Result<JobSpec, JobError> {
    let unreadable = |error: serde_json::Error| JobError::Override { reason: error.to_string() };
    let mut spec: Map<String, Value> = serde_json::from_str(&job.spec).map_err(unreadable)?;
    let known: BTreeSet<String> = fields();
    for (key, value) in overrides {
        if !known.contains(&key) {
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            return Err(JobError::Override { reason: format!("there is no field {key:?}; there are: {known}") });
        }
        set(&mut spec, key, value);
    }
    let given = spec.entry("parameters").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(given) = given {
        parameters.into_iter().for_each(|(key, value)| set(given, key, value));
    }
    let mut spec: JobSpec = serde_json::from_value(Value::Object(spec)).map_err(unreadable)?;
    match resume.unwrap_or(has_checkpoint && job.state != JobState::Succeeded) {
        true if has_checkpoint => {
            spec.init_from = Some(Origin::Checkpoint { job: job.name.clone(), which: Which::Latest });
        }
        true => {
            let hint = "it has no checkpoint to go on from; leave `resume` out".to_owned();
            return Err(JobError::State { name: job.name.clone(), state: job.state.name().to_owned(), hint });
        }
        false => {}
    }
    Ok(spec)
}

fn set(object: &mut Map<String, Value>, key: String, value: Value) {
    if value.is_null() {
        object.shift_remove(&key);
    } else {
        object.insert(key, value);
    }
}

/// Names of a specification's fields: those of one in which everything is said.
fn fields() -> BTreeSet<String> {
    let whole = JobSpec {
        experiment: Some(String::new()),
        init_from: Some(Origin::Model { model: String::new(), version: None }),
        gpu_slots: 2.0,
        checkpoint_keep_best: Some(crate::spec::keep_best("loss")),
        max_runtime_seconds: Some(1.0),
        auto_extend: 1,
        max_attempt_runtime_seconds: Some(1.0),
        memory_bytes: Some(1),
        gpu_memory_bytes: Some(1),
        non_finite: crate::spec::NonFinite::Continue,
        precision: crate::spec::Precision::Mixed,
        utilization: Some(crate::spec::Utilization { min_gpu: 1.0, window_seconds: 1.0 }),
        secrets: vec![String::new()],
        replicas: 2,
        shards: Some(2),
        predict: Some(crate::spec::Prediction { model: String::new(), version: None, split: None, out: None }),
        measure: true,
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
    use saggar_store::records::Demand;
    use serde_json::json;

    use super::*;

    fn job(state: JobState) -> Job {
        let spec = JobSpec {
            parameters: json!({"lr": 0.1, "epochs": 3}).as_object().cloned().unwrap(),
            ..JobSpec::new("mnist", "0".repeat(64))
        };
        Job {
            id: "id".to_owned(),
            name: "mnist-3".to_owned(),
            project: "mnist".to_owned(),
            number: 3,
            task: "train".to_owned(),
            spec: serde_json::to_string(&spec).unwrap(),
            demand: Demand::default(),
            experiment: None,
            owner: None,
            rights: saggar_store::Rights::default(),
            state,
            reason: Reason::default(),
            stop: None,
            created_ms: 0,
            started_ms: None,
            finished_ms: None,
            not_before_ms: 0,
            step: 0,
            steps_target: 0,
            epoch: 1,
            attempts: 1,
            cursor: 1,
        }
    }

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn only_what_is_said_changes() {
        let old = job(JobState::Succeeded);
        let again =
            restarted(&old, object(json!({"lr": 0.01})), object(json!({"seed": 4, "message": "x"})), None, true)
                .unwrap();
        let before: JobSpec = serde_json::from_str(&old.spec).unwrap();
        let expected = JobSpec {
            parameters: object(json!({"lr": 0.01, "epochs": 3})),
            seed: 4,
            message: Some("x".to_owned()),
            ..before
        };
        assert_eq!(again, expected);
        let without = restarted(&old, object(json!({"lr": null})), Map::new(), None, true).unwrap();
        assert_eq!(without.parameters, object(json!({"epochs": 3})));
    }

    #[test]
    fn what_did_not_succeed_goes_on() {
        let from = |state, resume, checkpoint| {
            restarted(&job(state), Map::new(), Map::new(), resume, checkpoint).map(|spec| spec.init_from.is_some())
        };
        assert!(from(JobState::TimedOut, None, true).unwrap());
        assert!(!from(JobState::TimedOut, None, false).unwrap());
        assert!(!from(JobState::TimedOut, Some(false), true).unwrap());
        assert!(!from(JobState::Succeeded, None, true).unwrap());
        assert!(from(JobState::Succeeded, Some(true), true).unwrap());
        assert!(matches!(from(JobState::Failed, Some(true), false), Err(JobError::State { .. })));
    }

    #[test]
    fn an_override_of_nothing_is_refused() {
        for wrong in [json!({"sed": 1}), json!({"seed": "x"}), json!({"retry_on": ["never"]})] {
            let refused = restarted(&job(JobState::Failed), Map::new(), object(wrong.clone()), None, false);
            assert!(matches!(refused, Err(JobError::Override { .. })), "{wrong}");
        }
        // Every field there is can be said.
        let known = fields();
        for field in ["project", "gpu_slots", "retry_on", "init_from", "shards", "checkpoint_keep_best"] {
            assert!(known.contains(field), "{field}");
        }
    }
}
