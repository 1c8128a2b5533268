//! Jobs as JSON.

use std::collections::BTreeMap;

use saggar_jobs::{JobPhase, QueueWait, RetryCause, StepOutput};
use saggar_rest::events::JobEventDocument;
use saggar_rest::jobs::{
    AttemptDocument, JobDocument, JobPublicationDocument, JobSpecSummary, JobTimeDocument, PhaseDocument,
    StepOutputDocument,
};
use saggar_store::records::{AttemptUsage, JobAttempt, JobDetails, JobEvent, JobRecord, JobState, PAUSED};
use serde_json::Value;

use crate::access::ProjectScope;
use crate::api::metric_values::finite_value;
use crate::app::AppState;
use crate::error::ApiError;

/// The share of an attempt's time, other than computing, from which a hint is shown.
const HINT_SHARE_MIN: f64 = 0.2;

/// The seconds below which an attempt's time is mostly startup, so that hints would mislead.
const HINT_WALL_SECONDS_MIN: f64 = 2.0;

/// The kind of the event that reports a model version published by a job.
pub(crate) const PUBLISHED: &str = "PUBLISHED";

/// Returns a job with its attempts' resource usage and, if queued, the reason it waits.
pub(super) async fn job_with_details(
    app: &AppState,
    sight: &ProjectScope,
    it: &JobRecord,
) -> Result<JobDocument, ApiError> {
    job_with_waits(app, sight, it, &app.jobs().job_details(&it.id).await?).await
}

/// Like [`job_with_details`], for callers that have already read the details.
pub(super) async fn job_with_waits(
    app: &AppState,
    sight: &ProjectScope,
    it: &JobRecord,
    details: &JobDetails,
) -> Result<JobDocument, ApiError> {
    let waits = match it.state {
        JobState::Queued => app.jobs().queue_waits(|project| sight.contains_project(project)).await?,
        _ => Default::default(),
    };
    Ok(job_document(app, it, waits.get(&it.id), details))
}

/// Like [`job_with_details`], for callers that have also read why the job waits.
pub(in crate::api) fn job_document(
    app: &AppState,
    job: &JobRecord,
    wait: Option<&QueueWait>,
    details: &JobDetails,
) -> JobDocument {
    let JobDetails { attempts, latest, annotations } = details;
    let spec: Value = serde_json::from_str(&job.spec).unwrap_or(Value::Null);
    let JobSpecSummary { retry, replicas, message, .. } = JobSpecSummary::read(&spec);
    // Starts from +0.0, because the sum of an empty float iterator is -0.0.
    let sum = |take: fn(&JobAttempt) -> f64| attempts.iter().map(take).fold(0.0, |sum, value| sum + value);
    let device = attempts.iter().rev().map(|attempt| attempt.device.as_str()).find(|device| !device.is_empty());
    let pool = attempts.last().filter(|_| job.state.is_active()).map(|attempt| &attempt.pool);
    let reason = wait.map_or(&job.reason, |wait| &wait.reason);
    JobDocument {
        id: job.id.clone(),
        name: job.name.clone(),
        project: job.project.clone(),
        experiment: job.experiment.clone(),
        task: job.task.clone(),
        owner: job.owner.clone(),
        state: job.state.name().to_owned(),
        reason: reason.code.clone(),
        message: reason.sentence.clone(),
        description: message,
        tags: annotations.tags.clone(),
        note: annotations.note.clone(),
        queue: job.demand.queue.clone(),
        priority: job.demand.priority,
        preemptible: job.demand.preemptible,
        position: wait.map(|wait| wait.position),
        pool: pool.cloned(),
        server: Some(job.server.clone()).filter(|server| !server.is_empty()),
        attempt: job.attempts,
        attempts_max: 1 + retry,
        interruptions: interruptions(attempts),
        paused: job.is_paused,
        pause_step: job.pause.as_ref().and_then(|point| point.at.resolve(job.steps_target)),
        step: job.step,
        steps_target: job.steps_target,
        created_ms: job.created_ms,
        started_ms: job.started_ms,
        finished_ms: job.finished_ms,
        advanced_ms: app.jobs().last_progress_ms(&job.id),
        wall_seconds: sum(|attempt| attempt.usage.wall_seconds),
        gpu_seconds: sum(|attempt| attempt.usage.gpu_seconds),
        gpu_seconds_estimated: attempts.iter().any(|attempt| attempt.seconds_estimated),
        wasted_steps: wasted_steps(attempts),
        steps_per_second: steps_per_second(attempts),
        time: time_breakdown(attempts, replicas),
        hints: hints(attempts),
        device: device.map(str::to_owned),
        hosts: attempts.last().map(|attempt| attempt.hosts.clone()).unwrap_or_default(),
        metrics: latest.iter().map(|point| (point.name.clone(), finite_value(point.value))).collect(),
        spec,
        ..JobDocument::default()
    }
}

/// Returns how the attempts' time was spent on this number of processes. Computing and transferring items to a device can
/// overlap.
fn time_breakdown(attempts: &[JobAttempt], replicas: u32) -> JobTimeDocument {
    let sum = |take: fn(&AttemptUsage) -> f64| {
        attempts.iter().map(|attempt| take(&attempt.usage)).fold(0.0, |sum, it| sum + it)
    };
    // The devices of several processes compute in parallel.
    let compute = sum(|usage| usage.gpu_seconds) / f64::from(replicas.max(1));
    let data = sum(|usage| usage.data_seconds);
    let all_reduce = sum(|usage| usage.all_reduce_seconds);
    let checkpoint = sum(|usage| usage.checkpoint_seconds);
    let other = sum(|usage| usage.wall_seconds) - compute - data - all_reduce - checkpoint;
    JobTimeDocument {
        compute_seconds: compute,
        data_seconds: data,
        all_reduce_seconds: all_reduce,
        checkpoint_seconds: checkpoint,
        other_seconds: other.max(0.0),
    }
}

/// Returns hints for reducing the time of the newest attempt.
fn hints(attempts: &[JobAttempt]) -> Vec<String> {
    let Some(usage) = attempts.last().map(|attempt| &attempt.usage) else { return Vec::new() };
    let share = |seconds: f64| seconds / usage.wall_seconds.max(1e-9);
    let much = |seconds: f64| usage.wall_seconds >= HINT_WALL_SECONDS_MIN && share(seconds) > HINT_SHARE_MIN;
    let percent = |seconds: f64| format!("{:.0} %", share(seconds) * 100.0);
    let mut hints = Vec::new();
    if much(usage.data_seconds) {
        let data = percent(usage.data_seconds);
        hints.push(format!(
            "{data} of the time is spent transferring data to the device: use larger batches or smaller items"
        ));
    }
    if much(usage.checkpoint_seconds) {
        let saving = percent(usage.checkpoint_seconds);
        hints.push(format!("{saving} of the time is spent saving checkpoints: increase --checkpoint-every"));
    }
    if much(usage.all_reduce_seconds) {
        let waiting = percent(usage.all_reduce_seconds);
        hints.push(format!("{waiting} of the time is spent averaging over processes: use larger batches"));
    }
    hints
}

/// Counts the causes of attempts that were followed by another attempt.
fn interruptions(attempts: &[JobAttempt]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let followed = attempts.iter().filter(|attempt| attempt.state == JobState::Queued);
    for cause in followed.filter_map(|attempt| RetryCause::from_code(&attempt.reason.code)) {
        *counts.entry(cause.name().to_owned()).or_default() += 1;
    }
    counts
}

/// Returns the steps per second of the newest attempt, counted from its first step, or `None` if it has completed no
/// step.
fn steps_per_second(attempts: &[JobAttempt]) -> Option<f64> {
    let AttemptUsage { first_step, last_step, wall_seconds, .. } = &attempts.last()?.usage;
    let steps = last_step.checked_sub(*first_step).filter(|&steps| steps > 0 && *wall_seconds > 0.0)?;
    Some(steps as f64 / wall_seconds)
}

/// Returns the number of steps that were computed again after an interruption.
fn wasted_steps(attempts: &[JobAttempt]) -> u64 {
    let again = |pair: &[JobAttempt]| pair[0].usage.last_step.saturating_sub(pair[1].usage.first_step);
    // An attempt that did not reach its first step has no starting step.
    let began: Vec<JobAttempt> = attempts.iter().filter(|attempt| attempt.usage.last_step > 0).cloned().collect();
    began.windows(2).map(again).sum()
}

/// Returns the outputs of a step as the REST interface gives them.
pub(super) fn step_output_documents(outputs: BTreeMap<String, StepOutput>) -> BTreeMap<String, StepOutputDocument> {
    let document = |StepOutput { kind, value, bytes, sha256 }| StepOutputDocument {
        kind: kind.name().to_owned(),
        value,
        bytes,
        sha256,
    };
    outputs.into_iter().map(|(name, output)| (name, document(output))).collect()
}

/// Returns an attempt with the URL of its log.
pub(super) fn attempt_with_log_url(job: &JobRecord, of: &JobAttempt) -> AttemptDocument {
    let log = format!("/api/v1/jobs/{}/logs?attempt={}", job.name, of.number);
    AttemptDocument { log: Some(log), ..attempt_document(of) }
}

/// Returns the model versions that a job published, oldest first.
pub(crate) fn published_versions(events: &[JobEvent]) -> Vec<JobPublicationDocument> {
    let version = |event: &JobEvent| {
        let (model, version) = event.text.strip_prefix("published ")?.rsplit_once('@')?;
        Some(JobPublicationDocument { model: model.to_owned(), version: version.parse().ok()? })
    };
    events.iter().filter(|event| event.kind == PUBLISHED).filter_map(version).collect()
}

pub(super) fn attempt_document(attempt: &JobAttempt) -> AttemptDocument {
    let was_preempted = RetryCause::from_code(&attempt.reason.code) == Some(RetryCause::Preempted);
    let state = match attempt.state {
        JobState::Queued if was_preempted => "PREEMPTED",
        JobState::Queued if attempt.reason.code == PAUSED => PAUSED,
        JobState::Queued => "INTERRUPTED",
        state => state.name(),
    };
    AttemptDocument {
        number: attempt.number,
        state: state.to_owned(),
        reason: attempt.reason.code.clone(),
        message: attempt.reason.sentence.clone(),
        device: attempt.device.clone(),
        pool: attempt.pool.clone(),
        server: attempt.server.clone(),
        hosts: attempt.hosts.clone(),
        started_ms: attempt.started_ms,
        ended_ms: attempt.ended_ms,
        first_step: attempt.usage.first_step,
        last_step: attempt.usage.last_step,
        wall_seconds: attempt.usage.wall_seconds,
        gpu_seconds: attempt.usage.gpu_seconds,
        gpu_seconds_estimated: attempt.seconds_estimated,
        peak_bytes: attempt.usage.peak_bytes,
        samples: attempt.usage.samples,
        log: None,
    }
}

pub(super) fn phase_document(phase: &JobPhase) -> PhaseDocument {
    PhaseDocument {
        name: phase.name.clone(),
        state: phase.state.name().to_owned(),
        started_ms: phase.started_ms,
        ended_ms: phase.ended_ms,
    }
}

pub(in crate::api) fn event_document(event: &JobEvent) -> JobEventDocument {
    JobEventDocument {
        sequence: event.sequence,
        at_ms: event.at_ms,
        kind: event.kind.clone(),
        text: event.text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use saggar_rest::jobs::JOB_STATES;
    use saggar_store::records::StateReason;

    use super::*;

    #[test]
    fn the_states_of_the_document_are_those_of_the_records() {
        assert_eq!(JOB_STATES, JobState::ALL.map(JobState::name));
    }

    fn attempt_with_usage(usage: AttemptUsage) -> JobAttempt {
        let (device, pool) = ("cpu".to_owned(), "any".to_owned());
        let (state, reason) = (JobState::Running, StateReason::default());
        JobAttempt {
            number: 1,
            state,
            reason,
            device,
            pool,
            server: String::new(),
            hosts: Vec::new(),
            seconds_estimated: false,
            started_ms: 0,
            ended_ms: None,
            usage,
        }
    }

    #[test]
    fn steps_per_second_is_of_the_newest_attempt() {
        let of = |first_step, last_step, wall_seconds| {
            attempt_with_usage(AttemptUsage { first_step, last_step, wall_seconds, ..AttemptUsage::default() })
        };
        assert_eq!(steps_per_second(&[]), None);
        assert_eq!(steps_per_second(&[of(0, 1000, 10.0)]), Some(100.0));
        // Started from a checkpoint of another job.
        assert_eq!(steps_per_second(&[of(90_000, 90_500, 5.0)]), Some(100.0));
        assert_eq!(steps_per_second(&[of(0, 1000, 10.0), of(900, 1300, 2.0)]), Some(200.0));
        // The newest attempt has not completed a step yet.
        assert_eq!(steps_per_second(&[of(0, 1000, 10.0), of(1000, 1000, 2.0)]), None);
        assert_eq!(steps_per_second(&[of(0, 1000, 10.0), of(0, 0, 0.0)]), None);
    }

    #[test]
    fn time_is_broken_down_and_data_waits_raise_a_hint() {
        let usage = AttemptUsage { wall_seconds: 10.0, gpu_seconds: 6.0, data_seconds: 2.5, ..AttemptUsage::default() };
        let usage = AttemptUsage { all_reduce_seconds: 0.5, checkpoint_seconds: 0.25, ..usage };
        let attempts = [attempt_with_usage(usage.clone())];
        let expected = JobTimeDocument {
            compute_seconds: 6.0,
            data_seconds: 2.5,
            all_reduce_seconds: 0.5,
            checkpoint_seconds: 0.25,
            other_seconds: 0.75,
        };
        assert_eq!(time_breakdown(&attempts, 0), expected);
        let raised = hints(&attempts);
        assert!(
            raised.len() == 1 && raised[0].starts_with("25 % of the time is spent transferring data"),
            "{raised:?}"
        );
        assert_eq!(time_breakdown(&attempts, 2).compute_seconds, 3.0);
        for calm in [AttemptUsage { data_seconds: 2.0, ..usage.clone() }, AttemptUsage { wall_seconds: 1.0, ..usage }] {
            assert_eq!(hints(&[attempt_with_usage(calm)]), Vec::<String>::new());
        }
        assert_eq!(hints(&[]), Vec::<String>::new());
    }
}
