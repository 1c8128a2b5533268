//! Pins a data step at submission: its job, the right to make the version, and the address to fetch from.

use saggar_jobs::{DataStepSource, DataStepVersion, JobError, JobSpec};
use saggar_store::{AccessAction, AccessRights};

use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;
use crate::resource_access;

/// Validates a data step and pins its source.
///
/// # Errors
/// Returns `Job` if the specification is invalid or its job has not finished; `Fetch` if the server does not fetch from the
/// address; `AccessDenied` or `Conflict` if the submitter cannot make a version of the dataset; `Dataset` if a version
/// that is named does not exist.
pub(super) async fn pin_data_step(app: &AppState, sight: &ProjectScope, spec: &mut JobSpec) -> Result<(), ApiError> {
    spec.validate().map_err(JobError::from)?;
    let Some(step) = &mut spec.data_step else { return Ok(()) };
    match &mut step.from {
        DataStepSource::Output(output) => {
            let job = sight.find_job(app.jobs(), &output.job).await?;
            if !job.state.is_final() {
                let hint = "a dataset can be made of its output once the job has finished".to_owned();
                return Err(JobError::State { name: job.name, state: job.state.name().to_owned(), hint }.into());
            }
            output.job = job.name;
        }
        DataStepSource::Fetch(fetch) => app.parts().fetcher.check(&fetch.url)?,
        DataStepSource::Version(DataStepVersion { version }) => {
            return check_version(app, sight.rights(), &format!("{}/{version}", step.dataset)).await;
        }
    }
    let (rights, dataset) = (sight.rights().clone(), step.dataset.clone());
    app.run_blocking(move |parts| resource_access::check_push(parts, &rights, &dataset)).await
}

/// Checks that a version of a dataset exists and can be read with these rights.
///
/// # Errors
/// Returns `Dataset` if it does not exist or is hidden; `AccessDenied`.
pub(in crate::api) async fn check_version(
    app: &AppState,
    rights: &AccessRights,
    reference: &str,
) -> Result<(), ApiError> {
    let (rights, reference) = (rights.clone(), reference.to_owned());
    let find = move |parts: &crate::AppParts| {
        resource_access::find_dataset(parts, &rights, AccessAction::ReadDataset, &reference)
    };
    app.run_blocking(find).await.map(drop)
}
