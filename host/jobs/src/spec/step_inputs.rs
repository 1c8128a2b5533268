//! Binds the inputs of a step: a client gives all of them as parameters, and those of types `dataset` and `file` become
//! mounts. After binding, every input has a value of its type, so a connection that cannot work is refused before
//! anything runs.

use saggar_plugin::PluginDeclarations;
use saggar_project::{ParameterDeclaration, ParameterType};
use serde_json::Value;

use super::{DataMount, DataSource, InitFrom, JobSpec};
use crate::error::SpecError;

/// The characters of a value that an error quotes.
const QUOTED_CHARS_MAX: usize = 80;

/// Returns the mount point of a step's input.
pub(crate) fn input_mount_point(name: &str) -> String {
    format!("/{name}")
}

/// Binds the inputs of a job whose plugin is a step. Binding again changes nothing.
///
/// # Errors
/// `Step` if the job asks for something that only a training has; `MissingInput`; `Parameter` for an input of another
/// type; `UnknownInput` for a parameter or mount that is not a declared input; `MountTwice`.
pub fn bind_step_inputs(declares: &PluginDeclarations, spec: &mut JobSpec) -> Result<(), SpecError> {
    check_options(spec)?;
    for (name, declared) in &declares.inputs {
        match declared.kind {
            ParameterType::Dataset | ParameterType::File => bind_mount(name, declared, spec)?,
            ParameterType::Integer
            | ParameterType::Number
            | ParameterType::Text
            | ParameterType::Boolean
            | ParameterType::Model
            | ParameterType::Checkpoint => bind_parameter(name, declared, spec)?,
        }
    }
    let known: Vec<&str> = declares.inputs.keys().map(String::as_str).collect();
    let is_input = |name: &str| declares.inputs.contains_key(name);
    let parameter = spec.parameters.keys().find(|name| !is_input(name)).cloned();
    let mount =
        spec.data.iter().map(|mount| mount.mount.as_str()).find(|mount| !is_input(mount.trim_start_matches('/')));
    match parameter.or_else(|| mount.map(str::to_owned)) {
        None => Ok(()),
        Some(name) => {
            let known = if known.is_empty() { "no inputs".to_owned() } else { known.join(", ") };
            Err(SpecError::UnknownInput { name: name.chars().take(QUOTED_CHARS_MAX).collect(), known })
        }
    }
}

fn check_options(spec: &JobSpec) -> Result<(), SpecError> {
    let refuse = |reason| Err(SpecError::Step { reason });
    if spec.measure {
        return refuse("only a training can be measured; leave `measure` out");
    }
    if spec.record || spec.replay.is_some() {
        return refuse("only a training can be recorded and replayed; leave `record` and `replay` out");
    }
    if spec.replicas > 1 || spec.shards.is_some() {
        return refuse("a step runs in one process; leave `replicas` and `shards` out");
    }
    if spec.init_from.is_some() {
        return refuse("nothing is trained; leave `init_from` out, and declare an input of type model or checkpoint");
    }
    Ok(())
}

fn wrong_type(name: &str, declared: &ParameterDeclaration, given: &impl ToString) -> SpecError {
    let got = given.to_string().chars().take(QUOTED_CHARS_MAX).collect();
    SpecError::Parameter { name: name.to_owned(), expected: declared.to_string(), got }
}

fn missing(name: &str, declared: &ParameterDeclaration) -> SpecError {
    SpecError::MissingInput { name: name.to_owned(), expected: declared.to_string() }
}

fn bind_mount(name: &str, declared: &ParameterDeclaration, spec: &mut JobSpec) -> Result<(), SpecError> {
    let point = input_mount_point(name);
    let mounted = spec.data.iter().position(|mount| mount.mount == point);
    let source = match (spec.parameters.remove(name), mounted) {
        (Some(_), Some(_)) => return Err(SpecError::MountTwice { mount: point }),
        (None, None) => return Err(missing(name, declared)),
        (None, Some(at)) => spec.data[at].source.clone(),
        (Some(value), None) => {
            let source = value.as_str().and_then(|text| text.parse::<DataSource>().ok());
            let source = source.ok_or_else(|| wrong_type(name, declared, &value))?;
            spec.data.push(DataMount { source: source.clone(), mount: point });
            source
        }
    };
    match (declared.kind, &source) {
        (ParameterType::File, DataSource::Dataset { .. } | DataSource::Output { path: None, .. }) => {
            Err(wrong_type(name, declared, &source))
        }
        _ => Ok(()),
    }
}

fn bind_parameter(name: &str, declared: &ParameterDeclaration, spec: &mut JobSpec) -> Result<(), SpecError> {
    let value = match spec.parameters.get(name) {
        Some(value) => value.clone(),
        None => declared.default.clone().ok_or_else(|| missing(name, declared))?,
    };
    let refers = |prefix: &str, value: &Value| {
        value.as_str().and_then(|text| format!("{prefix}{text}").parse::<InitFrom>().ok())
    };
    let is_valid = declared.accepts(&value)
        && match declared.kind {
            ParameterType::Model => {
                matches!(refers("model:", &value), Some(InitFrom::Model { model, .. }) if saggar_project::is_valid_name(&model))
            }
            ParameterType::Checkpoint => matches!(refers("", &value), Some(InitFrom::Checkpoint { .. })),
            ParameterType::Integer
            | ParameterType::Number
            | ParameterType::Text
            | ParameterType::Boolean
            | ParameterType::File
            | ParameterType::Dataset => true,
        };
    if !is_valid {
        return Err(wrong_type(name, declared, &value));
    }
    spec.parameters.insert(name.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn declarations() -> PluginDeclarations {
        let inputs = json!({
            "table": { "type": "dataset" },
            "report": { "type": "file" },
            "model": { "type": "model" },
            "best": { "type": "checkpoint" },
            "share": { "type": "number", "min": 0, "max": 1, "default": 0.5 },
        });
        serde_json::from_value(json!({ "inputs": inputs })).unwrap()
    }

    fn spec(parameters: Value) -> JobSpec {
        let mut spec = JobSpec::new("p", "0".repeat(64));
        spec.parameters = parameters.as_object().unwrap().clone();
        spec
    }

    fn valid() -> Value {
        json!({ "table": "digits/2", "report": "job:a-1/output/report.json", "model": "digits@3", "best": "job:a-1/checkpoint@best" })
    }

    #[test]
    fn references_become_mounts_and_defaults_are_filled_in() {
        let mut bound = spec(valid());
        bind_step_inputs(&declarations(), &mut bound).unwrap();
        let mounts: Vec<String> = bound.data.iter().map(|it| format!("{} at {}", it.source, it.mount)).collect();
        assert_eq!(mounts, ["job:a-1/output/report.json at /report", "digits/2 at /table"]);
        let parameters = json!({ "model": "digits@3", "best": "job:a-1/checkpoint@best", "share": 0.5 });
        assert_eq!(Value::Object(bound.parameters.clone()), parameters);
        let once = bound.clone();
        bind_step_inputs(&declarations(), &mut bound).unwrap();
        assert_eq!(bound, once);
    }

    #[test]
    fn inputs_that_do_not_fit_are_refused_by_name() {
        let refusal = |change: Value, says: &str| {
            let mut given = valid();
            given.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            let error = bind_step_inputs(&declarations(), &mut spec(given)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        refusal(json!({ "table": "digits@3" }), "parameters.table: expected a dataset");
        refusal(json!({ "table": 3 }), "parameters.table: expected a dataset");
        refusal(json!({ "table": "../x" }), "parameters.table");
        refusal(json!({ "report": "digits/2" }), "parameters.report: expected a file");
        refusal(json!({ "report": "job:a-1/output" }), "parameters.report: expected a file");
        refusal(json!({ "model": "job:a-1/checkpoint@3" }), "parameters.model: expected a version of a model");
        refusal(json!({ "best": "digits@3" }), "parameters.best: expected a checkpoint");
        refusal(json!({ "best": "model:digits@3" }), "parameters.best: expected a checkpoint");
        refusal(json!({ "share": 2 }), "parameters.share: expected a number from 0 to 1, got 2");
        refusal(json!({ "shar": 1 }), "`shar`");
        let mut lacking = valid();
        lacking.as_object_mut().unwrap().remove("table");
        let error = bind_step_inputs(&declarations(), &mut spec(lacking)).unwrap_err().to_string();
        assert!(error.starts_with("input `table` is missing: expected a dataset"), "{error}");
        let stray = DataMount { source: "digits".parse().unwrap(), mount: "/data".to_owned() };
        let error = bind_step_inputs(&declarations(), &mut JobSpec { data: vec![stray], ..spec(valid()) });
        assert!(error.unwrap_err().to_string().contains("`/data`"));
        for trained in [
            JobSpec { measure: true, ..spec(valid()) },
            JobSpec { replicas: 2, ..spec(valid()) },
            JobSpec { init_from: Some("model:digits".parse().unwrap()), ..spec(valid()) },
        ] {
            let error = bind_step_inputs(&declarations(), &mut trained.clone()).unwrap_err().to_string();
            assert!(error.starts_with("step: "), "{error}");
        }
    }
}
