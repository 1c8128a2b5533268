//! The plan of a pipeline of the project file: its plugins are built and uploaded, and its tasks become specifications.

use std::collections::BTreeMap;

use saggar_pipelines::{PipelineService, RunRequest};
use saggar_plugin::PluginDeclarations;
use saggar_project::{
    ExpandedStep, PROJECT_FILE, PipelinePlan, PipelineSection, PipelineStep, StepDeclarations, StepKind, TaskMode,
    TaskSection, bind_parameters, parse_parameter_text,
};
use saggar_rest::plugins::PluginDocument;
use serde_json::{Map, Value};

use super::folders::{self, PipelineFolders};
use crate::client::ApiClient;
use crate::commands::run;
use crate::component_source::ComponentSource;
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

/// Returns the request to run a pipeline of the project file. Parameters are checked before anything is built, and the
/// types of connections before anything runs.
pub(super) fn run_request(
    name: &str,
    params: &[String],
    client: &ApiClient,
    output: CliOutput,
) -> Result<RunRequest, CliError> {
    let project = ProjectContext::require()?;
    let section = find_pipeline(&project, name)?;
    let params = parse_params(&section.params, params)?;
    // Before anything is built or sent.
    let folders = PipelineFolders::read(&project, &section.expanded)?;
    let mut plugins: BTreeMap<String, PlanPlugin> = BTreeMap::new();
    for expanded in &section.expanded {
        if let Some(plugin) = plugin_of(&project, expanded)
            && !plugins.contains_key(plugin)
        {
            let component = run::build_plugin(&project, plugin, output, None)?;
            let document = run::upload_component(client, &component)?;
            plugins.insert(plugin.to_owned(), PlanPlugin { document, component });
        }
    }
    let mut plan = empty_plan(&project, name, section);
    for expanded in &section.expanded {
        plan.steps.push(plan_step(&project, expanded, &plugins)?);
    }
    let mut request = RunRequest { plan, params, from_failed: None };
    // Nothing is pushed for a plan with mistakes.
    let mut sample = request.clone();
    folders::replace_by_samples(&mut sample.plan.steps);
    PipelineService::check(&sample).map_err(|error| CliError::invalid(error.to_string()))?;
    folders.push(&mut request.plan.steps, client, output)?;
    Ok(request)
}

/// A plugin that the server has.
struct PlanPlugin {
    document: PluginDocument,
    component: ComponentSource,
}

/// Returns the plan of a pipeline without its steps.
pub(super) fn empty_plan(project: &ProjectContext, name: &str, section: &PipelineSection) -> PipelinePlan {
    let project_name = non_empty_env_var("SAGGAR_PROJECT").unwrap_or_else(|| project.manifest.project.name.clone());
    PipelinePlan { name: name.to_owned(), project: project_name, params: section.params.clone(), steps: Vec::new() }
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

/// Returns the name of the plugin that a step runs.
pub(super) fn plugin_of<'a>(project: &'a ProjectContext, expanded: &'a ExpandedStep) -> Option<&'a str> {
    let of_task = || task_of(project, expanded)?.plugin.as_deref();
    expanded.section.plugin.as_deref().or_else(of_task)
}

/// Returns a step with the specification of its job.
fn plan_step(
    project: &ProjectContext,
    expanded: &ExpandedStep,
    plugins: &BTreeMap<String, PlanPlugin>,
) -> Result<PipelineStep, CliError> {
    let mut step = expanded.step.clone();
    if !step.kind.is_job() {
        return Ok(step);
    }
    let mut template = task_of(project, expanded).cloned().unwrap_or_else(empty_task);
    template.run = expanded.section.run.clone().or_defaults(template.run);
    template.secrets.extend(expanded.section.secrets.iter().cloned());
    template.secrets.sort_unstable();
    template.secrets.dedup();
    let plugin = plugin_of(project, expanded).and_then(|name| plugins.get(name));
    // The server replaces the plugin of a prediction by that of the model.
    let (digest, component) = plugin.map_or_else(
        || ("0".repeat(64), step.name.clone()),
        |plugin| (plugin.document.digest.clone(), plugin.component.name().into_owned()),
    );
    let name = expanded.section.task.as_deref().unwrap_or(&expanded.section.step.name);
    let spec = run::section_spec(project, (name, &template), &digest, &component)?;
    let Ok(Value::Object(mut fields)) = serde_json::to_value(&spec) else {
        return Err(CliError::invalid(format!("step {}: its job has no specification", step.name)));
    };
    // The plan has one project for all steps. Defaults of the project for trainings say nothing about other jobs.
    for field in unused_fields(step.kind) {
        fields.shift_remove(*field);
    }
    step.spec = fields;
    step.component = plugin.map(|plugin| plugin.component.label());
    if step.kind == StepKind::Plugin
        && let Some(PlanPlugin { document, .. }) = plugin
    {
        step.declares = Some(declarations_of(&step.name, document)?);
    }
    Ok(step)
}

/// Returns the fields of a specification that a step of this kind does not have.
fn unused_fields(kind: StepKind) -> &'static [&'static str] {
    match kind {
        StepKind::Plugin => &["project", "replicas", "hosts", "shards"],
        StepKind::Data => &["project", "plugin", "parameters", "data", "replicas", "hosts", "shards"],
        _ => &["project"],
    }
}

/// Returns the task of a step that has none.
fn empty_task() -> TaskSection {
    TaskSection {
        plugin: None,
        mode: TaskMode::Job,
        args: Map::new(),
        data: Vec::new(),
        message: None,
        init_from: None,
        secrets: Vec::new(),
        schedule: None,
        idle_timeout: None,
        run: Default::default(),
    }
}

/// Returns the inputs and outputs of a step's plugin, as the server read them.
fn declarations_of(step: &str, plugin: &PluginDocument) -> Result<StepDeclarations, CliError> {
    if !plugin.is_step {
        let message = format!("step {step}: its plugin is no step, and has no typed inputs and outputs");
        return Err(CliError::invalid(message).with_hint("a training is a step of kind train, with a task"));
    }
    let Some(declares) = &plugin.declares else { return Ok(StepDeclarations::default()) };
    let declares: PluginDeclarations =
        serde_json::from_value(declares.clone()).map_err(|error| CliError::invalid(error.to_string()))?;
    Ok(StepDeclarations { inputs: declares.inputs, outputs: declares.outputs })
}
