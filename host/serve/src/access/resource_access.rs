//! What a request may do to models, datasets and secrets: each belongs to projects, or to none, and the table of effects
//! says the rest. A dataset that a key may not read is to it as one that there is not.

use std::future::Future;

use saggar_store::dataset::DatasetInfo;
use saggar_store::{
    AccessAction, AccessDenied, AccessRights, DatasetError, ProjectAssignments, ProjectsError, VersionClaim,
};

use crate::app::AppState;
use crate::error::ApiError;

/// Whether rights let do something to a model.
///
/// # Errors
/// `AccessDenied`. Names of models are visible to every key, so a refusal need not look like a missing model.
pub(crate) async fn check_model(
    app: &AppState,
    rights: &AccessRights,
    effect: AccessAction,
    model: &str,
) -> Result<(), ApiError> {
    // Without a limit nothing is read.
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

/// Does something to a model, where rights allow it.
///
/// # Errors
/// As [`check_model`]; those of `work`.
pub(crate) async fn change_model<T>(
    app: &AppState,
    rights: &AccessRights,
    effect: AccessAction,
    model: &str,
    work: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    check_model(app, rights, effect, model).await?;
    work.await
}

/// Makes a version of a model, new or not, where rights allow it. A new model belongs to the projects of the key.
///
/// # Errors
/// `AccessDenied`; those of `work`, after which a new model's name is free again.
pub(crate) async fn publish_model_version<T>(
    app: &AppState,
    rights: &AccessRights,
    model: &str,
    work: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    let (by, name) = (rights.clone(), model.to_owned());
    let claim = move |parts: &crate::AppParts| {
        let claim = VersionClaim { effect: AccessAction::PublishModel, rights: &by, project: None };
        parts.model_projects().claim(&name, &claim)
    };
    app.run_blocking(claim).await?;
    let done = work.await;
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

/// The version of a dataset that `reference` means, where rights let do something to it. Blocks.
///
/// # Errors
/// `NotFound`, the same where there is none and where the dataset is hidden, whatever `effect` is; `AccessDenied`.
pub(crate) fn find_dataset(
    parts: &crate::AppParts,
    rights: &AccessRights,
    effect: AccessAction,
    reference: &str,
) -> Result<DatasetInfo, ApiError> {
    let missing = || DatasetError::NotFound { kind: "dataset", name: reference.to_owned() };
    let name = reference.split('/').next().unwrap_or_default();
    // Without a limit nothing is read.
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

/// Makes a version of a dataset, new or not, where rights allow it. A new one belongs to `project`, or else to the projects of
/// the key. Blocks.
///
/// # Errors
/// `Conflict` where a dataset that is hidden has the name; `AccessDenied`; those of `work`, after which a new name is free again.
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

/// Whether [`push_dataset_version`] would be allowed now. Blocks.
///
/// # Errors
/// As there.
pub(crate) fn check_push(parts: &crate::AppParts, rights: &AccessRights, name: &str) -> Result<(), ApiError> {
    let projects = parts.dataset_projects();
    let asked = projects.check_claim(name, &VersionClaim { effect: AccessAction::PushDataset, rights, project: None });
    asked.map_err(|error| dataset_name_conflict(&projects, name, error))
}

/// Names are of the whole server: one that a hidden dataset has cannot be had, and what has it stays.
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
