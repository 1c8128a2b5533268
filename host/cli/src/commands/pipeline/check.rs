//! `saggar pipeline check`: the project file is checked when it is read; here also the types of connections, as far as the
//! components of steps are on this machine.

use std::collections::{BTreeMap, BTreeSet};

use saggar_plugin::PluginDeclarations;
use saggar_project::{ExpandedStep, PROJECT_FILE, PipelineSection, PipelineStep, StepDeclarations, StepKind};
use serde::Serialize;

use super::folders::{self, PipelineFolders};
use super::plan;
use crate::commands::run;
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::project::ProjectContext;

/// The export of a plugin that is a step.
const STEP_EXPORT: &str = "saggar:plugin/step@";

/// The result of the command for one pipeline.
#[derive(Serialize)]
struct CheckedPipeline<'a> {
    name: &'a str,
    steps: usize,
    params: &'a serde_json::Map<String, serde_json::Value>,
}

pub(super) fn check(name: Option<&str>, output: CliOutput) -> Result<i32, CliError> {
    let project = ProjectContext::require()?;
    if let Some(name) = name {
        plan::find_pipeline(&project, name)?;
    }
    let mut components = LocalComponents { project: &project, read: BTreeMap::new() };
    let mut checked = Vec::new();
    let mut unread = BTreeSet::new();
    for (pipeline, section) in &project.manifest.pipelines {
        if name.is_none_or(|name| name == pipeline) {
            unread.extend(check_types(&mut components, pipeline, section)?);
            checked.push(CheckedPipeline { name: pipeline, steps: section.expanded.len(), params: &section.params });
        }
    }
    if output.json {
        output.print_json(&checked);
    } else if checked.is_empty() {
        output.print_note(&format!("{PROJECT_FILE} has no pipelines"));
    }
    for it in checked.iter().filter(|_| !output.json) {
        output.print_line(&format!("{}: {} steps", it.name, it.steps));
    }
    for plugin in unread {
        output.print_note(&format!(
            "the component of plugin {plugin} is not on this machine: its inputs and outputs are checked when a run starts"
        ));
    }
    Ok(0)
}

/// Checks the inputs and outputs of a pipeline's steps. Returns the plugins whose components could not be read.
fn check_types(
    components: &mut LocalComponents<'_>,
    name: &str,
    section: &PipelineSection,
) -> Result<BTreeSet<String>, CliError> {
    let mut unread = BTreeSet::new();
    let mut checked = plan::empty_plan(components.project, name, section);
    for expanded in &section.expanded {
        checked.steps.push(components.declared_step(expanded, &mut unread)?);
    }
    PipelineFolders::read(components.project, &section.expanded)?;
    folders::replace_by_samples(&mut checked.steps);
    match checked.check() {
        Ok(_) => Ok(unread),
        Err(mistakes) => {
            let step =
                |at: Option<usize>| at.map_or_else(String::new, |at| format!(" step {}", checked.steps[at].name));
            let lines: Vec<String> = mistakes
                .iter()
                .map(|it| format!("pipeline {name}{}: {}\n  hint: {}", step(it.step), it.message, it.hint))
                .collect();
            Err(CliError::invalid(lines.join("\n")))
        }
    }
}

/// The components of the project that are on this machine, each read once. Nothing is built.
struct LocalComponents<'a> {
    project: &'a ProjectContext,
    read: BTreeMap<String, Option<StepDeclarations>>,
}

impl LocalComponents<'_> {
    /// Returns a step with the declarations of its plugin.
    fn declared_step(
        &mut self,
        expanded: &ExpandedStep,
        unread: &mut BTreeSet<String>,
    ) -> Result<PipelineStep, CliError> {
        let mut step = expanded.step.clone();
        let Some(plugin) = plan::plugin_of(self.project, expanded).filter(|_| step.kind == StepKind::Plugin) else {
            return Ok(step);
        };
        step.declares = match self.read.get(plugin) {
            Some(declares) => declares.clone(),
            None => {
                let declares = self.read_declarations(plugin)?;
                self.read.insert(plugin.to_owned(), declares.clone());
                declares
            }
        };
        if step.declares.is_none() {
            unread.insert(plugin.to_owned());
        }
        Ok(step)
    }

    /// Returns the declarations of a plugin, or `None` if its component is not built or is on another server.
    fn read_declarations(&self, plugin: &str) -> Result<Option<StepDeclarations>, CliError> {
        let Some(wasm) = run::built_component(self.project, plugin).ok().and_then(|component| component.read().ok())
        else {
            return Ok(None);
        };
        let declares = PluginDeclarations::from_component(&wasm)
            .map_err(|error| CliError::invalid(format!("plugin {plugin}: {error}")))?;
        let exports = saggar_plugin::component_exports(&wasm).unwrap_or_default();
        if !exports.iter().any(|export| export.starts_with(STEP_EXPORT)) {
            return Err(CliError::invalid(format!("plugin {plugin} is no step, and a step of kind plugin runs it"))
                .with_hint("a training is a step of kind train, with a task"));
        }
        Ok(Some(StepDeclarations { inputs: declares.inputs, outputs: declares.outputs }))
    }
}
