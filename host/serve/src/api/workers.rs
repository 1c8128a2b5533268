//! `/api/v1/workers`: the hosts that run jobs, the settings of a host that joins them, and drains.

use axum::Json;
use axum::extract::{Path, Request, State};
use saggar_jobs::{HostWithJobs, JobError, NOTEBOOK_QUEUE, SchedulerConfig};
use saggar_rest::workers::{
    WorkerDocument, WorkerDrainRequest, WorkerJobSettings, WorkerJoinRequest, WorkerListDocument, WorkerPoolSettings,
    WorkerProjectLimits, WorkerQueueSettings, WorkerSettingsDocument,
};
use saggar_store::AccessAction;
use saggar_store::records::{ActiveJob, HostDrain, HostKind, HostRecord, HostReserve};

use crate::access::{Actor, ProjectScope};
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::ApiError;
use crate::json_body::JsonBody;
use crate::program_version::OWN_VERSION;

/// Handles `GET /api/v1/workers`.
pub(crate) async fn list(
    State(app): State<AppState>,
    sight: ProjectScope,
) -> Result<Json<WorkerListDocument>, ApiError> {
    let hosts = app.jobs().hosts().await?;
    Ok(Json(WorkerListDocument { workers: hosts.iter().map(|host| worker_document(host, &sight)).collect() }))
}

fn worker_document(HostWithJobs { host, jobs }: &HostWithJobs, sight: &ProjectScope) -> WorkerDocument {
    let slots = |milli: u32| f64::from(milli) / 1000.0;
    let is_visible = |job: &&ActiveJob| sight.contains_project(&job.project);
    let HostRecord { name, offer, state, started_ms, seen_ms, unseen_ms, .. } = host;
    WorkerDocument {
        name: name.clone(),
        kind: match offer.kind {
            HostKind::Server => "server".to_owned(),
            HostKind::Worker => "worker".to_owned(),
        },
        state: state.name().to_owned(),
        labels: offer.all_labels(),
        preemptible: offer.preemptible,
        reserve: offer.reserve.to_string(),
        devices: offer.devices.clone(),
        slots: slots(offer.slots_milli),
        // Every client sees how many slots are used, but only the jobs of the projects it can see.
        used: slots(jobs.iter().map(|job| job.demand.slots_milli).sum()),
        jobs: jobs.iter().filter(is_visible).map(|job| job.name.clone()).collect(),
        version: offer.version.clone(),
        started_ms: *started_ms,
        seen_ms: *seen_ms,
        unseen_seconds: *unseen_ms as f64 / 1000.0,
    }
}

impl JsonBody for WorkerJoinRequest {
    const EXAMPLE: &'static str = r#"{"name": "gpu-1", "version": "0.1.0"}"#;
}

impl JsonBody for WorkerDrainRequest {
    const EXAMPLE: &'static str = r#"{"finish": true}"#;
}

/// Handles `POST /api/v1/workers/join`: returns the settings of a host that runs jobs of this server's records.
pub(crate) async fn join(
    State(app): State<AppState>,
    request: Request,
) -> Result<Json<WorkerSettingsDocument>, ApiError> {
    let actor = Actor::from_extensions(request.extensions());
    let join: WorkerJoinRequest = app.body_reader().read_json(request).await?;
    let settings = check_rights(&actor, &join.name).and_then(|()| Ok(join_settings(&app, &join.version)?));
    app.audit().record(&actor, AuditAction::WorkerJoin, &join.name, &join.version, &settings);
    Ok(Json(settings?))
}

fn join_settings(app: &AppState, version: &str) -> Result<WorkerSettingsDocument, JobError> {
    let Some(settings) = &app.parts().join_settings else { return Err(JobError::NoWorkers) };
    if version != OWN_VERSION {
        return Err(JobError::WorkerVersion { version: version.to_owned(), server: OWN_VERSION });
    }
    let config = app.jobs().scheduler_config();
    // The jobs of an engine's pools run where the engine starts them.
    let is_of_jobs = |pool: &str| pool != NOTEBOOK_QUEUE && !config.engine_pools.contains(pool);
    let jobs = worker_job_settings(&config, settings.jobs.clone(), is_of_jobs);
    Ok(WorkerSettingsDocument { jobs, ..settings.clone() })
}

/// Adds the pools that `has_pool` accepts, the queues that use them, and the limits to the other settings of a worker.
/// Notebooks run on servers only.
pub fn worker_job_settings(
    config: &SchedulerConfig,
    settings: WorkerJobSettings,
    has_pool: impl Fn(&str) -> bool,
) -> WorkerJobSettings {
    let pools = config.pools.iter().filter(|(name, _)| has_pool(name)).map(|(name, pool)| {
        let settings = WorkerPoolSettings {
            device: pool.device.clone(),
            slots: f64::from(pool.slots_milli) / 1000.0,
            labels: pool.labels.clone(),
            preemptible_only: pool.reserve == HostReserve::PreemptibleOnly,
        };
        (name.clone(), settings)
    });
    let queues = config.queues.iter().filter(|(name, _)| *name != NOTEBOOK_QUEUE).filter_map(|(name, queue)| {
        let pools: Vec<String> = queue.pools.iter().filter(|name| has_pool(name)).cloned().collect();
        let (spill, max_running_jobs) = (queue.spill, queue.max_running_jobs);
        (!pools.is_empty()).then(|| (name.clone(), WorkerQueueSettings { pools, spill, max_running_jobs }))
    });
    let projects = config.projects.iter().map(|(name, quota)| {
        let (max_running_jobs, gpu_seconds) = (quota.max_running_jobs, quota.gpu_seconds);
        (name.clone(), WorkerProjectLimits { max_running_jobs, gpu_seconds })
    });
    WorkerJobSettings { pools: pools.collect(), queues: queues.collect(), projects: projects.collect(), ..settings }
}

/// Handles `POST /api/v1/workers/{name}/drain`: the host takes no new jobs.
pub(crate) async fn drain(
    State(app): State<AppState>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Json<WorkerListDocument>, ApiError> {
    let actor = Actor::from_extensions(request.extensions());
    let WorkerDrainRequest { finish } = app.body_reader().read_json(request).await?;
    let drain = if finish { HostDrain::Finish } else { HostDrain::Requeue };
    let detail = if finish { "finish" } else { "" };
    let hosts = set_drain(&app, &actor, &name, drain).await;
    app.audit().record(&actor, AuditAction::WorkerDrain, &name, detail, &hosts);
    hosts?;
    list_named(&app, &name).await
}

/// Handles `POST /api/v1/workers/{name}/resume`: the host takes jobs again.
pub(crate) async fn resume(
    State(app): State<AppState>,
    Path(name): Path<String>,
    actor: Actor,
) -> Result<Json<WorkerListDocument>, ApiError> {
    let hosts = set_drain(&app, &actor, &name, HostDrain::No).await;
    app.audit().record(&actor, AuditAction::WorkerResume, &name, "", &hosts);
    hosts?;
    list_named(&app, &name).await
}

async fn set_drain(app: &AppState, actor: &Actor, name: &str, drain: HostDrain) -> Result<Vec<HostRecord>, ApiError> {
    check_rights(actor, name)?;
    Ok(app.jobs().set_host_drain(name, drain).await?)
}

/// Hosts belong to no project, so that a key that is limited to projects does not manage them.
fn check_rights(actor: &Actor, host: &str) -> Result<(), ApiError> {
    Ok(actor.rights.check(AccessAction::ManageWorkers, host, None)?)
}

/// Returns the hosts of this name. Administrators see the jobs of all projects.
async fn list_named(app: &AppState, name: &str) -> Result<Json<WorkerListDocument>, ApiError> {
    let hosts = app.jobs().hosts().await?;
    let named = hosts.iter().filter(|host| host.host.name == name);
    let workers = named.map(|host| worker_document(host, &ProjectScope::default())).collect();
    Ok(Json(WorkerListDocument { workers }))
}
