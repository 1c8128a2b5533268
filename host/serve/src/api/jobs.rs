//! `/api/v1/jobs`: listing and watching jobs. Submission is in [`submit`], other commands in [`commands`], metrics in
//! [`metrics`].

pub(crate) mod checkpoints;
pub(crate) mod commands;
pub(in crate::api) mod data_step;
pub(crate) mod metrics;
mod mounts;
pub(crate) mod notebook;
pub(crate) mod origin;
pub(crate) mod removal;
pub(in crate::api) mod requirements;
mod step_inputs;
pub(crate) mod submit;
pub(crate) mod views;

use axum::Json;
use axum::extract::State;
use saggar_jobs::phases;
use saggar_rest::events::JobEventListDocument;
use saggar_rest::jobs::{AttemptListDocument, JobDocument, JobListDocument};
use saggar_store::error::is_store_unavailable;
use saggar_store::outputs::OutputFile;
use saggar_store::records::{JobFilter, JobRecord, JobState};

use super::outputs::output_document;
use super::query::QueryParameters;
use super::visible_job::VisibleJob;
use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;
use crate::limits::{EVENTS_SHOWN_MAX, JOB_OUTPUTS_TIME_MAX, JOBS_LISTED_DEFAULT};

/// Handles `GET /api/v1/jobs?state=&project=&experiment=&limit=&cursor=`. Several states are separated by commas.
pub(crate) async fn list(
    State(app): State<AppState>,
    sight: ProjectScope,
    parameters: QueryParameters,
) -> Result<Json<JobListDocument>, ApiError> {
    let expected = "job states separated by commas, such as RUNNING,QUEUED";
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
        before: parameters.parse("cursor", "the cursor of the previous response")?,
    };
    let limit = filter.limit as usize;
    let jobs = app.jobs().list(filter).await?;
    let waits = app.jobs().queue_waits(|project| sight.contains_project(project)).await?;
    let details = app.jobs().details(jobs.iter().map(|job| job.id.clone()).collect()).await?;
    // A job without details was removed meanwhile.
    let show = |job: &JobRecord| Some(views::job_document(&app, job, waits.get(&job.id), details.get(&job.id)?));
    let cursor = if jobs.len() == limit { jobs.last().map(|job| job.cursor) } else { None };
    Ok(Json(JobListDocument { jobs: jobs.iter().filter_map(show).collect(), cursor }))
}

/// The kinds of events that report a job's phases and published versions.
const PHASE_AND_PUBLICATION_KINDS: [&str; 3] = [phases::EVENT_KINDS[0], phases::EVENT_KINDS[1], views::PUBLISHED];

/// Handles `GET /api/v1/jobs/{job}`, by name or identifier. The response contains the newest events.
pub(crate) async fn get(
    State(app): State<AppState>,
    sight: ProjectScope,
    VisibleJob(job): VisibleJob,
) -> Result<Json<JobDocument>, ApiError> {
    let details = app.jobs().job_details(&job.id).await?;
    let summary = views::job_with_waits(&app, &sight, &job, &details).await?;
    let outputs = outputs_if_available(&app, &job).await?;
    let events = app.jobs().newest_events(&job.id, EVENTS_SHOWN_MAX).await?;
    let milestones = app.jobs().events_of_kinds(&job.id, &PHASE_AND_PUBLICATION_KINDS).await?;
    let phases = phases::job_phases(&job, &milestones);
    let step_outputs = app.jobs().step_outputs(&job).await?;
    Ok(Json(JobDocument {
        attempts: Some(details.attempts.iter().map(|it| views::attempt_with_log_url(&job, it)).collect()),
        outputs: outputs.map(|outputs| outputs.into_iter().map(output_document).collect()),
        published: Some(views::published_versions(&milestones)),
        step_outputs: (!step_outputs.is_empty()).then(|| views::step_output_documents(step_outputs)),
        phases: Some(phases.iter().map(views::phase_document).collect()),
        events: Some(events.iter().map(views::event_document).collect()),
        ..summary
    }))
}

/// Returns the files that a job has written, or `None` if they are in a store that does not answer in time: what a job
/// does must be visible during an outage too.
async fn outputs_if_available(app: &AppState, job: &JobRecord) -> Result<Option<Vec<OutputFile>>, ApiError> {
    match tokio::time::timeout(JOB_OUTPUTS_TIME_MAX, app.jobs().list_outputs(&job.id)).await {
        Ok(Ok(outputs)) => Ok(Some(outputs)),
        Ok(Err(error)) if is_store_unavailable(&error) => Ok(None),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// Handles `GET /api/v1/jobs/{job}/attempts`.
pub(crate) async fn attempts(
    State(app): State<AppState>,
    VisibleJob(job): VisibleJob,
) -> Result<Json<AttemptListDocument>, ApiError> {
    let attempts = app.jobs().attempts(&job.id).await?;
    Ok(Json(AttemptListDocument { attempts: attempts.iter().map(views::attempt_document).collect() }))
}

/// Handles `GET /api/v1/jobs/{job}/events?after=`.
pub(crate) async fn events(
    State(app): State<AppState>,
    VisibleJob(job): VisibleJob,
    parameters: QueryParameters,
) -> Result<Json<JobEventListDocument>, ApiError> {
    let after = parameters.parse("after", "the sequence of an event")?.unwrap_or(0);
    let events = app.jobs().events(&job.id, after).await?;
    Ok(Json(JobEventListDocument { events: events.iter().map(views::event_document).collect() }))
}
