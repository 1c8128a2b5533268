//! Authorization for models, datasets and secrets. Each belongs to projects or to none, and the table of actions
//! defines the rest. To a key without read access, a dataset does not exist.

use std::future::Future;

use saggar_serving::ServingError;
use saggar_store::dataset::DatasetInfo;
use saggar_store::{
    AccessAction, AccessDenied, AccessRights, DatasetError, ProjectAssignments, ProjectsError, VersionClaim,
};

use crate::app::AppState;
use crate::error::ApiError;

/// Checks that the rights permit an action on a model.
///
/// # Errors
/// Returns `AccessDenied`. Names of models are visible to every key, so a refusal need not look like a missing model.
pub(crate) async fn check_model(
    app: &AppState,
    rights: &AccessRights,
    effect: AccessAction,
    model: &str,
) -> Result<(), ApiError> {
    // Without a limit to projects, nothing needs to be read.
    if rights.projects().is_none() {
        return Ok(rights.check(effect, model, None)?);
    }
    let (rights, model) = (rights.clone(), model.to_owned());
    let check = move |parts: &crate::AppParts| {
        let projects = parts.model_projects();
        let owners = match effect {
            AccessAction::ReadWeights => projects.recorded_projects(&model)?,
            _ => projects.owners(&model)?,
        };
        Ok::<_, ApiError>(rights.check(effect, &model, owners.as_deref())?)
    };
    app.run_blocking(check).await
}

/// Runs `work` on a model if the rights permit it.
///
/// # Errors
/// Returns the errors of [`check_model`] and of `work`.
pub(crate) async fn change_model<T>(
    app: &AppState,
    rights: &AccessRights,
    effect: AccessAction,
    model: &str,
    work: impl Future<Output = Result<T, ServingError>>,
) -> Result<T, ApiError> {
    check_model(app, rights, effect, model).await?;
    Ok(work.await?)
}

/// Publishes a version of a model, new or existing, if the rights permit it. A new model belongs to the projects of the
/// key.
///
/// # Errors
/// Returns `AccessDenied`, or the errors of `work`, after which a new model's name is free again.
pub(crate) async fn publish_model_version<T, E: Into<ApiError>>(
    app: &AppState,
    rights: &AccessRights,
    model: &str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, ApiError> {
    let (by, name) = (rights.clone(), model.to_owned());
    let claim = move |parts: &crate::AppParts| {
        let claim = VersionClaim { effect: AccessAction::PublishModel, rights: &by, project: None };
        parts.model_projects().claim(&name, &claim)
    };
    app.run_blocking(claim).await?;
    let done = work.await.map_err(Into::into);
    if done.is_err() && rights.key().is_some() {
        let name = model.to_owned();
        let release = move |parts: &crate::AppParts| {
            parts.model_projects().release(&name);
            Ok::<_, ApiError>(())
        };
        app.run_blocking(release).await?;
    }
    done
}

/// Returns the dataset version that `reference` refers to if the rights permit the action. Blocks.
///
/// # Errors
/// Returns `NotFound` if the dataset does not exist or is hidden, whatever the `effect`, or `AccessDenied`.
pub(crate) fn find_dataset(
    parts: &crate::AppParts,
    rights: &AccessRights,
    effect: AccessAction,
    reference: &str,
) -> Result<DatasetInfo, ApiError> {
    let missing = || DatasetError::NotFound { kind: "dataset", name: reference.to_owned() };
    let name = reference.split('/').next().unwrap_or_default();
    // Without a limit to projects, nothing needs to be read.
    let projects = match rights.projects() {
        Some(_) => parts.dataset_projects().recorded_projects(name)?,
        None => None,
    };
    if !rights.allows_projects(AccessAction::ReadDataset, projects.as_deref()) {
        return Err(missing().into());
    }
    let info = parts.datasets.resolve(reference).map_err(|error| match error {
        DatasetError::NotFound { .. } => missing(),
        error => error,
    })?;
    rights.check(effect, name, projects.as_deref())?;
    Ok(info)
}

/// Creates a version of a dataset, new or existing, if the rights permit it. A new dataset belongs to `project`, or
/// else to the projects of the key. Blocks.
///
/// # Errors
/// Returns `Conflict` if a hidden dataset has the name, `AccessDenied`, or the errors of `work`, after which a new name
/// is free again.
pub(crate) fn push_dataset_version<T>(
    parts: &crate::AppParts,
    rights: &AccessRights,
    name: &str,
    project: Option<&str>,
    work: impl FnOnce() -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    let projects = parts.dataset_projects();
    let claimed = projects.claim(name, &VersionClaim { effect: AccessAction::PushDataset, rights, project });
    claimed.map_err(|error| dataset_name_conflict(&projects, name, error))?;
    let done = work();
    if done.is_err() && rights.key().is_some() {
        projects.release(name);
    }
    done
}

/// Checks that [`push_dataset_version`] would be permitted now. Blocks.
///
/// # Errors
/// Returns the same errors.
pub(crate) fn check_push(parts: &crate::AppParts, rights: &AccessRights, name: &str) -> Result<(), ApiError> {
    let projects = parts.dataset_projects();
    let asked = projects.check_claim(name, &VersionClaim { effect: AccessAction::PushDataset, rights, project: None });
    asked.map_err(|error| dataset_name_conflict(&projects, name, error))
}

/// Converts the error. Names are unique on the server, so the name of a hidden dataset cannot be used.
fn dataset_name_conflict(projects: &ProjectAssignments, name: &str, error: ProjectsError) -> ApiError {
    match error {
        ProjectsError::Refused(AccessDenied::Project { .. })
            if matches!(projects.recorded_projects(name), Ok(Some(_))) =>
        {
            let reason = "the name is taken; choose another one".to_owned();
            ApiError::Conflict { what: format!("dataset {name}"), reason }
        }
        error => error.into(),
    }
}
