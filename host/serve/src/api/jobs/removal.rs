//! Removes jobs with their records, logs, outputs and checkpoints. Models that they published stay.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, Request, State};
use saggar_jobs::{JobError, JobSpec};
use saggar_rest::jobs::{JobGcDocument, JobGcRequest, RemovedJobDocument, SweptJobDocument};
use saggar_store::records::{JobFilter, JobRecord, JobState};

use crate::access::{Actor, ProjectScope};
use crate::api::visible_job::VisibleJob;
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::ApiError;
use crate::json_body::JsonBody;

/// Handles `DELETE /api/v1/jobs/{job}`.
pub(crate) async fn remove(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
    sight: ProjectScope,
    job: Result<VisibleJob, ApiError>,
) -> Result<Json<RemovedJobDocument>, ApiError> {
    let removed: Result<RemovedJobDocument, ApiError> = async {
        let VisibleJob(job) = job?;
        let freed_bytes = remove_job(&app, &sight, &job, &mut UnfinishedJobs::default()).await?;
        Ok(RemovedJobDocument { name: job.name, freed_bytes })
    }
    .await;
    app.audit().record(&actor, AuditAction::JobRemove, &name, "", &removed);
    Ok(Json(removed?))
}

impl JsonBody for JobGcRequest {
    const EXAMPLE: &'static str = r#"{"project": "digits", "keep_last": 5, "dry_run": true}"#;
}

/// Handles `POST /api/v1/jobs/gc`.
pub(crate) async fn collect_garbage(
    State(app): State<AppState>,
    request: Request,
) -> Result<Json<JobGcDocument>, ApiError> {
    let (actor, sight) =
        (Actor::from_extensions(request.extensions()), ProjectScope::from_extensions(request.extensions()));
    let sweep: JobGcRequest = app.body_reader().read_json_or_default(request).await?;
    if sweep.keep_last.is_none() && sweep.failed_older_than_seconds.is_none() && sweep.experiment.is_none() {
        return Err(ApiError::Parameter {
            name: "keep_last",
            expected: "a criterion: keep_last, failed_older_than_seconds or experiment",
            got: "none of them".to_owned(),
        });
    }
    let mut unfinished = UnfinishedJobs::default();
    let mut gone = Vec::new();
    let mut freed = 0;
    for job in select_jobs(&app, &sight, &sweep).await? {
        let bytes = match sweep.dry_run {
            true => removable_bytes(&app, &job).await?,
            false => match remove_job(&app, &sight, &job, &mut unfinished).await {
                // Another job reads it, or it was restarted meanwhile: keep it.
                Err(ApiError::Job(JobError::Read { .. } | JobError::State { .. } | JobError::NotFound { .. })) => {
                    continue;
                }
                removed => {
                    app.audit().record(&actor, AuditAction::JobRemove, &job.name, "gc", &removed);
                    removed?
                }
            },
        };
        freed += bytes;
        gone.push(SweptJobDocument { name: job.name, state: job.state.name().to_owned(), bytes });
    }
    if !sweep.dry_run {
        // Only compaction frees the space of records of earlier builds.
        app.jobs().compact().await?;
    }
    Ok(Json(JobGcDocument { jobs: gone, freed_bytes: freed, dry_run: sweep.dry_run }))
}

/// Returns the jobs that match the criteria and that the client can see, newest first.
async fn select_jobs(app: &AppState, sight: &ProjectScope, sweep: &JobGcRequest) -> Result<Vec<JobRecord>, ApiError> {
    let states = JobState::ALL.into_iter().filter(|state| state.is_final()).collect();
    let (project, experiment) = (sweep.project.clone(), sweep.experiment.clone());
    let mut filter = JobFilter { states, project, projects: sight.projects(), experiment, ..JobFilter::default() };
    let now_ms = app.now_ms();
    let mut newer: HashMap<String, u64> = HashMap::new();
    let mut chosen = Vec::new();
    loop {
        let jobs = app.jobs().list(filter.clone()).await?;
        let Some(last) = jobs.last() else { return Ok(chosen) };
        filter.before = Some(last.cursor);
        for job in jobs {
            let before = newer.entry(job.project.clone()).or_default();
            let beyond = sweep.keep_last.is_some_and(|keep| *before >= keep);
            *before += 1;
            let age = now_ms.saturating_sub(job.finished_ms.unwrap_or(now_ms)) as f64 / 1000.0;
            let old = sweep.failed_older_than_seconds.is_some_and(|most| age > most);
            let whole = sweep.keep_last.is_none() && sweep.failed_older_than_seconds.is_none();
            if whole || beyond || (old && job.state != JobState::Succeeded) {
                chosen.push(job);
            }
        }
    }
}

/// Returns the number of bytes that removing the job would free.
async fn removable_bytes(app: &AppState, job: &JobRecord) -> Result<u64, ApiError> {
    let checkpoints = app.checkpoints().stored_bytes(&job.id).await?;
    let id = job.id.clone();
    let files = app.run_blocking(move |parts| parts.home.job_files().job_bytes(&id)).await?;
    Ok(checkpoints + files)
}

/// Removes a job's files, then its record. If this is interrupted, the remaining record allows another try; files
/// without a record would never be removed.
async fn remove_job(
    app: &AppState,
    sight: &ProjectScope,
    job: &JobRecord,
    unfinished: &mut UnfinishedJobs,
) -> Result<u64, ApiError> {
    if !job.state.is_final() {
        let hint = format!("`saggar stop {}` stops it first", job.name);
        return Err(JobError::State { name: job.name.clone(), state: job.state.name().to_owned(), hint }.into());
    }
    let _turn = app.reference_lock().write().await;
    let readers = unfinished.find_readers(app, &job.name).await?;
    if !readers.is_empty() {
        let readers =
            sight.visible_job_names(readers.iter().map(|reader| (reader.project.as_str(), reader.name.as_str())));
        return Err(JobError::Read { name: job.name.clone(), readers }.into());
    }
    // Its outputs are inputs of later steps.
    if let Some(run) = app.pipelines().unfinished_run_of_job(&job.name).await? {
        return Err(JobError::Read { name: job.name.clone(), readers: format!("pipeline run {run}") }.into());
    }
    let checkpoints = app.checkpoints().remove_all(&job.id).await?;
    let id = job.id.clone();
    let files = app.run_blocking(move |parts| parts.home.job_files().remove(&id)).await?;
    app.jobs().delete_record(&job.id).await?;
    Ok(checkpoints + files)
}

/// A cache of the unfinished jobs. It is reloaded after any job event, so that a removal of many jobs notices a job
/// that was submitted meanwhile and reads what would be removed.
#[derive(Default)]
struct UnfinishedJobs {
    /// The sequence number of the newest event of any job when the cache was loaded.
    event: Option<u64>,
    jobs: Vec<(JobRecord, JobSpec)>,
}

impl UnfinishedJobs {
    /// Returns the unfinished jobs that read the outputs or checkpoints of job `name`.
    async fn find_readers(&mut self, app: &AppState, name: &str) -> Result<Vec<&JobRecord>, ApiError> {
        let event = Some(app.jobs().newest_event_sequence().await?);
        if self.event != event {
            self.jobs = app.jobs().unfinished_jobs().await?;
            self.event = event;
        }
        let reads = self.jobs.iter().filter(|(_, spec)| spec.referenced_jobs().any(|named| named == name));
        Ok(reads.map(|(job, _)| job).collect())
    }
}
