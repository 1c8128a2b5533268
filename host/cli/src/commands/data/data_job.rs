//! `saggar data fetch --on-server` and `saggar data add --as-job`: make a version of a dataset in a job of the server.

use saggar_jobs::{DataStepSource, DataStepSpec, JobSpec};
use saggar_rest::jobs::JobDocument;

use crate::client::{ApiClient, RequestBody};
use crate::commands::run::wait_and_report;
use crate::exit::CliError;
use crate::output::CliOutput;

/// The task of data steps.
const DATA_TASK: &str = "data";

/// Submits a data step, and waits for it unless it is detached. Returns the exit code.
pub(super) fn submit_data_step(
    dataset: &str,
    from: DataStepSource,
    is_detached: bool,
    client: &ApiClient,
    output: CliOutput,
) -> Result<i32, CliError> {
    // The jobs of a dataset are numbered under its name.
    let mut spec = JobSpec::new(dataset, String::new());
    spec.task = DATA_TASK.to_owned();
    spec.data_step = Some(DataStepSpec { dataset: dataset.to_owned(), from });
    spec.validate().map_err(|error| CliError::invalid(error.to_string()))?;
    let job: JobDocument = client.post("/api/v1/jobs", RequestBody::json(&spec))?;
    if !is_detached {
        return wait_and_report(client, output, &job.name, false);
    }
    if output.json {
        output.print_json(&job);
    } else {
        output.print_line(&job.name);
        output.print_note(&format!("Next: saggar wait {name} | saggar output ls {name} --kind value", name = job.name));
    }
    Ok(0)
}
