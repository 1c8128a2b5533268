//! `GET /api/v1/compare`: jobs, pipeline runs or sweeps side by side. Names of several kinds are refused, because they
//! have no parameters and results in common.

mod pipeline_runs;
mod sweeps;
mod values;

use axum::Json;
use axum::extract::State;
use saggar_jobs::JobError;
use saggar_pipelines::PipelineError;
use saggar_rest::comparisons::{COMPARED_JOBS, COMPARED_RUNS, COMPARED_SWEEPS, COMPARISON_KINDS, ComparisonDocument};
use saggar_rest::jobs::JobDocument;
use saggar_store::records::{JobRecord, PipelineRunRecord, SweepRecord};
use saggar_sweeps::SweepError;

use super::jobs::views;
use super::query::QueryParameters;
use crate::access::ProjectScope;
use crate::api::{self, pipelines};
use crate::app::AppState;
use crate::error::ApiError;
use crate::limits::{JOBS_COMPARED_MAX, RUNS_COMPARED_MAX};

/// What a name is. A name can be a job's and a pipeline run's at once, for they are numbered separately.
#[derive(Debug, Default)]
struct NamedThings {
    job: Option<JobRecord>,
    run: Option<PipelineRunRecord>,
    sweep: Option<SweepRecord>,
}

impl NamedThings {
    /// Returns what is visible under this name, of the given kind or of any.
    async fn find(
        app: &AppState,
        sight: &ProjectScope,
        name: &str,
        kind: Option<&str>,
    ) -> Result<NamedThings, ApiError> {
        let mut found = NamedThings::default();
        if kind.is_none_or(|kind| kind == COMPARED_JOBS) {
            found.job = match sight.find_job(app.jobs(), name).await {
                Err(JobError::NotFound { .. }) => None,
                job => Some(job?),
            };
        }
        if kind.is_none_or(|kind| kind == COMPARED_RUNS) {
            found.run = match pipelines::find_visible(app, sight, name).await {
                Err(PipelineError::NotFound { .. }) => None,
                run => Some(run?),
            };
        }
        if kind.is_none_or(|kind| kind == COMPARED_SWEEPS) {
            found.sweep = match api::sweeps::find_visible(app, sight, name).await {
                Err(SweepError::NotFound { .. }) => None,
                sweep => Some(sweep?),
            };
        }
        Ok(found)
    }

    fn kinds(&self) -> Vec<&'static str> {
        let found = [self.job.is_some(), self.run.is_some(), self.sweep.is_some()];
        COMPARISON_KINDS.into_iter().zip(found).filter(|(_, is_found)| *is_found).map(|(kind, _)| kind).collect()
    }
}

/// Handles `GET /api/v1/compare?names=&kind=`. Names are separated by commas. If all of them are of several kinds, they
/// are compared as jobs, or else as pipeline runs, unless `kind` is given.
pub(crate) async fn compare(
    State(app): State<AppState>,
    sight: ProjectScope,
    parameters: QueryParameters,
) -> Result<Json<ComparisonDocument>, ApiError> {
    let text = parameters.get("names").unwrap_or_default();
    let names: Vec<&str> = text.split(',').filter(|name| !name.is_empty()).collect();
    let kind = parameters.get("kind");
    if let Some(kind) = kind.filter(|kind| !COMPARISON_KINDS.contains(kind)) {
        let got = kind.chars().take(80).collect();
        return Err(ApiError::Parameter { name: "kind", expected: "job, pipeline-run or sweep", got });
    }
    if names.len() < 2 || names.len() > JOBS_COMPARED_MAX {
        let got = format!("{} names", names.len());
        return Err(ApiError::Parameter { name: "names", expected: "2 to 100 names, separated by commas", got });
    }
    let mut found = Vec::with_capacity(names.len());
    for name in &names {
        let things = NamedThings::find(&app, &sight, name, kind).await?;
        if things.kinds().is_empty() {
            return Err(missing(name, kind));
        }
        found.push(things);
    }
    let jobs: Option<Vec<JobRecord>> = found.iter().map(|things| things.job.clone()).collect();
    let runs: Option<Vec<PipelineRunRecord>> = found.iter().map(|things| things.run.clone()).collect();
    let sweeps: Option<Vec<SweepRecord>> = found.iter().map(|things| things.sweep.clone()).collect();
    let document = match (jobs, runs, sweeps) {
        (Some(jobs), _, _) => jobs_document(&app, &sight, &jobs).await?,
        (None, Some(runs), _) => {
            check_count(&runs)?;
            pipeline_runs::compare_runs(&app, &runs).await?
        }
        (None, None, Some(sweeps)) => {
            check_count(&sweeps)?;
            sweeps::compare_sweeps(&app, &sweeps).await?
        }
        (None, None, None) => return Err(mixed_kinds(&names, &found)),
    };
    Ok(Json(document))
}

/// Refuses more pipeline runs or sweeps than are compared at once: each has steps or trials.
fn check_count<T>(things: &[T]) -> Result<(), ApiError> {
    if things.len() <= RUNS_COMPARED_MAX {
        return Ok(());
    }
    let got = format!("{} names", things.len());
    Err(ApiError::Parameter { name: "names", expected: "at most 20 pipeline runs or sweeps", got })
}

fn missing(name: &str, kind: Option<&str>) -> ApiError {
    let (kind, hint) = match kind {
        Some(COMPARED_JOBS) => ("job", "`saggar ps -a` lists the jobs"),
        Some(COMPARED_RUNS) => ("pipeline run", "`saggar pipeline ls` lists the runs"),
        Some(_) => ("sweep", "`saggar sweep ls` lists the sweeps"),
        None => ("job, pipeline run or sweep", "`saggar ps -a`, `saggar pipeline ls` and `saggar sweep ls` list them"),
    };
    ApiError::NotFound { kind, name: name.chars().take(80).collect(), hint: hint.to_owned() }
}

/// Names two things that have no kind in common.
fn mixed_kinds(names: &[&str], found: &[NamedThings]) -> ApiError {
    let kinds: Vec<String> = found.iter().map(|things| things.kinds().join(" or ").replace('-', " ")).collect();
    let other = kinds.iter().position(|kind| *kind != kinds[0]).unwrap_or(0);
    let got = format!("{} ({}) and {} ({})", names[0], kinds[0], names[other], kinds[other]);
    ApiError::Parameter { name: "names", expected: "names of one kind: jobs, pipeline runs or sweeps", got }
}

async fn jobs_document(
    app: &AppState,
    sight: &ProjectScope,
    jobs: &[JobRecord],
) -> Result<ComparisonDocument, ApiError> {
    let waits = app.jobs().queue_waits(|project| sight.contains_project(project)).await?;
    let details = app.jobs().details(jobs.iter().map(|job| job.id.clone()).collect()).await?;
    let mut documents: Vec<JobDocument> = Vec::with_capacity(jobs.len());
    for job in jobs {
        // A job without details was removed meanwhile.
        let details = details.get(&job.id).ok_or_else(|| JobError::no_job(&job.name))?;
        documents.push(views::job_document(app, job, waits.get(&job.id), details));
    }
    let kind = COMPARED_JOBS.to_owned();
    Ok(ComparisonDocument { kind, jobs: Some(documents), ..ComparisonDocument::default() })
}
