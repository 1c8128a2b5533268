//! Pins the inputs of a step at submission: outputs of other steps are replaced by their values, models and checkpoints
//! get their numbers.

use saggar_jobs::{InitFrom, JobError, JobSpec, SpecError, bind_step_inputs};
use saggar_plugin::PluginDeclarations;
use saggar_project::{ParameterDeclaration, ParameterType};
use serde::Deserialize;
use serde_json::Value;

use super::origin::pin_origin;
use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;

/// An output of a step that has ended, given as an input of another.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputReference {
    /// The job's name or identifier.
    job: String,
    /// The output's name.
    output: String,
}

/// Binds the inputs of a step and pins what they refer to, except for mounts, which are pinned as those of trainings are.
///
/// # Errors
/// The errors of [`bind_step_inputs`]; `NotFound` for a job, output, model version or checkpoint that does not exist;
/// `Parameter` for an output whose type does not fit its input.
pub(super) async fn pin_step_inputs(
    app: &AppState,
    sight: &ProjectScope,
    declares: &PluginDeclarations,
    spec: &mut JobSpec,
) -> Result<(), ApiError> {
    for (name, declared) in &declares.inputs {
        let given = spec.parameters.get(name).filter(|given| given.is_object());
        if let Some(reference) = given.and_then(|given| OutputReference::deserialize(given).ok()) {
            let value = output_value(app, sight, name, declared, &reference).await?;
            spec.parameters.insert(name.clone(), value);
        }
    }
    bind_step_inputs(declares, spec).map_err(JobError::from)?;
    for (name, declared) in &declares.inputs {
        let Some(Value::String(text)) = spec.parameters.get(name) else { continue };
        let prefix = match declared.kind {
            ParameterType::Model => "model:",
            ParameterType::Checkpoint => "",
            _ => continue,
        };
        // Binding has checked that it parses.
        let Ok(mut origin) = format!("{prefix}{text}").parse::<InitFrom>() else { continue };
        pin_origin(app, sight, &mut origin).await?;
        let pinned = origin.to_string().trim_start_matches(prefix).to_owned();
        spec.parameters.insert(name.clone(), pinned.into());
    }
    Ok(())
}

/// Returns the value of a step's output for the input `name`.
async fn output_value(
    app: &AppState,
    sight: &ProjectScope,
    name: &str,
    declared: &ParameterDeclaration,
    reference: &OutputReference,
) -> Result<Value, ApiError> {
    let job = sight.find_job(app.jobs(), &reference.job).await?;
    let outputs = app.jobs().step_outputs(&job).await?;
    let Some(output) = outputs.get(&reference.output) else {
        let known: Vec<&str> = outputs.keys().map(String::as_str).collect();
        let hint = match known.as_slice() {
            [] => format!("job {} is {} and has no outputs of a step", job.name, job.state.name()),
            known => format!("job {} has: {}", job.name, known.join(", ")),
        };
        let output: String = reference.output.chars().take(80).collect();
        return Err(ApiError::NotFound { kind: "output", name: output, hint });
    };
    if output.kind.connects_to(declared.kind) {
        return Ok(output.value.clone());
    }
    let got = format!("output `{}` of {}, which has type {}", reference.output, job.name, output.kind.name());
    let error = SpecError::Parameter { name: name.to_owned(), expected: declared.to_string(), got };
    Err(JobError::from(error).into())
}
