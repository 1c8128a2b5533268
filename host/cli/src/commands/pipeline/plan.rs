//! The plan of a pipeline of the project file: its plugins are built and uploaded, and its tasks become specifications.

use std::collections::BTreeMap;

use saggar_pipelines::{PipelineService, RunRequest};
use saggar_project::{
    ExpandedStep, PROJECT_FILE, PipelinePlan, PipelineSection, PipelineStep, TaskMode, TaskSection, bind_parameters,
    parse_parameter_text,
};
use serde_json::{Map, Value};

use crate::client::ApiClient;
use crate::commands::run;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::project::{ProjectContext, non_empty_env_var};

/// Returns a pipeline of the project file.
pub(super) fn find_pipeline<'a>(project: &'a ProjectContext, name: &str) -> Result<&'a PipelineSection, CliError> {
    project.manifest.pipelines.get(name).ok_or_else(|| {
        let known: Vec<&str> = project.manifest.pipelines.keys().map(String::as_str).collect();
        let hint = match known.is_empty() {
            true => format!("add a table [pipeline.{name}] to {PROJECT_FILE}"),
            false => format!("its pipelines are: {}", known.join(", ")),
        };
        let message = format!("{PROJECT_FILE} has no pipeline {name:?}");
        CliError::new(exit::NOT_FOUND, "no_pipeline", message).with_hint(hint)
    })
}

/// Returns the request to run a pipeline of the project file. Parameters are checked before anything is built.
pub(super) fn run_request(
    name: &str,
    params: &[String],
    client: &ApiClient,
    output: CliOutput,
) -> Result<RunRequest, CliError> {
    let project = ProjectContext::require()?;
    let section = find_pipeline(&project, name)?;
    let params = parse_params(&section.params, params)?;
    let project_name = non_empty_env_var("SAGGAR_PROJECT").unwrap_or_else(|| project.manifest.project.name.clone());
    let mut plan = PipelinePlan {
        name: name.to_owned(),
        project: project_name,
        params: section.params.clone(),
        steps: Vec::new(),
    };
    // The plugins by name, each with its digest and the name of its component.
    let mut plugins: BTreeMap<String, (String, String)> = BTreeMap::new();
    for expanded in &section.expanded {
        if let Some(plugin) = task_of(&project, expanded).map(|task| &task.plugin)
            && !plugins.contains_key(plugin)
        {
            let component = run::build_plugin(&project, plugin, output, None)?;
            let digest = run::upload_plugin(client, &component)?;
            plugins.insert(plugin.clone(), (digest, component.name().into_owned()));
        }
    }
    for expanded in &section.expanded {
        plan.steps.push(plan_step(&project, expanded, &plugins)?);
    }
    let request = RunRequest { plan, params };
    PipelineService::check(&request).map_err(|error| CliError::invalid(error.to_string()))?;
    Ok(request)
}

fn parse_params(defaults: &Map<String, Value>, words: &[String]) -> Result<Map<String, Value>, CliError> {
    let invalid = |error: saggar_project::ParameterError| CliError::invalid(error.to_string());
    let mut params = Map::new();
    for word in words {
        let Some((name, text)) = word.split_once('=') else {
            let hint = "parameters are written -p train_steps=100";
            return Err(CliError::invalid(format!("{word:?} is not a parameter")).with_hint(hint));
        };
        let value = parse_parameter_text(defaults, name, text).map_err(invalid)?;
        if params.insert(name.to_owned(), value).is_some() {
            return Err(CliError::invalid(format!("parameter {name} is given twice")));
        }
    }
    bind_parameters(defaults, &params).map_err(invalid)?;
    Ok(params)
}

fn task_of<'a>(project: &'a ProjectContext, expanded: &ExpandedStep) -> Option<&'a TaskSection> {
    project.manifest.tasks.get(expanded.section.task.as_ref()?)
}

/// Returns a step with the specification of its job.
fn plan_step(
    project: &ProjectContext,
    expanded: &ExpandedStep,
    plugins: &BTreeMap<String, (String, String)>,
) -> Result<PipelineStep, CliError> {
    let mut step = expanded.step.clone();
    if !step.kind.is_job() {
        return Ok(step);
    }
    let task = task_of(project, expanded);
    // A prediction needs no task: its plugin is that of the model.
    let mut template = task.cloned().unwrap_or_else(|| TaskSection {
        plugin: String::new(),
        mode: TaskMode::Job,
        args: Map::new(),
        data: Vec::new(),
        message: None,
        init_from: None,
        secrets: Vec::new(),
        schedule: None,
        run: Default::default(),
    });
    template.run = expanded.section.run.clone().or_defaults(template.run);
    template.secrets.extend(expanded.section.secrets.iter().cloned());
    template.secrets.sort_unstable();
    template.secrets.dedup();
    let none = ("0".repeat(64), step.name.clone());
    let (digest, component) = plugins.get(&template.plugin).unwrap_or(&none);
    let name = expanded.section.task.as_deref().unwrap_or(&expanded.section.step.name);
    let spec = run::section_spec(project, (name, &template), digest, component)?;
    let Ok(Value::Object(mut fields)) = serde_json::to_value(&spec) else {
        return Err(CliError::invalid(format!("step {}: its job has no specification", step.name)));
    };
    // The plan has one project for all steps.
    fields.shift_remove("project");
    step.spec = fields;
    Ok(step)
}
