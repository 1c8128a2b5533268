//! `runs/search`: runs of experiments, filtered and ordered.

use axum::extract::{Request, State};
use saggar_rest::mlflow::{SearchRunsRequest, SearchRunsResponse};
use saggar_store::external_runs::ExternalRun;
use saggar_store::records::JobFilter;

use super::error::MlflowError;
use super::experiments::visible_experiments;
use super::filter::SearchFilter;
use super::order::SearchOrder;
use super::page::PageRequest;
use super::runs::{RUN_ATTRIBUTES, job_run, run_document};
use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::{ApiError, SerializedJson};
use crate::json_body::JsonBody;
use crate::limits::{MLFLOW_ENTRIES_DEFAULT, MLFLOW_RUNS_SEARCHED_MAX, MLFLOW_SEARCH_BYTES_MAX};

/// The bytes of a value of a metric in memory, and of the rest of a run, about.
const POINT_BYTES: usize = 80;
const RUN_BYTES: usize = 400;
/// External runs that are read at once.
const READ_AT_ONCE: u32 = 50;

impl JsonBody for SearchRunsRequest {
    const EXAMPLE: &'static str =
        r#"{"experiment_ids": ["0"], "filter": "metrics.loss < 0.1", "order_by": ["metrics.loss ASC"]}"#;
}

/// What is searched for.
struct RunSearch {
    filter: SearchFilter,
    wants_active: bool,
    wants_deleted: bool,
    /// Bytes of the runs that matched so far.
    bytes: usize,
}

impl RunSearch {
    /// Adds the runs that match.
    ///
    /// # Errors
    /// `TooLarge` if the matching runs take too much memory.
    fn add(
        &mut self,
        runs: impl Iterator<Item = ExternalRun>,
        found: &mut Vec<ExternalRun>,
    ) -> Result<(), MlflowError> {
        for run in runs {
            if !self.matches(&run) {
                continue;
            }
            let texts = run.parameters.iter().chain(&run.tags).map(|(key, value)| key.len() + value.len());
            let bytes = texts.sum::<usize>() + run.latest.len() * POINT_BYTES + RUN_BYTES;
            let found_bytes = self.bytes + bytes;
            if found_bytes > MLFLOW_SEARCH_BYTES_MAX {
                return Err(MlflowError::TooLarge { runs: found.len() });
            }
            self.bytes = found_bytes;
            found.push(run);
        }
        Ok(())
    }

    fn matches(&self, run: &ExternalRun) -> bool {
        let is_wanted = if run.is_deleted { self.wants_deleted } else { self.wants_active };
        is_wanted && self.filter.matches(run)
    }
}

/// Handles `POST /api/2.0/mlflow/runs/search`. Of each experiment, the newest [`MLFLOW_RUNS_SEARCHED_MAX`] jobs and as many
/// external runs are searched.
pub(super) async fn search(
    State(app): State<AppState>,
    sight: ProjectScope,
    request: Request,
) -> Result<SerializedJson<SearchRunsResponse>, ApiError> {
    let request: SearchRunsRequest = app.body_reader().read_json(request).await?;
    let page = PageRequest::read(request.max_results, request.page_token.as_deref(), MLFLOW_ENTRIES_DEFAULT)?;
    let view = request.run_view_type.as_deref().unwrap_or("ACTIVE_ONLY");
    let mut search = RunSearch {
        filter: SearchFilter::parse(request.filter.as_deref().unwrap_or_default(), RUN_ATTRIBUTES)?,
        wants_active: view != "DELETED_ONLY",
        wants_deleted: view != "ACTIVE_ONLY",
        bytes: 0,
    };
    let order = SearchOrder::parse(&request.order_by, RUN_ATTRIBUTES)?;
    let known = visible_experiments(&app, &sight).await?;
    let mut found = Vec::new();
    let mut searched: Vec<&str> = Vec::new();
    for id in &request.experiment_ids {
        let experiment = known.iter().find(|experiment| experiment.experiment_id == *id);
        let missing = || MlflowError::NoExperiment { name: id.chars().take(80).collect() };
        let name = experiment.ok_or_else(missing)?.name.as_str();
        if !searched.contains(&name) {
            searched.push(name);
            add_jobs(&app, name, &mut search, &mut found).await?;
            add_external_runs(&app, name, &mut search, &mut found).await?;
        }
    }
    // Sorting and serializing many runs takes long enough to delay the executor's other tasks.
    app.run_blocking(move |_| {
        found.sort_by(|left, right| (right.started_ms, &left.id).cmp(&(left.started_ms, &right.id)));
        found.sort_by(|left, right| order.compare(left, right));
        let (runs, next_page_token) = page.cut(found);
        SerializedJson::new(&SearchRunsResponse { runs: runs.iter().map(run_document).collect(), next_page_token })
    })
    .await
}

async fn add_jobs(
    app: &AppState,
    project: &str,
    search: &mut RunSearch,
    found: &mut Vec<ExternalRun>,
) -> Result<(), ApiError> {
    let mut filter = JobFilter { project: Some(project.to_owned()), ..JobFilter::default() };
    let mut count = 0;
    while search.wants_active && count < MLFLOW_RUNS_SEARCHED_MAX {
        let jobs = app.jobs().list(filter.clone()).await?;
        let Some(last) = jobs.last() else { return Ok(()) };
        (filter.before, count) = (Some(last.cursor), count + jobs.len());
        let details = app.jobs().details(jobs.iter().map(|job| job.id.clone()).collect()).await?;
        let runs = jobs.iter().filter_map(|job| Some(job_run(job, details.get(&job.id)?)));
        search.add(runs, found)?;
    }
    Ok(())
}

async fn add_external_runs(
    app: &AppState,
    experiment: &str,
    search: &mut RunSearch,
    found: &mut Vec<ExternalRun>,
) -> Result<(), ApiError> {
    let (mut before, mut count) = (None, 0);
    while count < MLFLOW_RUNS_SEARCHED_MAX {
        let name = experiment.to_owned();
        let read = app.run_blocking(move |parts| {
            parts.external_runs.runs(&name, before, READ_AT_ONCE).map_err(MlflowError::from)
        });
        let runs = read.await?;
        let Some((last, _)) = runs.last() else { return Ok(()) };
        (before, count) = (Some(*last), count + runs.len());
        search.add(runs.into_iter().map(|(_, run)| run), found)?;
    }
    Ok(())
}
