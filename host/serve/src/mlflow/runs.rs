//! Runs: the jobs of this server, and external runs. Both have one form, that of external runs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use saggar_jobs::JobError;
use saggar_rest::mlflow::{
    MlflowFloat, MlflowInteger, MlflowMetric, MlflowPair, MlflowRun, MlflowRunData, MlflowRunInfo, MlflowRunResponse,
};
use saggar_store::external_runs::{ExternalPoint, ExternalRun, ExternalRunError, ExternalRunStatus};
use saggar_store::records::{JobAnnotations, JobDetails, JobRecord, JobState, MetricPoint};
use serde_json::Value;

use super::error::MlflowError;
use super::experiments::{experiment_id, required};
use super::filter::{AttributeNames, SearchField, SearchSubject};
use crate::access::ProjectScope;
use crate::api::query::QueryParameters;
use crate::app::AppState;
use crate::error::ApiError;

/// The folders of artefacts: those of jobs, and those of external runs.
pub(super) const JOB_ARTIFACTS: &str = "jobs";
pub(super) const EXTERNAL_ARTIFACTS: &str = "runs";

/// The attributes of runs.
pub(super) const RUN_ATTRIBUTES: AttributeNames = AttributeNames {
    texts: &[
        ("run_id", "run_id"),
        ("run_name", "run_name"),
        ("run name", "run_name"),
        ("name", "run_name"),
        ("status", "status"),
        ("artifact_uri", "artifact_uri"),
        ("user_id", "user_id"),
        ("experiment_id", "experiment_id"),
    ],
    numbers: &[
        ("start_time", "start_time"),
        ("created", "start_time"),
        ("Created", "start_time"),
        ("end_time", "end_time"),
    ],
};

/// A run and its kind.
#[derive(Clone, Debug)]
pub(super) enum FoundRun {
    /// A job of this server.
    Job(Box<JobRecord>, ExternalRun),
    /// A run of another program.
    External(ExternalRun),
}

impl FoundRun {
    pub(super) fn run(&self) -> &ExternalRun {
        match self {
            FoundRun::Job(_, run) | FoundRun::External(run) => run,
        }
    }
}

/// Returns the run with this identifier, if the request can see it. A job is also found by its internal identifier.
///
/// # Errors
/// `NoRun`, also for runs that the request cannot see.
pub(super) async fn find_run(app: &AppState, sight: &ProjectScope, id: &str) -> Result<FoundRun, ApiError> {
    let missing = || ApiError::from(MlflowError::NoRun { id: id.chars().take(80).collect() });
    match sight.find_job(app.jobs(), id).await {
        Ok(job) => {
            let details = app.jobs().job_details(&job.id).await?;
            let run = job_run(&job, &details);
            return Ok(FoundRun::Job(Box::new(job), run));
        }
        Err(JobError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let external = id.to_owned();
    let found = app.run_blocking(move |parts| match parts.external_runs.run(&external) {
        Ok(run) => Ok(Some(run)),
        Err(ExternalRunError::NoRun { .. }) => Ok(None),
        Err(error) => Err(MlflowError::from(error)),
    });
    let run = found.await?.filter(|run| sight.contains_project(&run.experiment)).ok_or_else(missing)?;
    Ok(FoundRun::External(run))
}

/// Handles `GET /api/2.0/mlflow/runs/get`.
pub(super) async fn get(
    State(app): State<AppState>,
    sight: ProjectScope,
    parameters: QueryParameters,
) -> Result<Json<MlflowRunResponse>, ApiError> {
    let id = parameters.get("run_id").or_else(|| parameters.get("run_uuid"));
    let id = id.map_or_else(|| required(&parameters, "run_id"), Ok)?;
    let found = find_run(&app, &sight, id).await?;
    Ok(Json(MlflowRunResponse { run: run_document(found.run()) }))
}

/// Returns a job as a run.
pub(super) fn job_run(job: &JobRecord, details: &JobDetails) -> ExternalRun {
    let spec: Value = serde_json::from_str(&job.spec).unwrap_or(Value::Null);
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    let parameters = spec["parameters"].as_object().into_iter().flatten();
    ExternalRun {
        id: job.name.clone(),
        experiment: job.project.clone(),
        name: job.name.clone(),
        owner: job.owner.clone().unwrap_or_default(),
        status: match job.state {
            JobState::Queued => ExternalRunStatus::Scheduled,
            JobState::Starting | JobState::Running | JobState::Stopping => ExternalRunStatus::Running,
            JobState::Succeeded => ExternalRunStatus::Finished,
            JobState::Cancelled => ExternalRunStatus::Killed,
            JobState::Failed | JobState::TimedOut => ExternalRunStatus::Failed,
        },
        started_ms: signed(job.started_ms.unwrap_or(job.created_ms)),
        ended_ms: job.finished_ms.map(signed),
        is_deleted: false,
        parameters: parameters.map(|(name, value)| (name.clone(), plain_text(value))).collect(),
        tags: job_tags(job, &spec, details),
        latest: details.latest.iter().map(external_point).collect(),
    }
}

/// Returns a point of a job's series as one of a run.
pub(super) fn external_point(point: &MetricPoint) -> ExternalPoint {
    ExternalPoint {
        key: point.name.clone(),
        value: point.value,
        step: i64::try_from(point.step).unwrap_or(i64::MAX),
        at_ms: i64::try_from(point.at_ms).unwrap_or(i64::MAX),
    }
}

fn job_tags(job: &JobRecord, spec: &Value, details: &JobDetails) -> Vec<(String, String)> {
    let mut tags = BTreeMap::new();
    let mut add = |key: &str, value: String| {
        if !value.is_empty() {
            tags.insert(key.to_owned(), value);
        }
    };
    let field = |name: &str| plain_text(&spec[name]);
    add("mlflow.runName", job.name.clone());
    add("mlflow.user", job.owner.clone().unwrap_or_default());
    add("mlflow.source.type", "JOB".to_owned());
    add("mlflow.source.name", field("plugin"));
    add("mlflow.note.content", field("message"));
    add("saggar.state", job.state.name().to_owned());
    add("saggar.reason", job.reason.code.clone());
    add("saggar.experiment", job.experiment.clone().unwrap_or_default());
    add("saggar.task", job.task.clone());
    add("saggar.queue", job.demand.queue.clone());
    add("saggar.seed", field("seed"));
    add("saggar.attempts", job.attempts.to_string());
    let devices = details.attempts.iter().rev().map(|attempt| attempt.device.clone());
    add("saggar.device", devices.into_iter().find(|device| !device.is_empty()).unwrap_or_default());
    if let Some(data) = spec["data"].as_array().filter(|data| !data.is_empty()) {
        add("saggar.data", Value::from(data.clone()).to_string());
    }
    let JobAnnotations { tags: own, note } = &details.annotations;
    if !note.is_empty() {
        tags.insert("mlflow.note.content".to_owned(), note.clone());
    }
    // A user's tag does not replace what the server knows.
    own.iter().for_each(|(name, value)| {
        tags.entry(name.clone()).or_insert_with(|| value.clone());
    });
    tags.into_iter().collect()
}

/// Returns a JSON value as the text of a parameter: that of a string itself, nothing for null.
fn plain_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn artifact_uri(run: &ExternalRun) -> String {
    let is_external = run.id.len() == 32 && run.id.bytes().all(|byte| byte.is_ascii_hexdigit());
    format!("mlflow-artifacts:/{}/{}", if is_external { EXTERNAL_ARTIFACTS } else { JOB_ARTIFACTS }, run.id)
}

/// Returns what is known of a run besides its data.
pub(super) fn run_info(run: &ExternalRun) -> MlflowRunInfo {
    MlflowRunInfo {
        run_id: run.id.clone(),
        run_uuid: run.id.clone(),
        run_name: run.name.clone(),
        experiment_id: experiment_id(&run.experiment),
        user_id: run.owner.clone(),
        status: run.status.name().to_owned(),
        start_time: run.started_ms,
        end_time: run.ended_ms,
        artifact_uri: artifact_uri(run),
        lifecycle_stage: if run.is_deleted { "deleted" } else { "active" }.to_owned(),
    }
}

/// Returns a run as a document.
pub(super) fn run_document(run: &ExternalRun) -> MlflowRun {
    let pair = |(key, value): &(String, String)| MlflowPair { key: key.clone(), value: value.clone() };
    let data = MlflowRunData {
        metrics: run.latest.iter().map(metric_document).collect(),
        params: run.parameters.iter().map(pair).collect(),
        tags: run.tags.iter().map(pair).collect(),
    };
    MlflowRun { info: run_info(run), data }
}

/// Returns a value of a metric as a document.
pub(super) fn metric_document(point: &ExternalPoint) -> MlflowMetric {
    MlflowMetric {
        key: point.key.clone(),
        value: MlflowFloat(point.value),
        timestamp: MlflowInteger(point.at_ms),
        step: MlflowInteger(point.step),
    }
}

impl SearchSubject for ExternalRun {
    fn text(&self, field: &SearchField) -> Option<Cow<'_, str>> {
        let find = |pairs: &'_ [(String, String)], name: &str| {
            pairs.iter().find(|(key, _)| key == name).map(|(_, value)| Cow::Owned(value.clone()))
        };
        match field {
            SearchField::Parameter(name) => find(&self.parameters, name),
            SearchField::Tag(name) => find(&self.tags, name),
            SearchField::Metric(_) => None,
            SearchField::Attribute(name) => match *name {
                "run_id" => Some(self.id.as_str().into()),
                "run_name" => Some(self.name.as_str().into()),
                "status" => Some(self.status.name().into()),
                "artifact_uri" => Some(artifact_uri(self).into()),
                "user_id" => Some(self.owner.as_str().into()),
                "experiment_id" => Some(experiment_id(&self.experiment).into()),
                _ => None,
            },
        }
    }

    fn number(&self, field: &SearchField) -> Option<f64> {
        match field {
            SearchField::Metric(name) => self.latest.iter().find(|point| point.key == *name).map(|point| point.value),
            SearchField::Attribute("start_time") => Some(self.started_ms as f64),
            SearchField::Attribute("end_time") => self.ended_ms.map(|ms| ms as f64),
            _ => None,
        }
    }
}
