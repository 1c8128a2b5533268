//! The data that jobs mount: datasets, pinned to the version that they read, and outputs of other jobs.

use saggar_jobs::{DataMount, DataSource, JobError};
use saggar_store::AccessAction;
use saggar_store::dataset::DatasetInfo;
use saggar_store::error::DatasetError;

use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;
use crate::resource_access;

/// Pins the version of a mounted dataset and returns its information, or `None` if the mount is a job's output.
///
/// # Errors
/// Returns `NotFound` for an absent or invisible dataset or job, and `Job` for the output of a job that has not ended.
pub(super) async fn pin_mount(
    app: &AppState,
    sight: &ProjectScope,
    mount: &mut DataMount,
) -> Result<Option<DatasetInfo>, ApiError> {
    let reference = mount.source.to_string();
    match &mut mount.source {
        DataSource::Dataset { version, .. } => {
            let hint = "GET /api/v1/datasets lists them; `saggar data push` uploads one".to_owned();
            let missing = ApiError::NotFound { kind: "dataset", name: reference.clone(), hint };
            let rights = sight.rights().clone();
            let find = move |parts: &crate::AppParts| {
                resource_access::find_dataset(parts, &rights, AccessAction::ReadDataset, &reference)
            };
            let found = app.run_blocking(find).await;
            let info = found.map_err(|error| match error {
                ApiError::Dataset(DatasetError::NotFound { .. }) => missing,
                error => error,
            })?;
            *version = Some(info.version);
            Ok(Some(info))
        }
        DataSource::Output { job: name, .. } => {
            let job = sight.find_job(app.jobs(), name).await?;
            if !job.state.is_final() {
                let hint = "its output can be mounted once the job has finished".to_owned();
                return Err(JobError::State { name: job.name, state: job.state.name().to_owned(), hint }.into());
            }
            *name = job.name;
            Ok(None)
        }
    }
}
