//! The parts of the server that run the steps of pipelines: jobs, their outputs, and deployments.

mod outputs;

use std::collections::BTreeMap;

use async_trait::async_trait;
use saggar_jobs::{
    CheckpointSelector, DataSource, DataStepFetch, DataStepOutput, DataStepSource, DataStepSpec, DataStepVersion,
    InitFrom, JobEffect, JobError, JobSpec, JobSubmission,
};
use saggar_pipelines::{
    DeployRequest, JobObservation, OutputReference, PLUGIN_INPUT, PipelinePort, PreparedJob, StepFailure, StepInput,
};
use saggar_project::{OutputType, ParameterDeclaration, ParameterType, WeightsReference};
use saggar_store::records::{JobRecord, StateReason};
use saggar_store::{AccessAction, AccessRights};

use crate::access::ProjectScope;
use crate::api::jobs::origin;
use crate::api::jobs::submit;
use crate::api::versions;
use crate::app::{AppState, WeakAppState};
use crate::error::ApiError;
use crate::resource_access;

/// The reason of a deployment that the model's condition refuses.
const NOT_PROMOTED: &str = "NOT_PROMOTED";
/// The alias of the default version.
const STABLE: &str = "stable";

/// Runs steps on a server, which it does not keep alive.
pub(crate) struct ServerPipelinePort(WeakAppState);

impl ServerPipelinePort {
    pub(crate) fn new(app: &AppState) -> ServerPipelinePort {
        ServerPipelinePort(app.downgrade())
    }

    fn app(&self) -> Result<AppState, StepFailure> {
        self.0.upgrade().ok_or_else(|| StepFailure::Transient("the server is stopping".to_owned()))
    }
}

/// Returns whether trying again can help: a fault of the server, or a full queue.
fn step_failure(error: ApiError) -> StepFailure {
    let (status, body) = (error.status(), error.body());
    if status.is_server_error() || status.as_u16() == 429 {
        return StepFailure::Transient(error.to_string());
    }
    let hint = if body.hint.is_empty() { String::new() } else { format!("; {}", body.hint) };
    StepFailure::permanent(&body.code.as_str().to_uppercase(), format!("{}{hint}", body.error))
}

fn job_failure(error: JobError) -> StepFailure {
    step_failure(error.into())
}

fn observation(job: JobRecord) -> JobObservation {
    JobObservation { name: job.name, state: job.state, reason: job.reason }
}

/// Returns the job of a step. The rights of the run's key were checked when it was submitted.
async fn find_job(app: &AppState, name: &str) -> Result<JobRecord, JobError> {
    ProjectScope::default().find_job(app.jobs(), name).await
}

/// Returns the rights that the key of a run still has.
async fn refresh_rights(
    app: &AppState,
    rights: &AccessRights,
    action: AccessAction,
    thing: &str,
) -> Result<AccessRights, StepFailure> {
    let (keys, now_ms, rights, thing) =
        (app.access().key_file().clone(), app.now_ms(), rights.clone(), thing.to_owned());
    let look = move || rights.refresh(&keys, now_ms, action, &thing);
    let refreshed = tokio::task::spawn_blocking(look).await;
    let refreshed = refreshed.map_err(|error| StepFailure::Transient(error.to_string()))?;
    refreshed.map_err(|error| StepFailure::permanent("FORBIDDEN", error.to_string()))
}

/// Pins the references of a job's specification with the current rights of the run's key.
async fn pin(app: &AppState, rights: &AccessRights, spec: &mut JobSpec) -> Result<ProjectScope, StepFailure> {
    let project = spec.project.clone();
    let rights = refresh_rights(app, rights, AccessAction::SubmitJob, &project).await?;
    let allowed = rights.check(AccessAction::SubmitJob, &project, Some(std::slice::from_ref(&project)));
    allowed.map_err(|error| StepFailure::permanent("FORBIDDEN", error.to_string()))?;
    let sight = ProjectScope::from_rights(rights);
    submit::pin_spec(app, &sight, spec).await.map_err(step_failure)?;
    Ok(sight)
}

/// Returns the digest of a version's weights.
async fn weights_digest(app: &AppState, model: &str, version: u64) -> Result<String, StepFailure> {
    let model = model.to_owned();
    let read = move |parts: &crate::AppParts| {
        let manifest = parts.model_registry().manifest(&model, version)?;
        Ok::<_, ApiError>(manifest.weights.hex())
    };
    app.run_blocking(read).await.map_err(step_failure)
}

/// Returns the models and checkpoints among the inputs of a step, each with the name of its input. A training has none.
async fn weights_of_step(app: &AppState, spec: &JobSpec) -> Result<Vec<(String, InitFrom)>, StepFailure> {
    if spec.predict.is_some() {
        return Ok(Vec::new());
    }
    let facts = submit::runnable_facts(app, &spec.plugin).await.map_err(step_failure)?;
    let weights = |(name, declared): (&String, &ParameterDeclaration)| {
        let prefix = match declared.kind {
            ParameterType::Model => "model:",
            ParameterType::Checkpoint => "",
            _ => return None,
        };
        let text = spec.parameters.get(name)?.as_str()?;
        Some((name.clone(), format!("{prefix}{text}").parse().ok()?))
    };
    Ok(facts.declares.inputs.iter().filter_map(weights).collect())
}

/// Returns the digest of a version of a dataset that a client with these rights can read.
async fn dataset_digest(app: &AppState, rights: &AccessRights, reference: &str) -> Result<String, ApiError> {
    let (rights, reference) = (rights.clone(), reference.to_owned());
    let find = move |parts: &crate::AppParts| {
        resource_access::find_dataset(parts, &rights, AccessAction::ReadDataset, &reference)
    };
    Ok(app.run_blocking(find).await?.digest.hex())
}

/// Returns what a data step reads. The query of a URL, which can contain a token, is left out.
async fn source_of_dataset(app: &AppState, rights: &AccessRights, step: &DataStepSpec) -> Result<StepInput, ApiError> {
    let (reference, digest) = match &step.from {
        DataStepSource::Output(DataStepOutput { job, path }) => {
            (path.iter().fold(format!("job:{job}/output"), |whole, path| format!("{whole}/{path}")), None)
        }
        DataStepSource::Fetch(DataStepFetch { url, sha256 }) => {
            let url = url.split(['?', '#']).next().unwrap_or_default().to_owned();
            (url, Some(sha256.to_ascii_lowercase()))
        }
        DataStepSource::Version(DataStepVersion { version }) => {
            let reference = format!("{}/{version}", step.dataset);
            let digest = dataset_digest(app, rights, &reference).await?;
            (reference, Some(digest))
        }
    };
    Ok(StepInput { name: "from".to_owned(), reference, digest })
}

/// Returns what a job with pinned references reads.
async fn inputs_of(app: &AppState, sight: &ProjectScope, spec: &JobSpec) -> Result<Vec<StepInput>, StepFailure> {
    if let Some(step) = &spec.data_step {
        return Ok(vec![source_of_dataset(app, sight.rights(), step).await.map_err(step_failure)?]);
    }
    let plugin = spec.plugin.clone();
    let mut inputs = vec![StepInput { name: PLUGIN_INPUT.to_owned(), reference: plugin.clone(), digest: Some(plugin) }];
    for mount in &spec.data {
        let reference = mount.source.to_string();
        let digest = match &mount.source {
            DataSource::Dataset { .. } => {
                Some(dataset_digest(app, sight.rights(), &reference).await.map_err(step_failure)?)
            }
            // The output of a finished job does not change, and its name is not used again.
            DataSource::Output { .. } => None,
        };
        inputs.push(StepInput { name: mount.mount.clone(), reference, digest });
    }
    let initial = spec.init_from.iter().map(|initial| ("init_from".to_owned(), initial.clone()));
    let declared = weights_of_step(app, spec).await?;
    for (name, weights) in initial.chain(declared) {
        let digest = match &weights {
            InitFrom::Checkpoint { job, which } => {
                let job = sight.find_job(app.jobs(), job).await.map_err(job_failure)?;
                let found = origin::find_checkpoint(app, &job, *which).await.map_err(step_failure)?;
                Some(found.digest.hex())
            }
            InitFrom::Model { model, version: Some(version) } => Some(weights_digest(app, model, *version).await?),
            InitFrom::Model { version: None, .. } => None,
        };
        inputs.push(StepInput { name, reference: weights.to_string(), digest });
    }
    if let Some(prediction) = &spec.predict {
        let version = prediction.version.unwrap_or_default();
        let digest = Some(weights_digest(app, &prediction.model, version).await?);
        let reference = format!("model:{}@{version}", prediction.model);
        inputs.push(StepInput { name: "model".to_owned(), reference, digest });
    }
    Ok(inputs)
}

#[async_trait]
impl PipelinePort for ServerPipelinePort {
    async fn find_job(&self, idempotency_key: &str) -> Result<Option<JobObservation>, StepFailure> {
        let found = self.app()?.jobs().job_by_idempotency_key(idempotency_key).await;
        Ok(found.map_err(job_failure)?.map(observation))
    }

    async fn job(&self, name: &str) -> Result<Option<JobObservation>, StepFailure> {
        match find_job(&self.app()?, name).await {
            Ok(job) => Ok(Some(observation(job))),
            Err(JobError::NotFound { .. }) => Ok(None),
            Err(error) => Err(job_failure(error)),
        }
    }

    async fn prepare(&self, mut spec: JobSpec, rights: &AccessRights) -> Result<PreparedJob, StepFailure> {
        let app = self.app()?;
        let sight = pin(&app, rights, &mut spec).await?;
        let inputs = inputs_of(&app, &sight, &spec).await?;
        Ok(PreparedJob { spec, inputs })
    }

    async fn submit(
        &self,
        mut spec: JobSpec,
        rights: &AccessRights,
        idempotency_key: &str,
    ) -> Result<JobObservation, StepFailure> {
        let app = self.app()?;
        // Prevents the removal of what the job refers to until the job is recorded.
        let _kept = app.reference_lock().read().await;
        pin(&app, rights, &mut spec).await?;
        let (project, secrets) = (spec.project.clone(), spec.secrets.clone());
        let submission = JobSubmission {
            spec,
            owner: rights.key().map(str::to_owned),
            rights: rights.clone(),
            idempotency_key: Some(idempotency_key.to_owned()),
            trace: None,
            pause: None,
        };
        let submitted = app.jobs().submit(submission).await;
        let (is_done, name) = (submitted.is_ok(), submitted.as_ref().map_or(String::new(), |job| job.name.clone()));
        let record = |effect: AccessAction, thing: String, detail: String| {
            let (rights, project) = (rights.clone(), project.clone());
            app.audit().record_effect(&JobEffect { effect, thing, rights, project, detail, is_done });
        };
        for secret in secrets {
            record(AccessAction::UseSecret, secret, format!("in job {name}"));
        }
        record(AccessAction::SubmitJob, name, "by a pipeline".to_owned());
        submitted.map(observation).map_err(job_failure)
    }

    async fn stop_job(&self, name: &str, reason: &StateReason) -> Result<(), StepFailure> {
        match self.app()?.jobs().stop(name, reason.clone()).await {
            Ok(_) | Err(JobError::State { .. } | JobError::NotFound { .. }) => Ok(()),
            Err(error) => Err(job_failure(error)),
        }
    }

    async fn outputs(&self, job: &str) -> Result<BTreeMap<String, OutputReference>, StepFailure> {
        let app = self.app()?;
        let job = find_job(&app, job).await.map_err(job_failure)?;
        outputs::outputs_of_job(&app, &job).await
    }

    async fn newest_checkpoint(&self, job: &str) -> Result<Option<String>, StepFailure> {
        let app = self.app()?;
        let job = match find_job(&app, job).await {
            Ok(job) => job,
            Err(JobError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(job_failure(error)),
        };
        let checkpoints = app.checkpoints().list(&job.id).await.map_err(|error| step_failure(error.into()))?;
        Ok(checkpoints.first().map(|newest| format!("job:{}/checkpoint@{}", job.name, newest.step)))
    }

    async fn has_outputs(&self, outputs: &BTreeMap<String, OutputReference>) -> Result<bool, StepFailure> {
        outputs::all_exist(&self.app()?, outputs).await
    }

    async fn deploy(&self, request: &DeployRequest, rights: &AccessRights) -> Result<OutputReference, StepFailure> {
        let app = self.app()?;
        let from = WeightsReference::parse(&request.from)
            .map_err(|error| StepFailure::permanent("BAD_STEP", error.to_string()))?;
        let (model, version) = match from {
            WeightsReference::Model { model, version } => {
                if let Some(wanted) = request.model.as_ref().filter(|wanted| **wanted != model) {
                    let sentence =
                        format!("{} is a version of {model}, and is to be deployed as {wanted}", request.from);
                    return Err(StepFailure::permanent("WRONG_MODEL", sentence));
                }
                let found = origin::find_model_version(&app, &model, version).await.map_err(step_failure)?;
                (model, found.version)
            }
            WeightsReference::Job { job, checkpoint } => {
                let Some(model) = request.model.clone() else {
                    return Err(StepFailure::permanent("BAD_STEP", "a checkpoint names no model"));
                };
                let version = publish_checkpoint(&app, &model, (&job, &checkpoint), rights).await?;
                (model, version)
            }
        };
        let rights = refresh_rights(&app, rights, AccessAction::DeployModel, &model).await?;
        let deployed = deploy_version(&app, &rights, (&model, version), request.alias.as_deref()).await;
        let (is_done, detail) = (deployed.is_ok(), format!("version {version} by a pipeline"));
        let effect = AccessAction::DeployModel;
        let (thing, project) = (model.clone(), String::new());
        app.audit().record_effect(&JobEffect { effect, thing, rights, project, detail, is_done });
        deployed?;
        let digest = Some(weights_digest(&app, &model, version).await?);
        Ok(OutputReference::new(OutputType::Model, format!("model:{model}@{version}"), digest))
    }
}

/// Publishes a checkpoint as a version of a model. The same content is the same version.
async fn publish_checkpoint(
    app: &AppState,
    model: &str,
    (job, checkpoint): (&str, &str),
    rights: &AccessRights,
) -> Result<u64, StepFailure> {
    let rights = refresh_rights(app, rights, AccessAction::PublishModel, model).await?;
    let sight = ProjectScope::from_rights(rights.clone());
    let which: CheckpointSelector =
        checkpoint.parse().map_err(|_| StepFailure::permanent("BAD_STEP", "the checkpoint is not a step"))?;
    let from = InitFrom::Checkpoint { job: job.to_owned(), which };
    let published = versions::publish_from_checkpoint(app, &sight, &rights, model, from).await;
    Ok(published.map_err(step_failure)?.version)
}

/// Makes a version the default behind the model's condition, or points another alias at it.
async fn deploy_version(
    app: &AppState,
    rights: &AccessRights,
    (model, version): (&str, u64),
    alias: Option<&str>,
) -> Result<(), StepFailure> {
    resource_access::check_model(app, rights, AccessAction::DeployModel, model).await.map_err(step_failure)?;
    let done = match alias {
        None | Some(STABLE) => match app.lifecycle().deploy(model, version).await {
            Err(saggar_serving::ServingError::Conflict { reason, .. }) => {
                return Err(StepFailure::permanent(
                    NOT_PROMOTED,
                    format!("{model}@{version} is not promoted: {reason}"),
                ));
            }
            done => done,
        },
        Some(alias) => match app.lifecycle().load(model, Some(version)).await {
            Ok(_) => app.lifecycle().set_alias(model, alias, version).await,
            failed => failed,
        },
    };
    done.map(drop).map_err(|error| step_failure(error.into()))
}
