//! `POST /api/v1/jobs` and `/restart`: what a job refers to is looked up once, at submission, so that every attempt reads
//! the same.

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use saggar_jobs::{JobError, JobSpec, Mount, Origin, Source, Submission, Which, restarted};
use saggar_plugin::Declarations;
use saggar_store::dataset::DatasetInfo;
use saggar_store::error::DatasetError;
use saggar_store::models::{Found, FoundState, plugin_of, scan};
use saggar_store::records::Job;
use saggar_store::{CheckpointInfo, Effect, Refused, Rights};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{requirements, shown};
use crate::access::{Actor, SeenJob, Sight, Who, things};
use crate::api::plugins::PluginFacts;
use crate::app::App;
use crate::audit::Action;
use crate::error::{ApiError, created};
use crate::json_body::JsonBody;

/// The header under which submitting the same twice makes one job.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

impl JsonBody for JobSpec {
    const EXAMPLE: &'static str = r#"{"project": "digits", "plugin": "SHA-256 of a plugin, as POST /api/v1/plugins answers it", "data": [{"dataset": "digits", "mount": "/data"}], "parameters": {"epochs": 3}}"#;
}

/// `POST /api/v1/jobs`.
pub(crate) async fn submit(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let submitter = Submitter::of(&request)?;
    let spec: JobSpec = app.bodies().json(request).await?;
    let job = submitter.record(&app, spec).await?;
    Ok(created(shown::alone(&app, &submitter.sight, &job).await?))
}

/// What a restart changes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Restart {
    /// The plugin's parameters, one by one; null removes one.
    parameters: Map<String, Value>,
    /// Fields of the specification; null sets one to its default.
    overrides: Map<String, Value>,
    /// Whether to go on from the newest checkpoint. Where nothing is said, a job that did not succeed does.
    resume: Option<bool>,
}

impl JsonBody for Restart {
    const EXAMPLE: &'static str = r#"{"parameters": {"lr": 0.01}, "overrides": {"seed": 1}, "resume": true}"#;
}

/// `POST /api/v1/jobs/{job}/restart`.
pub(crate) async fn restart(
    State(app): State<App>,
    SeenJob(old): SeenJob,
    request: Request,
) -> Result<Response, ApiError> {
    let submitter = Submitter::of(&request)?;
    let Restart { parameters, overrides, resume } = app.bodies().json_or_default(request).await?;
    let has_checkpoint = !app.checkpoints().list(&old.id).await?.is_empty();
    let spec = restarted(&old, parameters, overrides, resume, has_checkpoint)?;
    let job = submitter.record(&app, spec).await?;
    Ok(created(shown::alone(&app, &submitter.sight, &job).await?))
}

/// Who submits, and under what.
struct Submitter {
    actor: Actor,
    sight: Sight,
    idempotency_key: Option<String>,
}

impl Submitter {
    fn of(request: &Request) -> Result<Submitter, ApiError> {
        let idempotency_key = idempotency_key(request.headers())?;
        let (actor, sight) = (Actor::of(request.extensions()), Sight::of(request.extensions()));
        Ok(Submitter { actor, sight, idempotency_key })
    }

    /// Looks up what the specification refers to, and records the job.
    async fn record(&self, app: &App, spec: JobSpec) -> Result<Job, ApiError> {
        let (project, secrets) = (spec.project.clone(), spec.secrets.clone());
        let recorded = self.recorded(app, spec).await;
        let name = recorded.as_ref().map_or("", |job| job.name.as_str());
        for secret in &secrets {
            app.audit().record(
                &self.actor,
                Action::SecretUse,
                secret,
                &format!("in job {name} of {project}"),
                &recorded,
            );
        }
        app.audit().record(&self.actor, Action::JobSubmit, name, &format!("in {project}"), &recorded);
        recorded
    }

    async fn recorded(&self, app: &App, mut spec: JobSpec) -> Result<Job, ApiError> {
        self.sight.check_submission(&spec.project)?;
        let idempotency_key = self.idempotency_key.clone().map(|key| self.sight.idempotency_key(&spec.project, key));
        // Who asks again must hear of the job that there is, though what it refers to may be gone since.
        if let Some(key) = &idempotency_key
            && let Some(job) = app.jobs().submitted(key).await?
        {
            return Ok(job);
        }
        // What it refers to is not removed before the job that refers to it is there.
        let _kept = app.references().read().await;
        pin(app, &self.sight, &mut spec).await?;
        let (plugin, owner, rights) = (spec.plugin.clone(), owner(&self.actor), self.actor.rights.clone());
        let job = app.jobs().submit(Submission { spec, owner, rights, idempotency_key }).await?;
        tracing::info!(job = job.name, plugin, "job submitted");
        Ok(job)
    }
}

/// What a schedule's job refers to, looked up when its time has come, with what is left of the rights that it was set with.
///
/// # Errors
/// `Unresolved` where they do not suffice any more; those of [`pin`], as far as floors below know them.
pub(crate) async fn resolved(app: &App, mut spec: JobSpec, rights: Rights) -> Result<JobSpec, JobError> {
    let (keys, now_ms, project) = (app.access().file().clone(), app.now_ms(), spec.project.clone());
    let look = move || rights.now(&keys, now_ms, Effect::SubmitJob, &project);
    let now = tokio::task::spawn_blocking(look).await.map_err(std::io::Error::other)?;
    let unresolved = |error: Refused| JobError::Unresolved { reason: error.to_string() };
    let rights = now.map_err(unresolved)?;
    rights.check(Effect::SubmitJob, &spec.project, Some(std::slice::from_ref(&spec.project))).map_err(unresolved)?;
    match pin(app, &Sight::of_rights(rights), &mut spec).await {
        Ok(()) => Ok(spec),
        Err(ApiError::Job(error)) => Err(error),
        Err(error) if error.status().is_server_error() => Err(std::io::Error::other(error.to_string()).into()),
        Err(error) => Err(JobError::Unresolved { reason: error.to_string() }),
    }
}

/// The name of the key that a request came with.
fn owner(actor: &Actor) -> Option<String> {
    match &actor.who {
        Who::Key(name) => Some(name.to_string()),
        Who::Loopback | Who::Socket | Who::Anyone | Who::Cli | Who::Nobody => None,
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let expected = "printable text";
    let refuse = |_| ApiError::Parameter { name: "Idempotency-Key", expected, got: "something else".to_owned() };
    Ok(Some(value.to_str().map_err(refuse)?.to_owned()))
}

/// Checks a specification, and replaces what it refers to by what that is now: datasets without a version by their newest,
/// the newest checkpoint by its step. Its project, and the jobs that it names, must be there for who submits it.
pub(crate) async fn pin(app: &App, sight: &Sight, spec: &mut JobSpec) -> Result<(), ApiError> {
    sight.check_submission(&spec.project)?;
    spec.validate().map_err(JobError::from)?;
    let mut declares = Declarations::default();
    spec.plugin = match &mut spec.predict {
        Some(prediction) => {
            let found = version_of(app, &prediction.model, prediction.version).await?;
            prediction.version = Some(found.version);
            app.blocking(move |_| plugin_of(&found.dir)).await?.hex()
        }
        None => {
            let facts = trainer(app, &spec.plugin).await?;
            declares = facts.declares;
            facts.digest.hex()
        }
    };
    requirements::check_parameters(&declares, &spec.parameters)?;
    requirements::check_mounts(&declares, &spec.data)?;
    for mount in &mut spec.data {
        if let Some(info) = pin_mount(app, sight, mount).await? {
            requirements::check_fields(&declares, mount, &info)?;
        }
    }
    if let Some(origin) = &mut spec.init_from {
        pin_origin(app, sight, origin).await?;
    }
    requirements::check_device(app, &spec.device).await?;
    requirements::check_secrets(app, sight, spec).await
}

/// What is known of a plugin that is there and trains.
async fn trainer(app: &App, plugin: &str) -> Result<PluginFacts, ApiError> {
    let digest = plugin.to_ascii_lowercase().parse().map_err(|_| ApiError::Parameter {
        name: "plugin",
        expected: "64 hexadecimal digits",
        got: plugin.to_owned(),
    })?;
    let facts = super::super::plugins::facts(app, &digest).await?;
    if facts.trains { Ok(facts) } else { Err(JobError::NoTrainer { digest: digest.hex() }.into()) }
}

/// Pins the version of a mounted dataset, and returns what is known of it; `None` for a job's output.
async fn pin_mount(app: &App, sight: &Sight, mount: &mut Mount) -> Result<Option<DatasetInfo>, ApiError> {
    let reference = mount.source.to_string();
    match &mut mount.source {
        Source::Dataset { version, .. } => {
            let hint = "GET /api/v1/datasets lists them; `saggar data push` uploads one".to_owned();
            let missing = ApiError::NotFound { kind: "dataset", name: reference.clone(), hint };
            let rights = sight.rights().clone();
            let find =
                move |parts: &crate::Parts| things::find_dataset(parts, &rights, Effect::ReadDataset, &reference);
            let found = app.blocking(find).await;
            let info = found.map_err(|error| match error {
                ApiError::Dataset(DatasetError::NotFound { .. }) => missing,
                error => error,
            })?;
            *version = Some(info.version);
            Ok(Some(info))
        }
        Source::Output { job: name, .. } => {
            let job = sight.job(app.jobs(), name).await?;
            if !job.state.is_final() {
                let hint = "its output can be mounted when it is over".to_owned();
                return Err(JobError::State { name: job.name, state: job.state.name().to_owned(), hint }.into());
            }
            *name = job.name;
            Ok(None)
        }
    }
}

async fn pin_origin(app: &App, sight: &Sight, origin: &mut Origin) -> Result<(), ApiError> {
    match origin {
        Origin::Checkpoint { job: name, which } => {
            let job = sight.job(app.jobs(), name).await?;
            let found = checkpoint(app, &job, *which).await?;
            *which = Which::Step(found.step);
            *name = job.name;
        }
        Origin::Model { model, version } => {
            let may = things::check_model(app, sight.rights(), Effect::ReadWeights, model).await;
            may.map_err(|_| no_version(model, *version))?;
            *version = Some(version_of(app, model, *version).await?.version);
        }
    }
    Ok(())
}

/// A whole version of a model, the newest where none is named, as they lie on disk: a job whose time came while no server
/// ran is submitted before any is loaded.
async fn version_of(app: &App, model: &str, version: Option<u64>) -> Result<Found, ApiError> {
    let found = app.blocking(|parts| scan(&parts.models_dir)).await?;
    let fits = |it: &Found| {
        it.name == model && it.state == FoundState::Complete && version.is_none_or(|version| it.version == version)
    };
    found.into_iter().filter(fits).max_by_key(|found| found.version).ok_or_else(|| no_version(model, version))
}

fn no_version(model: &str, version: Option<u64>) -> ApiError {
    ApiError::NotFound {
        kind: "model version",
        name: version.map_or_else(|| model.to_owned(), |version| format!("{model}@{version}")),
        hint: "GET /api/v1/models lists them".to_owned(),
    }
}

/// One of a job's checkpoints.
pub(crate) async fn checkpoint(app: &App, job: &Job, which: Which) -> Result<CheckpointInfo, ApiError> {
    let listed = app.checkpoints().list(&job.id).await?;
    let found = match which {
        Which::Latest => listed.first(),
        Which::Best => super::checkpoints::best_by(job).as_ref().and_then(|by| by.choose(&listed)),
        Which::Step(step) => listed.iter().find(|info| info.step == step),
    };
    found.cloned().ok_or_else(|| ApiError::NotFound {
        kind: "checkpoint",
        name: format!("{} of {}", which, job.name),
        hint: format!("GET /api/v1/jobs/{}/checkpoints lists them", job.name),
    })
}
