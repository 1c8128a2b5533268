//! `/api/v1/datasets`: dataset versions, and resumable uploads in chunks.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, Request, State};
use saggar_jobs::{DataSource, JobSpec};
use saggar_rest::datasets::{
    AnnouncedFile, DatasetAnnouncement, DatasetDocument, DatasetFieldDocument, DatasetFromJobRequest,
    DatasetListDocument, DatasetUploadDocument, RemovedDatasetDocument,
};
use saggar_store::dataset::DatasetInfo;
use saggar_store::dataset::upload::UploadFile;
use saggar_store::digest::Digest;
use saggar_store::limits::CHUNK_BYTES_MAX;
use saggar_store::records::JobRecord;
use saggar_store::{AccessAction, DatasetError, DatasetField, DatasetSplit};

use super::query::parse_digest;
use crate::access::{Actor, ProjectScope};
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::{ApiError, CreatedResponse, NoContent};
use crate::json_body::{self, JsonBody};
use crate::limits::{DATASET_USERS_SHOWN, UPLOAD_MANIFEST_BYTES_MAX};
use crate::low_priority::at_low_priority;
use crate::resource_access;

impl JsonBody for DatasetAnnouncement<Digest> {
    const EXAMPLE: &'static str = r#"{"name": "digits", "files": [{"path": "a.csv", "size": 3, "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "chunks": ["ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"]}]}"#;
}

impl JsonBody for DatasetFromJobRequest {
    const EXAMPLE: &'static str = r#"{"job": "digits-1", "path": "predictions.safetensors"}"#;
}

/// Handles `GET /api/v1/datasets`.
pub(crate) async fn list(
    State(app): State<AppState>,
    sight: ProjectScope,
) -> Result<Json<DatasetListDocument>, ApiError> {
    let rights = sight.rights().clone();
    let list = move |parts: &crate::AppParts| {
        let mut seen = Vec::new();
        for info in parts.datasets.list()? {
            let listed = DatasetWithProjects::load(parts, info)?;
            if rights.allows_projects(AccessAction::ReadDataset, Some(&listed.projects)) {
                seen.push(listed);
            }
        }
        Ok::<_, ApiError>(seen)
    };
    let seen = app.run_blocking(list).await?;
    let users = DatasetUsers::load(&app).await?;
    let datasets = seen.iter().map(|listed| dataset_document(listed, &users, &sight)).collect();
    Ok(Json(DatasetListDocument { datasets }))
}

/// A dataset version, and the projects that its dataset belongs to.
struct DatasetWithProjects {
    info: DatasetInfo,
    projects: Vec<String>,
}

impl DatasetWithProjects {
    /// Reads the projects of the dataset. Blocks.
    fn load(parts: &crate::AppParts, info: DatasetInfo) -> Result<DatasetWithProjects, ApiError> {
        let projects = parts.dataset_projects().recorded_projects(&info.name)?.unwrap_or_default();
        Ok(DatasetWithProjects { info, projects })
    }
}

/// Handles `DELETE /api/v1/datasets/{name}/{version}`. Refused while an unfinished job mounts the version.
pub(crate) async fn remove(
    State(app): State<AppState>,
    Path((name, version)): Path<(String, String)>,
    actor: Actor,
    sight: ProjectScope,
) -> Result<Json<RemovedDatasetDocument>, ApiError> {
    let reference = format!("{name}/{version}");
    let removed = remove_unused_version(&app, &sight, reference.clone()).await;
    app.audit().record(&actor, AuditAction::DatasetRemove, &reference, "", &removed);
    Ok(Json(RemovedDatasetDocument { freed_bytes: removed? }))
}

/// Removes a version that no unfinished job mounts and returns its size in bytes.
pub(crate) async fn remove_unused_version(
    app: &AppState,
    sight: &ProjectScope,
    reference: String,
) -> Result<u64, ApiError> {
    let resolved = reference.clone();
    let _turn = app.reference_lock().write().await;
    let rights = sight.rights().clone();
    let find = move |parts: &crate::AppParts| {
        resource_access::find_dataset(parts, &rights, AccessAction::DeleteDataset, &resolved)
    };
    let info = app.run_blocking(find).await?;
    let users = DatasetUsers::load(app).await?;
    let mounting = users.active_jobs(&info);
    if !mounting.is_empty() {
        let mounting = sight.visible_job_names(mounting.iter().map(DatasetUser::project_and_name));
        let reason = format!("unfinished jobs mount it: {mounting}");
        return Err(ApiError::Conflict { what: format!("dataset {reference}"), reason });
    }
    let bytes = info.bytes;
    let remove = move |parts: &crate::AppParts| {
        parts.datasets.remove(&info.name, info.version)?;
        update_dataset_bytes_metric(parts)
    };
    app.run_blocking(remove).await?;
    tracing::info!(dataset = reference, "dataset version removed");
    Ok(bytes)
}

/// Handles `POST /api/v1/datasets/{name}/from-job`: stores a job's output as a dataset version.
pub(crate) async fn create_from_job(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
    sight: ProjectScope,
    request: Request,
) -> Result<CreatedResponse<DatasetDocument>, ApiError> {
    let DatasetFromJobRequest { job, path } = app.body_reader().read_json(request).await?;
    let job = sight.find_job(app.jobs(), &job).await?;
    let (now_ms, rights) = (app.now_ms(), actor.rights.clone());
    let (dataset_name, from) = (name.clone(), format!("from job {}", job.name));
    let take = move |parts: &crate::AppParts| {
        let _turn = parts.uploads.acquire_ingest_permit()?;
        resource_access::push_dataset_version(parts, &rights, &dataset_name, Some(&job.project), || {
            let room = |bytes| parts.check_storage_quota(bytes);
            let info =
                parts.datasets.ingest_output(&dataset_name, &parts.home, &job.id, path.as_deref(), now_ms, room)?;
            update_dataset_bytes_metric(parts)?;
            DatasetWithProjects::load(parts, info)
        })
    };
    let listed = app.run_blocking(at_low_priority(take)).await;
    app.audit().record(&actor, AuditAction::DatasetPush, &name, &from, &listed);
    let listed = listed?;
    let info = &listed.info;
    tracing::info!(
        dataset = info.name,
        version = info.version,
        items = info.items,
        "dataset created from a job's output"
    );
    Ok(CreatedResponse(dataset_document(&listed, &DatasetUsers::load(&app).await?, &sight)))
}

/// Sets the metric to the bytes of all datasets together. Called only after a dataset was added or removed, since it
/// lists all of them.
pub(crate) fn update_dataset_bytes_metric(parts: &crate::AppParts) -> Result<(), DatasetError> {
    let bytes: u64 = parts.datasets.list()?.iter().map(|info| info.bytes).sum();
    parts.metrics.families.dataset_bytes.with_label_values::<&str>(&[]).set(bytes as f64);
    Ok(())
}

/// Jobs by the dataset versions that they mount.
struct DatasetUsers {
    /// Unfinished jobs.
    active: UsersByVersion,
    /// The newest finished jobs.
    finished: UsersByVersion,
}

type UsersByVersion = BTreeMap<(String, u64), Vec<DatasetUser>>;

/// A job that mounts a dataset.
#[derive(PartialEq)]
struct DatasetUser {
    project: String,
    job: String,
}

impl DatasetUser {
    fn project_and_name(&self) -> (&str, &str) {
        (&self.project, &self.job)
    }
}

impl DatasetUsers {
    async fn load(app: &AppState) -> Result<DatasetUsers, ApiError> {
        let active = group_by_version(app.jobs().unfinished_jobs().await?);
        Ok(DatasetUsers { active, finished: group_by_version(app.jobs().newest_finished_jobs().await?) })
    }

    /// Returns the unfinished jobs that mount a version.
    fn active_jobs(&self, info: &DatasetInfo) -> &[DatasetUser] {
        DatasetUsers::lookup(&self.active, info)
    }

    /// Returns the newest finished jobs that mounted a version.
    fn finished_jobs(&self, info: &DatasetInfo) -> &[DatasetUser] {
        DatasetUsers::lookup(&self.finished, info)
    }

    fn lookup<'a>(users: &'a UsersByVersion, info: &DatasetInfo) -> &'a [DatasetUser] {
        users.get(&(info.name.clone(), info.version)).map_or(&[], Vec::as_slice)
    }
}

fn group_by_version(jobs: Vec<(JobRecord, JobSpec)>) -> UsersByVersion {
    let mut users = UsersByVersion::new();
    for (job, spec) in jobs {
        for mount in spec.data {
            let DataSource::Dataset { name, version: Some(version) } = mount.source else { continue };
            let users = users.entry((name, version)).or_default();
            let user = DatasetUser { project: job.project.clone(), job: job.name.clone() };
            if users.last() != Some(&user) {
                users.push(user);
            }
        }
    }
    users
}

/// Handles `POST /api/v1/datasets`: announces an upload and returns which chunks are missing.
pub(crate) async fn begin_upload(
    State(app): State<AppState>,
    sight: ProjectScope,
    request: Request,
) -> Result<Json<DatasetUploadDocument>, ApiError> {
    let (parts, body) = request.into_parts();
    let body = app.body_reader().read(&parts, body, UPLOAD_MANIFEST_BYTES_MAX).await?;
    // An announcement can be long: parsing it on the executor would delay other tasks.
    let begin = move |parts: &crate::AppParts| {
        let DatasetAnnouncement { name, files } = json_body::parse_body(&body.bytes)?;
        resource_access::check_push(parts, sight.rights(), &name)?;
        let files = files.into_iter().map(upload_file).collect();
        Ok::<_, ApiError>(parts.uploads.begin(&name, files, |bytes| parts.check_storage_quota(bytes))?)
    };
    let begun = app.run_blocking(begin).await?;
    Ok(Json(DatasetUploadDocument {
        upload: begun.id.hex(),
        missing: begun.missing.iter().map(Digest::hex).collect(),
        version: begun.version,
    }))
}

fn upload_file(announced: AnnouncedFile<Digest>) -> UploadFile {
    let AnnouncedFile { path, size, sha256, chunks } = announced;
    UploadFile { path, size, sha256, chunks }
}

/// Handles `PUT /api/v1/datasets/{name}/uploads/{id}/chunks/{sha256}`.
pub(crate) async fn put_chunk(
    State(app): State<AppState>,
    Path((_, id, sha256)): Path<(String, String, String)>,
    request: Request,
) -> Result<NoContent, ApiError> {
    let (id, sha256) = (parse_digest("id", &id)?, parse_digest("sha256", &sha256)?);
    let (parts, body) = request.into_parts();
    let body = app.body_reader().read(&parts, body, CHUNK_BYTES_MAX).await?;
    app.run_blocking(move |parts| parts.uploads.put_chunk(&id, &sha256, &body.bytes)).await?;
    Ok(NoContent)
}

/// Handles `POST /api/v1/datasets/{name}/uploads/{id}/commit`.
pub(crate) async fn commit_upload(
    State(app): State<AppState>,
    Path((name, id)): Path<(String, String)>,
    actor: Actor,
    sight: ProjectScope,
) -> Result<Json<DatasetDocument>, ApiError> {
    let id = parse_digest("id", &id)?;
    let (now_ms, rights, committed) = (app.now_ms(), actor.rights.clone(), name.clone());
    let commit = move |parts: &crate::AppParts| {
        resource_access::push_dataset_version(parts, &rights, &committed, None, || {
            let room = |going, bytes| parts.check_storage_quota_after(going, bytes);
            let info = parts.uploads.commit(&committed, &id, now_ms, room)?;
            update_dataset_bytes_metric(parts)?;
            DatasetWithProjects::load(parts, info)
        })
    };
    let listed = app.run_blocking(at_low_priority(commit)).await;
    let detail = listed.as_ref().map_or_else(|_| String::new(), |listed| format!("version {}", listed.info.version));
    app.audit().record(&actor, AuditAction::DatasetPush, &name, &detail, &listed);
    let listed = listed?;
    let info = &listed.info;
    tracing::info!(dataset = info.name, version = info.version, items = info.items, "dataset uploaded");
    Ok(Json(dataset_document(&listed, &DatasetUsers::load(&app).await?, &sight)))
}

fn dataset_document(listed: &DatasetWithProjects, users: &DatasetUsers, sight: &ProjectScope) -> DatasetDocument {
    let DatasetWithProjects { info, projects } = listed;
    let field = |field: &DatasetField| DatasetFieldDocument {
        name: field.name.clone(),
        dtype: field.item.dtype.name().to_owned(),
        shape: field.item.shape.dims().to_vec(),
        classes: field.classes.clone(),
    };
    let split = |split: &DatasetSplit| (split.name.clone(), split.items.end - split.items.start);
    let seen = |users: &'_ [DatasetUser], most: usize| {
        let seen = users.iter().filter(|user| sight.contains_project(&user.project)).take(most);
        seen.map(|user| user.job.clone()).collect()
    };
    DatasetDocument {
        name: info.name.clone(),
        version: info.version,
        digest: info.digest.hex(),
        items: info.items,
        bytes: info.bytes,
        fields: info.fields.iter().map(field).collect(),
        splits: info.splits.iter().map(split).collect(),
        created_ms: info.created_ms,
        projects: projects.clone(),
        used_by: seen(users.active_jobs(info), usize::MAX),
        was_used_by: seen(users.finished_jobs(info), DATASET_USERS_SHOWN),
        notes: info.notes.clone(),
    }
}
