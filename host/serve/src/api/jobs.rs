//! `/api/v1/jobs`: listing and watching. Submitting is in [`submit`], what else users tell jobs in [`commands`], their numbers
//! in [`metrics`].

pub(crate) mod checkpoints;
pub(crate) mod commands;
pub(crate) mod metrics;
pub(crate) mod removal;
mod requirements;
pub(super) mod shown;
pub(crate) mod submit;

use axum::Json;
use axum::extract::State;
use saggar_jobs::phases;
use saggar_store::records::{Job, JobFilter, JobState};
use serde_json::{Value, json};

use super::query::Parameters;
use crate::access::{SeenJob, Sight};
use crate::app::App;
use crate::error::ApiError;
use crate::limits::{EVENTS_SHOWN_MAX, JOBS_LISTED_DEFAULT};

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
    let details = app.jobs().details(jobs.iter().map(|job| job.id.clone()).collect()).await?;
    // A job without details was removed meanwhile.
    let show = |job: &Job| Some(shown::job(&app, job, waits.get(&job.id), details.get(&job.id)?));
    let listed: Vec<Value> = jobs.iter().filter_map(show).collect();
    let cursor = if jobs.len() == limit { jobs.last().map(|job| job.cursor) } else { None };
    Ok(Json(json!({ "jobs": listed, "cursor": cursor })))
}

/// The kinds of the events of which a job's phases and publications are told.
const TELLING: [&str; 3] = [phases::KINDS[0], phases::KINDS[1], shown::PUBLISHED];

/// `GET /api/v1/jobs/{job}`, by name or identifier. Of its events it has the newest.
pub(crate) async fn one(State(app): State<App>, sight: Sight, SeenJob(job): SeenJob) -> Result<Json<Value>, ApiError> {
    let details = app.jobs().details_of(&job.id).await?;
    let mut answer = shown::detailed(&app, &sight, &job, &details).await?;
    answer["attempts"] = details.attempts.iter().map(|attempt| shown::attempt_of(&job, attempt)).collect();
    let outputs = app.jobs().outputs(&job.id).await?;
    answer["outputs"] = outputs.iter().map(|file| json!({ "path": file.path, "bytes": file.bytes })).collect();
    let told = app.jobs().events_of_kinds(&job.id, &TELLING).await?;
    answer["published"] = shown::published(&told);
    answer["phases"] = phases::of(&job, &told).iter().map(shown::phase).collect();
    let events = app.jobs().newest_events(&job.id, EVENTS_SHOWN_MAX).await?;
    answer["events"] = events.iter().map(shown::event).collect();
    Ok(Json(answer))
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
