//! `/api/v1/jobs`: submitting, listing, watching and stopping.

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use saggar_jobs::{JobError, JobSpec, Mount, Phase, phases};
use saggar_store::error::DatasetError;
use saggar_store::limits::EVENTS_LISTED_MAX;
use saggar_store::records::{Attempt, Event, Job, JobFilter, JobState, MetricPoint, Reason};
use serde_json::{Map, Value, json};

use super::query::Parameters;
use crate::app::App;
use crate::error::{ApiError, created};
use crate::limits::JOBS_LISTED_DEFAULT;

/// The header under which submitting the same twice makes one job.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// `POST /api/v1/jobs`.
pub(crate) async fn submit(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let key = idempotency_key(request.headers())?;
    let mut spec: JobSpec = app.bodies().json(request).await?;
    spec.validate().map_err(JobError::from)?;
    let digest = spec.plugin.to_ascii_lowercase().parse().map_err(|_| ApiError::Parameter {
        name: "plugin",
        expected: "64 hexadecimal digits",
        got: spec.plugin.clone(),
    })?;
    let facts = super::plugins::facts(&app, &digest).await?;
    if !facts.trains {
        return Err(JobError::NoTrainer { digest: digest.hex() }.into());
    }
    spec.plugin = digest.hex();
    spec.data = pinned(&app, std::mem::take(&mut spec.data)).await?;
    let job = app.jobs().submit(&spec, key).await?;
    tracing::info!(job = job.name, plugin = spec.plugin, "job submitted");
    Ok(created(full(&app, &job).await?))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let expected = "printable text";
    let refuse = |_| ApiError::Parameter { name: "Idempotency-Key", expected, got: "something else".to_owned() };
    Ok(Some(value.to_str().map_err(refuse)?.to_owned()))
}

/// The mounts with the versions they mean today, so that every attempt reads the same data.
async fn pinned(app: &App, mounts: Vec<Mount>) -> Result<Vec<Mount>, ApiError> {
    let pin = |mount: Mount, parts: &crate::Parts| {
        let reference = match mount.version {
            Some(version) => format!("{}/{version}", mount.dataset),
            None => mount.dataset.clone(),
        };
        let missing = || ApiError::NotFound {
            kind: "dataset",
            name: reference.clone(),
            hint: "GET /api/v1/datasets lists them; `saggar data push` uploads one".to_owned(),
        };
        match parts.datasets.resolve(&reference) {
            Ok(info) => Ok(Mount { version: Some(info.version), ..mount }),
            Err(DatasetError::NotFound { .. }) => Err(missing()),
            Err(error) => Err(error.into()),
        }
    };
    app.blocking(move |parts| mounts.into_iter().map(|mount| pin(mount, parts)).collect()).await
}

/// `GET /api/v1/jobs?state=&project=&limit=&cursor=`. Several states are separated by commas.
pub(crate) async fn list(State(app): State<App>, parameters: Parameters) -> Result<Json<Value>, ApiError> {
    let expected = "job states, as in RUNNING,QUEUED";
    let refuse = |state: &str| ApiError::Parameter { name: "state", expected, got: state.chars().take(80).collect() };
    let state = |state: &str| state.trim().to_ascii_uppercase().parse::<JobState>().map_err(|_| refuse(state));
    let states = parameters.get("state").unwrap_or_default().split(',').filter(|state| !state.is_empty());
    let limit = parameters.parse("limit", "a whole number")?.unwrap_or(JOBS_LISTED_DEFAULT);
    let filter = JobFilter {
        states: states.map(state).collect::<Result<_, ApiError>>()?,
        project: parameters.get("project").map(str::to_owned),
        limit: limit.clamp(1, saggar_store::limits::JOBS_LISTED_MAX),
        before: parameters.parse("cursor", "the cursor of the answer before")?,
    };
    let limit = filter.limit as usize;
    let jobs = app.jobs().list(filter).await?;
    let mut listed = Vec::with_capacity(jobs.len());
    for job in &jobs {
        listed.push(full(&app, job).await?);
    }
    let cursor = if jobs.len() == limit { jobs.last().map(|job| job.cursor) } else { None };
    Ok(Json(json!({ "jobs": listed, "cursor": cursor })))
}

/// `GET /api/v1/jobs/{job}`, by name or identifier.
pub(crate) async fn one(State(app): State<App>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    let job = app.jobs().get(&name).await?;
    let mut answer = full(&app, &job).await?;
    let attempts = app.jobs().attempts(&job.id).await?;
    answer["attempts"] = attempts.iter().map(attempt_json).collect();
    let events = app.jobs().all_events(&job.id).await?;
    answer["phases"] = phases::of(&job, &events).iter().map(phase_json).collect();
    answer["events"] = events.iter().take(EVENTS_LISTED_MAX as usize).map(event_json).collect();
    Ok(Json(answer))
}

/// `POST /api/v1/jobs/{job}/stop`.
pub(crate) async fn stop(State(app): State<App>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    let job = app.jobs().stop(&name, Reason::new("STOPPED", "stopped by a user")).await?;
    Ok(Json(full(&app, &job).await?))
}

/// `POST /api/v1/jobs/{job}/checkpoint`.
pub(crate) async fn checkpoint(State(app): State<App>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    let job = app.jobs().get(&name).await?;
    if !app.jobs().checkpoint(&job.id) {
        let (state, hint) = (job.state.name().to_owned(), "only a running job can be checkpointed".to_owned());
        return Err(JobError::State { name: job.name, state, hint }.into());
    }
    Ok(Json(full(&app, &job).await?))
}

/// `GET /api/v1/jobs/{job}/metrics?series=loss`; without `series` every one of them.
pub(crate) async fn metrics(
    State(app): State<App>,
    Path(name): Path<String>,
    parameters: Parameters,
) -> Result<Json<Value>, ApiError> {
    let job = app.jobs().get(&name).await?;
    let from = parameters.parse("from", "a step")?.unwrap_or(0);
    let names = match parameters.get("series") {
        Some(series) => series.split(',').map(str::to_owned).collect(),
        None => app.jobs().series_names(&job.id).await?,
    };
    let mut series = Vec::with_capacity(names.len());
    for name in names {
        let points = app.jobs().series(&job.id, &name, from).await?;
        let point = |point: &MetricPoint| json!([point.step, number(point.value)]);
        series.push(json!({ "name": name, "points": points.iter().map(point).collect::<Vec<Value>>() }));
    }
    Ok(Json(json!({ "series": series })))
}

/// `GET /api/v1/jobs/{job}/attempts`.
pub(crate) async fn attempts(State(app): State<App>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    let job = app.jobs().get(&name).await?;
    let attempts = app.jobs().attempts(&job.id).await?;
    Ok(Json(json!({ "attempts": attempts.iter().map(attempt_json).collect::<Vec<Value>>() })))
}

/// `GET /api/v1/jobs/{job}/events?after=`.
pub(crate) async fn events(
    State(app): State<App>,
    Path(name): Path<String>,
    parameters: Parameters,
) -> Result<Json<Value>, ApiError> {
    let job = app.jobs().get(&name).await?;
    let after = parameters.parse("after", "the sequence of an event")?.unwrap_or(0);
    let events = app.jobs().events(&job.id, after).await?;
    Ok(Json(json!({ "events": events.iter().map(event_json).collect::<Vec<Value>>() })))
}

/// `GET /api/v1/jobs/{job}/checkpoints`.
pub(crate) async fn checkpoints(State(app): State<App>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    let job = app.jobs().get(&name).await?;
    let checkpoints = app.checkpoints().list(&job.id).await?;
    let checkpoint = |info: &saggar_store::CheckpointInfo| {
        json!({
            "step": info.step,
            "epoch": info.epoch,
            "bytes": info.bytes,
            "digest": info.digest,
            "written_ms": info.written_ms,
        })
    };
    Ok(Json(json!({ "checkpoints": checkpoints.iter().map(checkpoint).collect::<Vec<Value>>() })))
}

/// A job with what its attempts took.
async fn full(app: &App, job: &Job) -> Result<Value, ApiError> {
    let attempts = app.jobs().attempts(&job.id).await?;
    let position = app.jobs().position(job).await?;
    let latest = app.jobs().latest_metrics(&job.id).await?;
    let metrics: Map<String, Value> = latest.iter().map(|point| (point.name.clone(), number(point.value))).collect();
    let spec: Value = serde_json::from_str(&job.spec).unwrap_or(Value::Null);
    let retry = spec["retry"].as_u64().unwrap_or(0);
    let message = &spec["message"];
    // From a plain zero: the sum of no floats at all is minus zero.
    let sum = |take: fn(&Attempt) -> f64| attempts.iter().map(take).fold(0.0, |sum, value| sum + value);
    let device = attempts.iter().rev().map(|attempt| attempt.device.as_str()).find(|device| !device.is_empty());
    Ok(json!({
        "id": job.id,
        "name": job.name,
        "project": job.project,
        "task": job.task,
        "state": job.state.name(),
        "reason": job.reason.code,
        "message": job.reason.sentence,
        "description": message,
        "position": position,
        "attempt": job.attempts,
        "attempts_max": 1 + retry,
        "step": job.step,
        "steps_target": job.steps_target,
        "created_ms": job.created_ms,
        "started_ms": job.started_ms,
        "finished_ms": job.finished_ms,
        "wall_seconds": sum(|attempt| attempt.usage.wall_seconds),
        "gpu_seconds": sum(|attempt| attempt.usage.gpu_seconds),
        "device": device,
        "metrics": metrics,
        "spec": spec,
    }))
}

fn attempt_json(attempt: &Attempt) -> Value {
    json!({
        "number": attempt.number,
        "state": attempt.state.name(),
        "reason": attempt.reason.code,
        "message": attempt.reason.sentence,
        "device": attempt.device,
        "started_ms": attempt.started_ms,
        "ended_ms": attempt.ended_ms,
        "first_step": attempt.usage.first_step,
        "last_step": attempt.usage.last_step,
        "wall_seconds": attempt.usage.wall_seconds,
        "gpu_seconds": attempt.usage.gpu_seconds,
        "peak_bytes": attempt.usage.peak_bytes,
        "samples": attempt.usage.samples,
    })
}

fn phase_json(phase: &Phase) -> Value {
    json!({
        "name": phase.name,
        "state": phase.state.name(),
        "started_ms": phase.started_ms,
        "ended_ms": phase.ended_ms,
    })
}

fn event_json(event: &Event) -> Value {
    json!({ "sequence": event.sequence, "at_ms": event.at_ms, "kind": event.kind, "text": event.text })
}

/// JSON has no word for infinities and what is not a number: they are null.
fn number(value: f64) -> Value {
    serde_json::Number::from_f64(value).map_or(Value::Null, Value::Number)
}
