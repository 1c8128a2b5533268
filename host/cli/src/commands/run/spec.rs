//! Builds a job's specification from a task, a file and flags. Equal values give equal specifications, whatever their
//! source.

use std::path::Path;

use saggar_jobs::{DataMount, JobSpec};
use saggar_project::{TaskMount, TaskSection, UserConfig, parse_mount};
use serde_json::{Map, Value};

use super::layers::{ConfigLayers, spec_fields};
use crate::args::RunArgs;
use crate::exit::{self, CliError};
use crate::project::{ProjectContext, non_empty_env_var};

/// The plugin, and the sources of the run's values.
pub(super) struct RunInputs<'a> {
    pub(super) args: &'a RunArgs,
    pub(super) project: Option<&'a ProjectContext>,
    pub(super) task: Option<(&'a str, &'a TaskSection)>,
    pub(super) user: &'a UserConfig,
}

impl RunInputs<'_> {
    /// Returns the specification of a job that runs the plugin with this digest, whose file is named `stem`.
    ///
    /// # Errors
    /// Fails if a value is invalid.
    pub(super) fn build_spec(&self, digest: &str, stem: &str) -> Result<JobSpec, CliError> {
        let RunInputs { args, project, task, user } = self;
        let layers = ConfigLayers::collect(&args.options, *project, *task, user);
        let mut fields = spec_fields(&layers.merge());
        let named = args.project.clone().or_else(|| non_empty_env_var("SAGGAR_PROJECT"));
        let named = named.or_else(|| project.map(|project| project.manifest.project.name.clone()));
        let named = named.or_else(|| user.project.clone());
        let named = named.unwrap_or_else(|| stem.replace('_', "-").to_lowercase());
        fields.insert("project".to_owned(), named.into());
        fields.insert("plugin".to_owned(), digest.into());
        let mut mounts = Vec::new();
        if let Some((name, task)) = task {
            fields.insert("task".to_owned(), (*name).into());
            apply_task(&mut fields, task);
            mounts = task.data.iter().map(data_mount).collect();
        }
        self.apply_flags(&mut fields, mounts)?;
        parse_and_validate(fields)
    }

    /// Reads the specification in `file`, with the flags applied. A given plugin replaces the file's.
    ///
    /// # Errors
    /// Fails with the position if the file is not a valid specification, or if a value is invalid.
    pub(super) fn spec_from_file(&self, file: &Path, digest: Option<&str>) -> Result<JobSpec, CliError> {
        let name = file.display();
        let text = std::fs::read_to_string(file)
            .map_err(|error| CliError::new(exit::NOT_FOUND, "unreadable", format!("{name}: {error}")))?;
        let spec: JobSpec = serde_json::from_str(&text).map_err(|error| {
            let reason = error.to_string();
            let reason = reason.split(" at line ").next().unwrap_or(&reason);
            CliError::invalid(format!("{name}:{}:{}: {reason}", error.line(), error.column()))
                .with_hint("`saggar status JOB --field spec` prints one that is valid")
        })?;
        let Value::Object(mut fields) = serde_json::to_value(&spec).unwrap_or_default() else { return Ok(spec) };
        fields.extend(spec_fields(&ConfigLayers::from_flags(&self.args.options).merge()));
        if let Some(digest) = digest {
            fields.insert("plugin".to_owned(), digest.into());
        }
        if let Some(project) = &self.args.project {
            fields.insert("project".to_owned(), project.as_str().into());
        }
        self.apply_flags(&mut fields, spec.data)?;
        parse_and_validate(fields)
    }

    /// Applies what only flags can set: parameters, data and initial weights. `mounts` are those of the task or file.
    fn apply_flags(&self, fields: &mut Map<String, Value>, mounts: Vec<DataMount>) -> Result<(), CliError> {
        let args = self.args;
        let parameters = fields.entry("parameters").or_insert_with(|| Map::new().into());
        if let Some(parameters) = parameters.as_object_mut() {
            parameters.extend(super::parse_parameters(&args.parameters)?);
        }
        let said: Result<Vec<DataMount>, CliError> = args.data.iter().map(|text| parse_data_flag(text)).collect();
        let data = serde_json::to_value(merge_mounts(mounts, said?)).expect("mounts have text as keys");
        fields.insert("data".to_owned(), data);
        if let Some(text) = &args.init_from {
            fields.insert("init_from".to_owned(), text.as_str().into());
        }
        if !args.secrets.is_empty() {
            fields.insert("secrets".to_owned(), args.secrets.clone().into());
        }
        if let Some(message) = &args.message {
            fields.insert("message".to_owned(), message.as_str().into());
        }
        Ok(())
    }
}

fn apply_task(fields: &mut Map<String, Value>, task: &TaskSection) {
    fields.insert("parameters".to_owned(), Value::Object(task.args.clone()));
    fields.extend(task.message.as_ref().map(|message| ("message".to_owned(), message.as_str().into())));
    fields.extend(task.init_from.as_ref().map(|weights| ("init_from".to_owned(), weights.as_str().into())));
    if !task.secrets.is_empty() {
        fields.insert("secrets".to_owned(), task.secrets.clone().into());
    }
}

/// Merges mounts. A flag's mount replaces one of `below` at the same path.
fn merge_mounts(mut below: Vec<DataMount>, said: Vec<DataMount>) -> Vec<DataMount> {
    below.retain(|below| said.iter().all(|mount| below.mount != mount.mount));
    below.extend(said);
    below
}

fn parse_data_flag(text: &str) -> Result<DataMount, CliError> {
    let mount = parse_mount(text)
        .map_err(|error| CliError::invalid(format!("--data {error}")).with_hint("for example --data mnist/1:/data"))?;
    Ok(data_mount(&mount))
}

fn data_mount(TaskMount { source, at, .. }: &TaskMount) -> DataMount {
    DataMount { source: source.clone().into(), mount: at.clone() }
}

fn parse_and_validate(fields: Map<String, Value>) -> Result<JobSpec, CliError> {
    let spec: JobSpec =
        serde_json::from_value(Value::Object(fields)).map_err(|error| CliError::invalid(error.to_string()))?;
    spec.validate().map_err(|error| CliError::invalid(error.to_string()))?;
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_flag_replaces_only_the_mount_at_its_mount_point() {
        let mounts = |flags: &[&str]| flags.iter().map(|flag| parse_data_flag(flag).unwrap()).collect::<Vec<_>>();
        let merged = merge_mounts(mounts(&["a:/data", "b:/before"]), mounts(&["c/2:/data"]));
        assert_eq!(merged, mounts(&["b:/before", "c/2:/data"]));
    }
}
