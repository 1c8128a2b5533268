//! The job of a step: its specification, and the digest of everything that its result depends on.

use std::fmt::Display;

use saggar_jobs::{
    DataMount, DataSource, DataStepFetch, DataStepOutput, DataStepSource, DataStepSpec, DataStepVersion, JobSpec,
    PredictionSpec,
};
use saggar_project::{
    MountSource, ParameterType, PipelinePlan, PipelineStep, StepFetch, StepKind, StepMount, StepSource, TemplateValues,
    WeightsReference, parse_mount, render_template,
};
use saggar_store::digest::Digest;
use saggar_store::records::StateReason;
use serde_json::{Map, Value, json};

use crate::port::{DeployRequest, PreparedJob};

/// The reason of a step whose job cannot be described.
const BAD_STEP: &str = "BAD_STEP";

/// Fields of a specification that a plan's `spec` does not have, because other members give them.
const OWN_FIELDS: [&str; 3] = ["project", "measure", "replay"];

/// Returns a text of a step with its placeholders replaced.
fn render(text: &str, values: &dyn TemplateValues) -> Result<String, StateReason> {
    match render_template(&Value::String(text.to_owned()), values) {
        Ok(Value::String(text)) => Ok(text),
        Ok(other @ (Value::Number(_) | Value::Bool(_))) => Ok(other.to_string()),
        Ok(_) => Err(bad(format!("{text:?} is not one text"))),
        Err(error) => Err(bad(error)),
    }
}

fn bad(sentence: impl Display) -> StateReason {
    StateReason::new(BAD_STEP, sentence.to_string())
}

/// Returns the specification of a step's job.
///
/// # Errors
/// The reason, such as an output that a step did not have.
pub(crate) fn job_spec(
    plan: &PipelinePlan,
    step: &PipelineStep,
    values: &dyn TemplateValues,
) -> Result<JobSpec, StateReason> {
    let mut fields = step.spec.clone();
    if let Some(field) = OWN_FIELDS.into_iter().find(|field| fields.contains_key(*field)) {
        return Err(bad(format!("spec has a field {field}, which a plan gives for all steps")));
    }
    fields.insert("project".to_owned(), plan.project.clone().into());
    if step.kind == StepKind::Predict {
        // The server replaces it by the plugin of the version.
        fields.entry("plugin").or_insert_with(|| "0".repeat(64).into());
    }
    let mut parameters = match fields.get("parameters") {
        Some(Value::Object(parameters)) => parameters.clone(),
        _ => Map::new(),
    };
    for (name, value) in &step.args {
        parameters.insert(name.clone(), render_template(value, values).map_err(bad)?);
    }
    shorten_models(step, &mut parameters);
    fields.insert("parameters".to_owned(), Value::Object(parameters));
    if let Some(init_from) = &step.init_from {
        fields.insert("init_from".to_owned(), render(init_from, values)?.into());
    }
    if let Some(message) = &step.message {
        fields.insert("message".to_owned(), render(message, values)?.into());
    }
    if step.kind == StepKind::Predict {
        let prediction = prediction_spec(step, values)?;
        fields.insert("predict".to_owned(), serde_json::to_value(prediction).map_err(bad)?);
    }
    if step.kind == StepKind::Data {
        fields.insert("data_step".to_owned(), serde_json::to_value(data_step_spec(step, values)?).map_err(bad)?);
    }
    let mut spec: JobSpec = serde_json::from_value(Value::Object(fields)).map_err(bad)?;
    for mount in &step.data {
        let mount = data_mount(mount, values)?;
        // As with the flags of `saggar run`, a mount replaces the one at the same place.
        spec.data.retain(|other| other.mount != mount.mount);
        spec.data.push(mount);
    }
    if spec.predict.is_some() != (step.kind == StepKind::Predict) {
        return Err(bad("only a step of kind predict has a prediction"));
    }
    if spec.data_step.is_some() != (step.kind == StepKind::Data) {
        return Err(bad("only a step of kind data makes a dataset"));
    }
    Ok(spec)
}

/// Inputs of type `model` are written without the prefix that distinguishes models elsewhere in a pipeline.
fn shorten_models(step: &PipelineStep, parameters: &mut Map<String, Value>) {
    let inputs = step.declares.iter().flat_map(|declares| &declares.inputs);
    for (name, _) in inputs.filter(|(_, declared)| declared.kind == ParameterType::Model) {
        if let Some(Value::String(text)) = parameters.get_mut(name)
            && let Some(version) = text.strip_prefix("model:")
        {
            *text = version.to_owned();
        }
    }
}

fn data_step_spec(step: &PipelineStep, values: &dyn TemplateValues) -> Result<DataStepSpec, StateReason> {
    let dataset = render(step.dataset.as_deref().unwrap_or_default(), values)?;
    let from = match step.from.as_ref() {
        Some(StepSource::Fetch(StepFetch { url, sha256 })) => {
            let (url, sha256) = (render(url, values)?, render(sha256, values)?);
            DataStepSource::Fetch(DataStepFetch { url, sha256 })
        }
        Some(StepSource::Reference(reference)) => {
            let reference = render(reference, values)?;
            match parse_mount(&format!("{reference}:/data")).map_err(bad)?.source {
                MountSource::Job { job, path } => DataStepSource::Output(DataStepOutput { job, path }),
                MountSource::Dataset { dataset: named, version: Some(version) } if named == dataset => {
                    DataStepSource::Version(DataStepVersion { version })
                }
                MountSource::Dataset { .. } => {
                    return Err(bad(format!(
                        "{reference:?} is neither the output of a job nor a version of {dataset}"
                    )));
                }
            }
        }
        Some(StepSource::Folder(_)) => return Err(bad("a folder of a client was not pushed")),
        None => return Err(bad("a step of kind data needs from")),
    };
    Ok(DataStepSpec { dataset, from })
}

fn data_mount(mount: &StepMount, values: &dyn TemplateValues) -> Result<DataMount, StateReason> {
    let read = parse_mount(&format!("{}:{}", render(&mount.from, values)?, mount.to)).map_err(bad)?;
    let source = match read.source {
        MountSource::Dataset { dataset, version } => DataSource::Dataset { name: dataset, version },
        MountSource::Job { job, path } => DataSource::Output { job, path },
    };
    Ok(DataMount { source, mount: read.at })
}

fn prediction_spec(step: &PipelineStep, values: &dyn TemplateValues) -> Result<PredictionSpec, StateReason> {
    let from = render(step.from_reference().unwrap_or_default(), values)?;
    let WeightsReference::Model { model, version } = WeightsReference::parse(&from).map_err(bad)? else {
        return Err(bad(format!("{from:?} is not a version of a model")));
    };
    let text = |text: &Option<String>| text.as_deref().map(|text| render(text, values)).transpose();
    Ok(PredictionSpec { model, version, split: text(&step.split)?, out: text(&step.out)? })
}

/// Returns the deployment of a step.
///
/// # Errors
/// The reason, such as a placeholder without a value.
pub(crate) fn deploy_request(step: &PipelineStep, values: &dyn TemplateValues) -> Result<DeployRequest, StateReason> {
    let text = |text: &Option<String>| text.as_deref().map(|text| render(text, values)).transpose();
    let from = render(step.from_reference().unwrap_or_default(), values)?;
    Ok(DeployRequest { model: text(&step.model)?, from, alias: text(&step.alias)? })
}

/// Returns the digest of everything that the result of a job depends on: the plugin, the parameters, the contents that
/// it reads, and the options that change numbers. Limits, priorities and retries do not.
pub(crate) fn cache_key(job: &PreparedJob) -> String {
    let PreparedJob { spec, inputs } = job;
    let mut document = json!({
        "plugin": spec.plugin.to_ascii_lowercase(),
        "parameters": spec.parameters,
        "inputs": inputs,
        "seed": spec.seed,
        "precision": spec.precision,
        "shards": spec.shards,
        "non_finite": spec.non_finite,
        "secrets": spec.secrets,
        "split": spec.predict.as_ref().map(|prediction| &prediction.split),
        "out": spec.predict.as_ref().map(|prediction| &prediction.out),
        "checkpoint_every": spec.checkpoint_every,
        "checkpoint_keep_last": spec.checkpoint_keep_last,
    });
    // Results without an optimization differ in their last bits.
    if !spec.without.is_empty() {
        document["without"] = json!(spec.without);
    }
    if let Some(step) = &spec.data_step {
        document["data_step"] =
            json!({ "dataset": step.dataset, "is_fetched": matches!(step.from, DataStepSource::Fetch(_)) });
    }
    Digest::of(sorted(document).to_string().as_bytes()).hex()
}

/// Returns a value with the keys of all objects sorted, because maps keep the order in which a client sent them.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(entries) => {
            let mut entries: Vec<(String, Value)> =
                entries.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            entries.sort_by(|left, right| left.0.cmp(&right.0));
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}
