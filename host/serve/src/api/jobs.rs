//! `/api/v1/jobs`: listing and watching. Submitting is in [`submit`], what else users tell jobs in [`commands`].

pub(crate) mod checkpoints;
pub(crate) mod commands;
pub(crate) mod removal;
pub(super) mod shown;
pub(crate) mod submit;

use axum::Json;
use axum::extract::State;
use saggar_jobs::phases;
use saggar_store::limits::{EVENTS_LISTED_MAX, POINTS_LISTED_MAX};
use saggar_store::records::{JobFilter, JobState, MetricPoint};
use serde_json::{Value, json};

use super::query::Parameters;
use crate::access::{SeenJob, Sight};
use crate::app::App;
use crate::error::ApiError;
use crate::limits::JOBS_LISTED_DEFAULT;

/// `GET /api/v1/jobs?state=&project=&experiment=&limit=&cursor=`. Several states are separated by commas.
pub(crate) async fn list(
    State(app): State<App>,
    sight: Sight,
    parameters: Parameters,
) -> Result<Json<Value>, ApiError> {
    let expected = "job states, as in RUNNING,QUEUED";
    let refuse = |state: &str| ApiError::Parameter { name: "state", expected, got: state.chars().take(80).collect() };
    let state = |state: &str| state.trim().to_ascii_uppercase().parse::<JobState>().map_err(|_| refuse(state));
    let states = parameters.get("state").unwrap_or_default().split(',').filter(|state| !state.is_empty());
    let limit = parameters.parse("limit", "a whole number")?.unwrap_or(JOBS_LISTED_DEFAULT);
    let filter = JobFilter {
        states: states.map(state).collect::<Result<_, ApiError>>()?,
        project: parameters.get("project").map(str::to_owned),
        projects: sight.projects(),
        experiment: parameters.get("experiment").map(str::to_owned),
        limit: limit.clamp(1, saggar_store::limits::JOBS_LISTED_MAX),
        before: parameters.parse("cursor", "the cursor of the answer before")?,
    };
    let limit = filter.limit as usize;
    let jobs = app.jobs().list(filter).await?;
    let waits = app.jobs().waits(|project| sight.sees(project)).await?;
    let mut listed = Vec::with_capacity(jobs.len());
    for job in &jobs {
        listed.push(shown::job(&app, job, waits.get(&job.id)).await?);
    }
    let cursor = if jobs.len() == limit { jobs.last().map(|job| job.cursor) } else { None };
    Ok(Json(json!({ "jobs": listed, "cursor": cursor })))
}

/// `GET /api/v1/jobs/{job}`, by name or identifier.
pub(crate) async fn one(State(app): State<App>, sight: Sight, SeenJob(job): SeenJob) -> Result<Json<Value>, ApiError> {
    let mut answer = shown::alone(&app, &sight, &job).await?;
    let attempts = app.jobs().attempts(&job.id).await?;
    answer["attempts"] = attempts.iter().map(|attempt| shown::attempt_of(&job, attempt)).collect();
    let outputs = app.jobs().outputs(&job.id).await?;
    answer["outputs"] = outputs.iter().map(|file| json!({ "path": file.path, "bytes": file.bytes })).collect();
    let events = app.jobs().all_events(&job.id).await?;
    answer["published"] = shown::published(&events);
    answer["phases"] = phases::of(&job, &events).iter().map(shown::phase).collect();
    answer["events"] = events.iter().take(EVENTS_LISTED_MAX as usize).map(shown::event).collect();
    Ok(Json(answer))
}

/// `GET /api/v1/jobs/{job}/metrics?series=loss&from=&times=`; without `series` every one of them. A point is `[step, value]`,
/// with `times` `[step, value, ms]`. Where a series has more points than one answer takes, `next` is the step to ask from for
/// the rest of them all.
pub(crate) async fn metrics(
    State(app): State<App>,
    SeenJob(job): SeenJob,
    parameters: Parameters,
) -> Result<Json<Value>, ApiError> {
    let from = parameters.parse("from", "a step")?.unwrap_or(0);
    let times = parameters.flag("times");
    let names = match parameters.get("series") {
        Some(series) => series.split(',').map(str::to_owned).collect(),
        None => app.jobs().series_names(&job.id).await?,
    };
    let mut series = Vec::with_capacity(names.len());
    let mut next: Option<u64> = None;
    for name in names {
        let points = app.jobs().series(&job.id, &name, from).await?;
        if let Some(last) = points.last().filter(|_| points.len() == POINTS_LISTED_MAX as usize) {
            next = Some(next.map_or(last.step + 1, |next| next.min(last.step + 1)));
        }
        let point = |point: &MetricPoint| match times {
            true => json!([point.step, shown::number(point.value), point.at_ms]),
            false => json!([point.step, shown::number(point.value)]),
        };
        series.push(json!({ "name": name, "points": points.iter().map(point).collect::<Vec<Value>>() }));
    }
    Ok(Json(json!({ "started_ms": job.started_ms, "series": series, "next": next })))
}

/// `GET /api/v1/jobs/{job}/attempts`.
pub(crate) async fn attempts(State(app): State<App>, SeenJob(job): SeenJob) -> Result<Json<Value>, ApiError> {
    let attempts = app.jobs().attempts(&job.id).await?;
    Ok(Json(json!({ "attempts": attempts.iter().map(shown::attempt).collect::<Vec<Value>>() })))
}

/// `GET /api/v1/jobs/{job}/events?after=`.
pub(crate) async fn events(
    State(app): State<App>,
    SeenJob(job): SeenJob,
    parameters: Parameters,
) -> Result<Json<Value>, ApiError> {
    let after = parameters.parse("after", "the sequence of an event")?.unwrap_or(0);
    let events = app.jobs().events(&job.id, after).await?;
    Ok(Json(json!({ "events": events.iter().map(shown::event).collect::<Vec<Value>>() })))
}
