//! `POST /api/v1/jobs`, `/restart` and `/replay`. References in a specification are resolved once, at submission, so that every
//! attempt reads the same data.

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use saggar_jobs::error::SpecError;
use saggar_jobs::{
    JobError, JobSpec, JobSubmission, NOTEBOOK_QUEUE, ReplaySpec, SpecResolver, replay_spec, restart_spec,
};
use saggar_plugin::PluginDeclarations;
use saggar_rest::jobs::{JobDocument, ReplayJobRequest, RestartRequest};
use saggar_store::models::plugin_digest;
use saggar_store::records::JobRecord;
use saggar_store::{AccessAction, AccessDenied, AccessRights};
use saggar_telemetry::{RequestTrace, TraceContext};

use super::origin::{find_model_version, pin_origin};
use super::{data_step, mounts, notebook, requirements, step_inputs, views};
use crate::access::{Actor, Principal, ProjectScope};
use crate::api::visible_job::VisibleJob;
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::{ApiError, CreatedResponse};
use crate::json_body::JsonBody;
use crate::plugin_inspector::PluginFacts;

/// The header that makes repeated submissions create only one job.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

impl JsonBody for JobSpec {
    const EXAMPLE: &'static str = r#"{"project": "digits", "plugin": "lenet, or the SHA-256 of a plugin, as POST /api/v1/plugins answers it", "data": [{"dataset": "digits", "mount": "/data"}], "parameters": {"epochs": 3}}"#;
}

/// Handles `POST /api/v1/jobs`.
pub(crate) async fn submit(
    State(app): State<AppState>,
    request: Request,
) -> Result<CreatedResponse<JobDocument>, ApiError> {
    let submitter = JobSubmitter::from_request(&request)?;
    let spec: JobSpec = app.body_reader().read_json(request).await?;
    let job = submitter.record(&app, spec).await?;
    Ok(CreatedResponse(views::job_with_details(&app, &submitter.sight, &job).await?))
}

impl JsonBody for RestartRequest {
    const EXAMPLE: &'static str = r#"{"parameters": {"lr": 0.01}, "overrides": {"seed": 1}, "resume": true}"#;
}

/// Handles `POST /api/v1/jobs/{job}/restart`.
pub(crate) async fn restart(
    State(app): State<AppState>,
    VisibleJob(old): VisibleJob,
    request: Request,
) -> Result<CreatedResponse<JobDocument>, ApiError> {
    let submitter = JobSubmitter::from_request(&request)?;
    let RestartRequest { parameters, overrides, resume } = app.body_reader().read_json_or_default(request).await?;
    let has_checkpoint = !app.checkpoints().list(&old.id).await?.is_empty();
    let spec = restart_spec(&old, parameters, overrides, resume, has_checkpoint)?;
    let job = submitter.record(&app, spec).await?;
    Ok(CreatedResponse(views::job_with_details(&app, &submitter.sight, &job).await?))
}

impl JsonBody for ReplayJobRequest {
    const EXAMPLE: &'static str = r#"{"from_step": 1200, "to_step": 1210, "print": ["loss"]}"#;
}

/// Handles `POST /api/v1/jobs/{job}/replay`.
pub(crate) async fn replay(
    State(app): State<AppState>,
    VisibleJob(old): VisibleJob,
    request: Request,
) -> Result<CreatedResponse<JobDocument>, ApiError> {
    let submitter = JobSubmitter::from_request(&request)?;
    let ReplayJobRequest { from_step, to_step, print, device } =
        app.body_reader().read_json_or_default(request).await?;
    let checkpoints: Vec<u64> = app.checkpoints().list(&old.id).await?.iter().map(|info| info.step).collect();
    let replay = ReplaySpec { job: old.name.clone(), from_step, to_step, print };
    let job = submitter.record(&app, replay_spec(&old, replay, &checkpoints, device)?).await?;
    Ok(CreatedResponse(views::job_with_details(&app, &submitter.sight, &job).await?))
}

/// The submitting client and its idempotency key.
struct JobSubmitter {
    actor: Actor,
    sight: ProjectScope,
    idempotency_key: Option<String>,
    trace: Option<TraceContext>,
}

impl JobSubmitter {
    fn from_request(request: &Request) -> Result<JobSubmitter, ApiError> {
        let idempotency_key = idempotency_key(request.headers())?;
        let (actor, sight) =
            (Actor::from_extensions(request.extensions()), ProjectScope::from_extensions(request.extensions()));
        let trace = request.extensions().get::<RequestTrace>().and_then(RequestTrace::context).cloned();
        Ok(JobSubmitter { actor, sight, idempotency_key, trace })
    }

    /// Resolves the references of the specification, and records the job.
    async fn record(&self, app: &AppState, spec: JobSpec) -> Result<JobRecord, ApiError> {
        let (project, secrets) = (spec.project.clone(), spec.secrets.clone());
        let recorded = self.submit_pinned(app, spec).await;
        let name = recorded.as_ref().map_or("", |job| job.name.as_str());
        for secret in &secrets {
            app.audit().record(
                &self.actor,
                AuditAction::SecretUse,
                secret,
                &format!("in job {name} of {project}"),
                &recorded,
            );
        }
        app.audit().record(&self.actor, AuditAction::JobSubmit, name, &format!("in {project}"), &recorded);
        recorded
    }

    async fn submit_pinned(&self, app: &AppState, mut spec: JobSpec) -> Result<JobRecord, ApiError> {
        self.sight.check_submission(&spec.project)?;
        let idempotency_key = self.idempotency_key.clone().map(|key| self.sight.idempotency_key(&spec.project, key));
        // A repeated submission returns the existing job even if what it refers to has been removed since.
        if let Some(key) = &idempotency_key
            && let Some(job) = app.jobs().job_by_idempotency_key(key).await?
        {
            return Ok(job);
        }
        // Prevents the removal of what the job refers to until the job is recorded.
        let _kept = app.reference_lock().read().await;
        pin_spec(app, &self.sight, &mut spec).await?;
        let (plugin, owner, rights) = (spec.plugin.clone(), key_name(&self.actor), self.actor.rights.clone());
        let trace = self.trace.clone();
        let job = app.jobs().submit(JobSubmission { spec, owner, rights, pause: None, idempotency_key, trace }).await?;
        tracing::info!(job = job.name, plugin, "job submitted");
        Ok(job)
    }
}

/// Returns the function that resolves the references in job specs of schedules. It holds a weak reference, because the
/// jobs belong to this server and must not keep it alive.
pub(crate) fn scheduled_spec_resolver(app: &AppState) -> SpecResolver {
    let app = app.downgrade();
    Box::new(move |spec, rights| {
        let app = app.upgrade();
        Box::pin(async move {
            let app = app.ok_or_else(|| std::io::Error::other("the server is stopping"))?;
            resolve_scheduled_spec(&app, spec, rights).await
        })
    })
}

/// Resolves the references of a scheduled job when it is due, with the current rights of the key that set the schedule.
///
/// # Errors
/// Returns `Unresolved` if the rights are no longer sufficient or a reference cannot be resolved, and the error of
/// [`pin_spec`] if it is a job or storage error.
async fn resolve_scheduled_spec(app: &AppState, mut spec: JobSpec, rights: AccessRights) -> Result<JobSpec, JobError> {
    let (keys, now_ms, project) = (app.access().key_file().clone(), app.now_ms(), spec.project.clone());
    let look = move || rights.refresh(&keys, now_ms, AccessAction::SubmitJob, &project);
    let now = tokio::task::spawn_blocking(look).await.map_err(std::io::Error::other)?;
    let unresolved = |error: AccessDenied| JobError::Unresolved { reason: error.to_string() };
    let rights = now.map_err(unresolved)?;
    rights
        .check(AccessAction::SubmitJob, &spec.project, Some(std::slice::from_ref(&spec.project)))
        .map_err(unresolved)?;
    match pin_spec(app, &ProjectScope::from_rights(rights), &mut spec).await {
        Ok(()) => Ok(spec),
        Err(ApiError::Job(error)) => Err(error),
        Err(error) if error.status().is_server_error() => Err(std::io::Error::other(error.to_string()).into()),
        Err(error) => Err(JobError::Unresolved { reason: error.to_string() }),
    }
}

/// Returns the name of the key that authenticated the request, if any.
pub(in crate::api) fn key_name(actor: &Actor) -> Option<String> {
    match &actor.principal {
        Principal::Key(name) => Some(name.to_string()),
        Principal::Loopback | Principal::Socket | Principal::Anyone | Principal::Cli | Principal::Nobody => None,
    }
}

/// Returns the idempotency key of a request.
///
/// # Errors
/// Returns `Parameter` if it is not text.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let expected = "printable text";
    let refuse = |_| ApiError::Parameter { name: "Idempotency-Key", expected, got: "something else".to_owned() };
    Ok(Some(value.to_str().map_err(refuse)?.to_owned()))
}

/// Validates a specification and pins its references: datasets without a version to their newest version, the newest
/// checkpoint to its step. Its project and the jobs that it names must be visible to the submitter.
pub(crate) async fn pin_spec(app: &AppState, sight: &ProjectScope, spec: &mut JobSpec) -> Result<(), ApiError> {
    sight.check_submission(&spec.project)?;
    if spec.data_step.is_some() {
        return data_step::pin_data_step(app, sight, spec).await;
    }
    if spec.notebook.is_some() {
        return notebook::pin_notebook(app, sight, spec).await;
    }
    if spec.queue == NOTEBOOK_QUEUE {
        return Err(JobError::from(SpecError::Notebook { reason: "its queue is for notebooks alone" }).into());
    }
    spec.plugin = super::super::plugins::digest_of_name(app, &spec.plugin).await?;
    spec.validate().map_err(JobError::from)?;
    let mut declares = PluginDeclarations::default();
    spec.plugin = match &mut spec.predict {
        Some(prediction) => {
            let found = find_model_version(app, &prediction.model, prediction.version).await?;
            prediction.version = Some(found.version);
            app.run_blocking(move |_| plugin_digest(&found.dir)).await?.hex()
        }
        None => {
            let facts = runnable_facts(app, &spec.plugin).await?;
            if facts.is_step {
                step_inputs::pin_step_inputs(app, sight, &facts.declares, spec).await?;
                // What came from references of clients must satisfy the same rules.
                spec.validate().map_err(JobError::from)?;
            }
            declares = facts.declares;
            facts.digest.hex()
        }
    };
    requirements::check_parameters(&declares, &spec.parameters)?;
    requirements::check_mounts(&declares, &spec.data)?;
    for mount in &mut spec.data {
        if let Some(info) = mounts::pin_mount(app, sight, mount).await? {
            requirements::check_fields(&declares, mount, &info)?;
        }
    }
    if let Some(origin) = &mut spec.init_from {
        pin_origin(app, sight, origin).await?;
    }
    if let Some(replay) = &mut spec.replay {
        replay.job = sight.find_job(app.jobs(), &replay.job).await?.name;
    }
    requirements::check_device(app, &spec.device).await?;
    requirements::check_secrets(app, sight, spec).await
}

/// Returns the facts of a plugin. It must exist and support training, or be a step.
pub(crate) async fn runnable_facts(app: &AppState, plugin: &str) -> Result<PluginFacts, ApiError> {
    let digest = plugin.to_ascii_lowercase().parse().map_err(|_| ApiError::Parameter {
        name: "plugin",
        expected: "64 hexadecimal digits",
        got: plugin.to_owned(),
    })?;
    let facts = super::super::plugins::facts(app, &digest).await?;
    if facts.trains || facts.is_step { Ok(facts) } else { Err(JobError::NoTrainer { digest: digest.hex() }.into()) }
}
