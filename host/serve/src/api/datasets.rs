//! `/api/v1/datasets`: versions, and uploads in chunks that can be cut off and gone on with.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use saggar_jobs::{JobSpec, Source};
use saggar_store::dataset::DatasetInfo;
use saggar_store::dataset::upload::UploadFile;
use saggar_store::limits::CHUNK_BYTES_MAX;
use saggar_store::records::Job;
use saggar_store::{DatasetError, Effect};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::query::digest;
use crate::access::{Actor, Sight, things};
use crate::app::App;
use crate::audit::Action;
use crate::error::{ApiError, created, no_content};
use crate::json_body::{self, JsonBody};
use crate::limits::{ANNOUNCEMENT_BYTES_MAX, DATASET_USERS_SHOWN};
use crate::low_priority::at_low_priority;

/// The body of `POST /api/v1/datasets`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Announcement {
    name: String,
    files: Vec<UploadFile>,
}

impl JsonBody for Announcement {
    const EXAMPLE: &'static str = r#"{"name": "digits", "files": [{"path": "a.csv", "size": 3, "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "chunks": ["ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"]}]}"#;
}

/// The body of `POST /api/v1/datasets/{name}/from-job`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfJob {
    job: String,
    path: Option<String>,
}

impl JsonBody for OfJob {
    const EXAMPLE: &'static str = r#"{"job": "digits-1", "path": "predictions.safetensors"}"#;
}

/// `GET /api/v1/datasets`.
pub(crate) async fn list(State(app): State<App>, sight: Sight) -> Result<Json<Value>, ApiError> {
    let rights = sight.rights().clone();
    let list = move |parts: &crate::Parts| {
        let mut seen = Vec::new();
        for info in parts.datasets.list()? {
            let listed = Listed::of(parts, info)?;
            if rights.reaches(Effect::ReadDataset, Some(&listed.projects)) {
                seen.push(listed);
            }
        }
        Ok::<_, ApiError>(seen)
    };
    let seen = app.blocking(list).await?;
    let users = Users::of(&app).await?;
    let all = seen.iter().map(|listed| dataset(listed, &users, &sight)).collect::<Vec<Value>>();
    Ok(Json(json!({ "datasets": all })))
}

/// A version, and the projects that its dataset belongs to.
struct Listed {
    info: DatasetInfo,
    projects: Vec<String>,
}

impl Listed {
    /// Blocks.
    fn of(parts: &crate::Parts, info: DatasetInfo) -> Result<Listed, ApiError> {
        let projects = parts.dataset_projects().recorded(&info.name)?.unwrap_or_default();
        Ok(Listed { info, projects })
    }
}

/// `DELETE /api/v1/datasets/{name}/{version}`: refused while a job that is not over mounts it.
pub(crate) async fn remove(
    State(app): State<App>,
    Path((name, version)): Path<(String, String)>,
    actor: Actor,
    sight: Sight,
) -> Result<Json<Value>, ApiError> {
    let reference = format!("{name}/{version}");
    let removed = removed(&app, &sight, reference.clone()).await;
    app.audit().record(&actor, Action::DatasetRemove, &reference, "", &removed);
    Ok(Json(json!({ "freed_bytes": removed? })))
}

/// Removes a version that nobody needs; how many bytes it had.
async fn removed(app: &App, sight: &Sight, reference: String) -> Result<u64, ApiError> {
    let resolved = reference.clone();
    let _turn = app.references().write().await;
    let rights = sight.rights().clone();
    let find = move |parts: &crate::Parts| things::find_dataset(parts, &rights, Effect::DeleteDataset, &resolved);
    let info = app.blocking(find).await?;
    let users = Users::of(app).await?;
    let mounting = users.jobs(&info);
    if !mounting.is_empty() {
        let mounting = sight.names(mounting.iter().map(User::parts));
        let reason = format!("jobs that are not over mount it: {mounting}");
        return Err(ApiError::Conflict { what: format!("dataset {reference}"), reason });
    }
    let bytes = info.bytes;
    let remove = move |parts: &crate::Parts| {
        parts.datasets.remove(&info.name, info.version)?;
        count_bytes(parts)
    };
    app.blocking(remove).await?;
    tracing::info!(dataset = reference, "dataset version removed");
    Ok(bytes)
}

/// `POST /api/v1/datasets/{name}/from-job`: what a job wrote, as a version.
pub(crate) async fn of_job(
    State(app): State<App>,
    Path(name): Path<String>,
    actor: Actor,
    sight: Sight,
    request: Request,
) -> Result<Response, ApiError> {
    let OfJob { job, path } = app.bodies().json(request).await?;
    let job = sight.job(app.jobs(), &job).await?;
    let (now_ms, rights) = (app.now_ms(), actor.rights.clone());
    let (taken, from) = (name.clone(), format!("from job {}", job.name));
    let take = move |parts: &crate::Parts| {
        let _turn = parts.uploads.turn()?;
        things::with_dataset(parts, &rights, &taken, Some(&job.project), || {
            let room = |bytes| parts.room(bytes);
            let info = parts.datasets.ingest_output(&taken, &parts.home, &job.id, path.as_deref(), now_ms, room)?;
            count_bytes(parts)?;
            Listed::of(parts, info)
        })
    };
    let listed = app.blocking(at_low_priority(take)).await;
    app.audit().record(&actor, Action::DatasetPush, &name, &from, &listed);
    let listed = listed?;
    let info = &listed.info;
    tracing::info!(dataset = info.name, version = info.version, items = info.items, "dataset taken from a job");
    Ok(created(dataset(&listed, &Users::of(&app).await?, &sight)))
}

/// One number over all of them: it is only read where datasets came or went.
fn count_bytes(parts: &crate::Parts) -> Result<(), DatasetError> {
    let bytes: u64 = parts.datasets.list()?.iter().map(|info| info.bytes).sum();
    parts.metrics.families.dataset_bytes.with_label_values::<&str>(&[]).set(bytes as f64);
    Ok(())
}

/// Jobs by the versions of datasets that they mount.
struct Users {
    /// Those that are not over.
    active: UsersByVersion,
    /// The newest of those that are.
    finished: UsersByVersion,
}

type UsersByVersion = BTreeMap<(String, u64), Vec<User>>;

/// A job that mounts a dataset.
#[derive(PartialEq)]
struct User {
    project: String,
    job: String,
}

impl User {
    fn parts(&self) -> (&str, &str) {
        (&self.project, &self.job)
    }
}

impl Users {
    async fn of(app: &App) -> Result<Users, ApiError> {
        let active = by_version(app.jobs().unfinished().await?);
        Ok(Users { active, finished: by_version(app.jobs().newest_finished().await?) })
    }

    /// The jobs that are not over and mount a version.
    fn jobs(&self, info: &DatasetInfo) -> &[User] {
        Users::named(&self.active, info)
    }

    /// The newest jobs that are over and mounted it.
    fn finished(&self, info: &DatasetInfo) -> &[User] {
        Users::named(&self.finished, info)
    }

    fn named<'a>(users: &'a UsersByVersion, info: &DatasetInfo) -> &'a [User] {
        users.get(&(info.name.clone(), info.version)).map_or(&[], Vec::as_slice)
    }
}

fn by_version(jobs: Vec<(Job, JobSpec)>) -> UsersByVersion {
    let mut users = UsersByVersion::new();
    for (job, spec) in jobs {
        for mount in spec.data {
            let Source::Dataset { name, version: Some(version) } = mount.source else { continue };
            let users = users.entry((name, version)).or_default();
            let user = User { project: job.project.clone(), job: job.name.clone() };
            if users.last() != Some(&user) {
                users.push(user);
            }
        }
    }
    users
}

/// `POST /api/v1/datasets`: announces an upload and answers which chunks are missing.
pub(crate) async fn begin(State(app): State<App>, sight: Sight, request: Request) -> Result<Json<Value>, ApiError> {
    let (parts, body) = request.into_parts();
    let body = app.bodies().read(&parts, body, ANNOUNCEMENT_BYTES_MAX).await?;
    // An announcement may be long: reading it would keep the executor's other tasks waiting.
    let begin = move |parts: &crate::Parts| {
        let Announcement { name, files } = json_body::read(&body.bytes)?;
        things::check_push(parts, sight.rights(), &name)?;
        Ok::<_, ApiError>(parts.uploads.begin(&name, files, |bytes| parts.room(bytes))?)
    };
    let begun = app.blocking(begin).await?;
    let mut answer = json!({ "upload": begun.id, "missing": begun.missing });
    if let Some(version) = begun.version {
        answer["version"] = json!(version);
    }
    Ok(Json(answer))
}

/// `PUT /api/v1/datasets/{name}/uploads/{id}/chunks/{sha256}`.
pub(crate) async fn chunk(
    State(app): State<App>,
    Path((_, id, sha256)): Path<(String, String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let (id, sha256) = (digest("id", &id)?, digest("sha256", &sha256)?);
    let (parts, body) = request.into_parts();
    let body = app.bodies().read(&parts, body, CHUNK_BYTES_MAX).await?;
    app.blocking(move |parts| parts.uploads.put_chunk(&id, &sha256, &body.bytes)).await?;
    Ok(no_content())
}

/// `POST /api/v1/datasets/{name}/uploads/{id}/commit`.
pub(crate) async fn commit(
    State(app): State<App>,
    Path((name, id)): Path<(String, String)>,
    actor: Actor,
    sight: Sight,
) -> Result<Response, ApiError> {
    let id = digest("id", &id)?;
    let (now_ms, rights, committed) = (app.now_ms(), actor.rights.clone(), name.clone());
    let commit = move |parts: &crate::Parts| {
        things::with_dataset(parts, &rights, &committed, None, || {
            let room = |going, bytes| parts.room_after(going, bytes);
            let info = parts.uploads.commit(&committed, &id, now_ms, room)?;
            count_bytes(parts)?;
            Listed::of(parts, info)
        })
    };
    let listed = app.blocking(at_low_priority(commit)).await;
    let detail = listed.as_ref().map_or_else(|_| String::new(), |listed| format!("version {}", listed.info.version));
    app.audit().record(&actor, Action::DatasetPush, &name, &detail, &listed);
    let listed = listed?;
    let info = &listed.info;
    tracing::info!(dataset = info.name, version = info.version, items = info.items, "dataset taken in");
    Ok(Json(dataset(&listed, &Users::of(&app).await?, &sight)).into_response())
}

fn dataset(listed: &Listed, users: &Users, sight: &Sight) -> Value {
    let Listed { info, projects } = listed;
    let field = |field: &saggar_store::Field| {
        json!({
            "name": field.name,
            "dtype": field.item.dtype.name(),
            "shape": field.item.shape.dims(),
            "classes": field.classes,
        })
    };
    let split = |split: &saggar_store::Split| (split.name.clone(), json!(split.items.end - split.items.start));
    let seen = |users: &'_ [User], most: usize| {
        let seen = users.iter().filter(|user| sight.sees(&user.project)).take(most);
        seen.map(|user| json!(user.job)).collect::<Vec<Value>>()
    };
    json!({
        "name": info.name,
        "version": info.version,
        "digest": info.digest,
        "items": info.items,
        "bytes": info.bytes,
        "fields": info.fields.iter().map(field).collect::<Vec<Value>>(),
        "splits": info.splits.iter().map(split).collect::<Map<String, Value>>(),
        "created_ms": info.created_ms,
        "projects": projects,
        "used_by": seen(users.jobs(info), usize::MAX),
        "was_used_by": seen(users.finished(info), DATASET_USERS_SHOWN),
    })
}
