//! `saggar ps --spark`: a series of each listed job in one line of blocks.

use saggar_charts::sparkline;
use saggar_rest::jobs::JobDocument;

use super::job_series::JobMetrics;
use crate::client::ApiClient;
use crate::exit::CliError;

/// Blocks of a series.
const BLOCKS: usize = 20;
/// Maximum jobs whose series are fetched, because each needs a request.
const JOBS_MAX: usize = 50;

/// Returns a cell for each job: its series as blocks, or `-` if it has no values or is not among the first
/// [`JOBS_MAX`].
///
/// # Errors
/// Those of the server, except for a job that was removed since it was listed.
pub(super) fn spark_cells(series: &str, jobs: &[JobDocument], client: &ApiClient) -> Result<Vec<String>, CliError> {
    let dash = || "-".to_owned();
    let cell = |(index, job): (usize, &JobDocument)| -> Result<String, CliError> {
        // A queued job has none.
        if index >= JOBS_MAX || !job.metrics.contains_key(series) {
            return Ok(dash());
        }
        let fetched = JobMetrics::fetch(&job.name, &[series.to_owned()], 0, client);
        match fetched {
            Ok(mut measured) => {
                let blocks = sparkline(&measured.take_points(series), BLOCKS);
                Ok(if blocks.is_empty() { dash() } else { blocks })
            }
            Err(failure) if failure.code == "not_found" => Ok(dash()),
            Err(failure) => Err(failure),
        }
    };
    jobs.iter().enumerate().map(cell).collect()
}
