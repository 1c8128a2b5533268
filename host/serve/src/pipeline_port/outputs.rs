//! The outputs of jobs as steps of pipelines use them, and whether they still exist.

use std::collections::BTreeMap;

use saggar_jobs::InitFrom;
use saggar_pipelines::{OutputReference, StepFailure};
use saggar_project::{MountSource, OutputType, ParameterType, parse_mount};
use saggar_store::AccessRights;
use saggar_store::records::JobRecord;
use serde_json::Value;

use super::{dataset_digest, find_job, job_failure, step_failure, weights_digest};
use crate::api::jobs::{origin, views};
use crate::app::AppState;
use crate::error::ApiError;

/// Returns the outputs of a job that succeeded: its files, its newest checkpoint and its last published version, and
/// what its plugin returned, if it is a step.
pub(super) async fn outputs_of_job(
    app: &AppState,
    job: &JobRecord,
) -> Result<BTreeMap<String, OutputReference>, StepFailure> {
    let mut outputs = BTreeMap::new();
    let mut add = |name: &str, kind: OutputType, value: String, digest| {
        outputs.insert(name.to_owned(), OutputReference::new(kind, value, digest));
    };
    add("job", OutputType::Text, job.name.clone(), None);
    add("output", OutputType::Files, format!("job:{}/output", job.name), None);
    let checkpoints = app.checkpoints().list(&job.id).await.map_err(|error| step_failure(error.into()))?;
    if let Some(newest) = checkpoints.first() {
        let (value, digest) = (format!("job:{}/checkpoint@{}", job.name, newest.step), newest.digest.hex());
        add("checkpoint", OutputType::Checkpoint, value, Some(digest));
    }
    let events = app.jobs().events_of_kinds(&job.id, &[views::PUBLISHED]).await.map_err(job_failure)?;
    if let Some(published) = views::published_versions(&events).last() {
        let digest = weights_digest(app, &published.model, published.version).await?;
        let value = format!("model:{}@{}", published.model, published.version);
        add("model", OutputType::Model, value, Some(digest));
    }
    for (name, output) in app.jobs().step_outputs(job).await.map_err(job_failure)? {
        let output = step_output(app, output.kind, output.value, output.sha256).await?;
        outputs.insert(name, output);
    }
    Ok(outputs)
}

/// Returns an output that a step returned, as a pipeline refers to it.
async fn step_output(
    app: &AppState,
    declared: ParameterType,
    value: Value,
    digest: Option<String>,
) -> Result<OutputReference, StepFailure> {
    let kind = OutputType::of_declared(declared);
    let Some(text) = value.as_str() else { return Ok(OutputReference::new(kind, value, digest)) };
    match declared {
        ParameterType::Dataset if !text.starts_with("job:") => {
            // A data step of the run made it.
            let digest = dataset_digest(app, &AccessRights::default(), text).await.map_err(step_failure)?;
            Ok(OutputReference::new(OutputType::Dataset, value, Some(digest)))
        }
        ParameterType::Model => {
            let reference = format!("model:{text}");
            let digest = match reference.parse() {
                Ok(InitFrom::Model { model, version: Some(version) }) => {
                    Some(weights_digest(app, &model, version).await?)
                }
                _ => None,
            };
            Ok(OutputReference::new(kind, reference, digest))
        }
        _ => Ok(OutputReference::new(kind, value, digest)),
    }
}

/// Returns whether all of these outputs still exist.
pub(super) async fn all_exist(
    app: &AppState,
    outputs: &BTreeMap<String, OutputReference>,
) -> Result<bool, StepFailure> {
    for (name, output) in outputs {
        match exists(app, output.kind.unwrap_or_else(|| type_of_name(name)), &output.value).await {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => match step_failure(error) {
                StepFailure::Permanent(_) => return Ok(false),
                failure => return Err(failure),
            },
        }
    }
    Ok(true)
}

/// Returns the type of an output of a record without types, which has only outputs of these names.
fn type_of_name(name: &str) -> OutputType {
    match name {
        "model" => OutputType::Model,
        "checkpoint" => OutputType::Checkpoint,
        "output" => OutputType::Files,
        _ => OutputType::Text,
    }
}

async fn exists(app: &AppState, kind: OutputType, value: &Value) -> Result<bool, ApiError> {
    let text = value.as_str().unwrap_or_default();
    match kind {
        OutputType::Model | OutputType::Checkpoint => has_weights(app, text).await.map(|()| true),
        OutputType::Files | OutputType::File | OutputType::DatasetFiles => {
            match parse_mount(text).map(|it| it.source) {
                Ok(MountSource::Job { job, .. }) => Ok(find_job(app, &job).await.map(|_| true)?),
                _ => Ok(false),
            }
        }
        OutputType::Dataset => dataset_digest(app, &AccessRights::default(), text).await.map(|_| true),
        OutputType::Text | OutputType::Integer | OutputType::Number | OutputType::Boolean | OutputType::Undeclared => {
            Ok(true)
        }
    }
}

/// Checks that a checkpoint or a version of a model exists.
async fn has_weights(app: &AppState, reference: &str) -> Result<(), ApiError> {
    match reference.parse::<InitFrom>() {
        Ok(InitFrom::Checkpoint { job, which }) => {
            let job = find_job(app, &job).await?;
            origin::find_checkpoint(app, &job, which).await.map(drop)
        }
        Ok(InitFrom::Model { model, version }) => origin::find_model_version(app, &model, version).await.map(drop),
        Err(error) => Err(ApiError::Internal { cause: error.to_string() }),
    }
}
