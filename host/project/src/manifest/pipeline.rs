//! `[pipeline.NAME]` and its steps.

mod expand;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value};

use super::run_options::{self, RunOptions};
use super::task::{TaskSection, read_schedule};
use crate::cron::CronSchedule;
use crate::limits::{PIPELINE_DEPTH_MAX, PIPELINE_ITEMS_MAX, PIPELINE_STEPS_MAX};
use crate::manifest_table::ManifestTable;
use crate::manifest_value::ManifestValue;
use crate::parse_report::{ParseReport, SourceSpan, TableKind};
use crate::pipeline::{
    NestedInterface, PipelineStep, StepFetch, StepFolder, StepKind, StepMount, StepOutline, StepSource, check_outlines,
    dependency_order,
};

pub use expand::ExpandedStep;
use expand::expand_steps;

/// A pipeline of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineSection {
    /// The parameters with their defaults.
    pub params: Map<String, Value>,
    /// When it starts automatically, in UTC.
    pub schedule: Option<CronSchedule>,
    /// The steps.
    pub steps: Vec<PipelineStepSection>,
    /// The steps, with those of nested pipelines.
    pub expanded: Vec<ExpandedStep>,
}

/// A step of a pipeline of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineStepSection {
    /// The step, without the job's specification.
    pub step: PipelineStep,
    /// The task that is the template of its job.
    pub task: Option<String>,
    /// The plugin of a step of kind `plugin` without a task.
    pub plugin: Option<String>,
    /// The pipeline that it is.
    pub pipeline: Option<String>,
    /// Run options of its job, before those of the task.
    pub run: RunOptions,
    /// Names of secrets that its job can read, besides those of the task.
    pub secrets: Vec<String>,
}

/// A pipeline as it was read, with the positions that mistakes need.
pub(crate) struct PositionedPipeline {
    section: PipelineSection,
    span: SourceSpan,
    keys: HashMap<String, SourceSpan>,
    steps: Vec<(SourceSpan, HashMap<String, SourceSpan>)>,
}

/// Returns the positions of the values of a table.
fn key_spans(table: &ManifestTable<'_>) -> HashMap<String, SourceSpan> {
    table.entries().into_iter().map(|(key, item)| (key, item.span)).collect()
}

pub(super) fn read_pipeline(table: &ManifestTable<'_>) -> PositionedPipeline {
    let params = table.optional("params", |item| Some(item.table()?.to_json_map().into_iter().collect()));
    let schedule = table.optional("schedule", read_schedule);
    let mut steps = Vec::new();
    let mut spans = Vec::new();
    let items = table.optional("step", |item| item.items()).unwrap_or_default();
    for item in &items {
        let Some(step) = item.table() else { continue };
        // Beyond the maximum, the number alone is reported.
        if items.len() <= PIPELINE_STEPS_MAX {
            steps.extend(read_step(&step).map(|section| (section, (step.span(), key_spans(&step)))));
        }
    }
    if items.len() > PIPELINE_STEPS_MAX {
        let message = format!("{} steps: a pipeline has at most {PIPELINE_STEPS_MAX}", items.len());
        let hint = "use for_each for equal steps, or several pipelines";
        table.report().add_error(&table.span(), message, hint);
    }
    let (steps, step_spans): (Vec<_>, Vec<_>) = steps.into_iter().unzip();
    spans.extend(step_spans);
    table.report_unknown_keys();
    let section = PipelineSection { params: params.unwrap_or_default(), schedule, steps, expanded: Vec::new() };
    PositionedPipeline { section, span: table.span(), keys: key_spans(table), steps: spans }
}

fn read_step(table: &ManifestTable<'_>) -> Option<PipelineStepSection> {
    let name = table.required("name", "name = \"train\"", |item| item.string());
    let task = table.optional("task", |item| item.table_reference(TableKind::Task));
    let plugin = table.optional("plugin", |item| item.table_reference(TableKind::Plugin));
    let pipeline = table.optional("pipeline", |item| item.table_reference(TableKind::Pipeline));
    let kind = table.optional("kind", |item| item.choice(&StepKind::NAMES)).or(match (&task, &plugin, &pipeline) {
        (_, _, Some(_)) => Some(StepKind::Pipeline),
        (_, Some(_), None) => Some(StepKind::Plugin),
        (Some(_), None, None) => Some(StepKind::Train),
        (None, None, None) => None,
    });
    let step = PipelineStep {
        name: name.clone().unwrap_or_default(),
        kind: kind.unwrap_or_default(),
        after: table.optional("after", |item| item.list(ManifestValue::string)).unwrap_or_default(),
        when: table.optional("when", |item| Some(vec![item.to_json()?])).unwrap_or_default(),
        for_each: table.optional("for_each", ManifestValue::to_json),
        max_parallel: table.optional("max_parallel", |item| item.bounded_count(1, PIPELINE_ITEMS_MAX as u32)),
        cache: table.optional("cache", |item| item.boolean()).unwrap_or_default(),
        idempotent: table.optional("idempotent", |item| item.boolean()).unwrap_or_default(),
        checkpointed: false,
        args: table
            .optional("args", |item| Some(item.table()?.to_json_map().into_iter().collect()))
            .unwrap_or_default(),
        init_from: table.optional("init_from", |item| item.string()),
        data: table.optional("data", read_mounts).unwrap_or_default(),
        model: table.optional("model", |item| item.string()),
        from: table.optional("from", read_source),
        dataset: table.optional("dataset", |item| item.string()),
        alias: table.optional("alias", |item| item.string()),
        split: table.optional("split", |item| item.string()),
        out: table.optional("out", |item| item.string()),
        message: table.optional("message", |item| item.string()),
        component: None,
        declares: None,
        spec: Map::new(),
    };
    let secrets = table.optional("secrets", |item| item.list(ManifestValue::string)).unwrap_or_default();
    let run = run_options::read_run_options(table);
    table.report_unknown_keys();
    let section = PipelineStepSection { step, task, plugin, pipeline, run, secrets };
    check_sources(table, &section, kind.is_some());
    name.map(|_| section)
}

/// Checks that the step has the task or pipeline that its kind needs, and options of jobs only if it is one.
fn check_sources(table: &ManifestTable<'_>, section: &PipelineStepSection, has_kind: bool) {
    let PipelineStepSection { step, task, plugin, pipeline, run, secrets } = section;
    let report = |message: String, hint: &str| table.report().add_error(&table.span(), message, hint);
    let name = &step.name;
    if !has_kind {
        return report(format!("step {name:?} has neither a task nor a kind"), "add a line such as task = \"train\"");
    }
    match step.kind {
        StepKind::Train if task.is_none() => {
            report(format!("step {name:?} of kind train has no task"), "add a line such as task = \"train\"");
        }
        StepKind::Pipeline if pipeline.is_none() => {
            report(
                format!("step {name:?} of kind pipeline names no pipeline"),
                "add a line such as pipeline = \"NAME\"",
            );
        }
        StepKind::Plugin if task.is_some() == plugin.is_some() => {
            let message = format!("step {name:?} of kind plugin needs a plugin or a task, and not both");
            report(message, "keep one line such as plugin = \"NAME\"; the plugin of a task is used with its args");
        }
        StepKind::Data if task.is_some() || !secrets.is_empty() => {
            let message = format!("step {name:?} of kind data runs no plugin, and has a task or secrets");
            report(message, "remove them; dataset and from say what the step makes");
        }
        StepKind::Deploy | StepKind::Approve | StepKind::Pipeline => {
            let without = RunOptions { preemptible: None, ..run.clone() };
            if task.is_some() || without != RunOptions::default() || !secrets.is_empty() {
                let message = format!("step {name:?} of kind {} is no job, and has options of jobs", step.kind.name());
                report(message, "remove the task and the options, such as retry; the steps that compute have them");
            }
        }
        StepKind::Train | StepKind::Predict | StepKind::Plugin | StepKind::Data => {}
    }
    if plugin.is_some() && step.kind != StepKind::Plugin {
        let message = format!("step {name:?} of kind {} names a plugin", step.kind.name());
        report(message, "remove the kind, or name a task, which has a plugin");
    }
    if pipeline.is_some() && step.kind != StepKind::Pipeline {
        let message = format!("step {name:?} of kind {} names a pipeline", step.kind.name());
        report(message, "remove the kind, or the pipeline");
    }
}

/// Reads a reference, a file of another server, `{ url = "https://...", sha256 = "..." }`, or a folder of the project,
/// `{ folder = "data" }`.
fn read_source(item: &ManifestValue<'_>) -> Option<StepSource> {
    if !item.is_table() {
        return item.string().map(StepSource::Reference);
    }
    let table = item.table()?;
    if let Some(folder) = table.optional("folder", |item| item.string()) {
        table.report_unknown_keys();
        return Some(StepSource::Folder(StepFolder { folder }));
    }
    let url = table.required("url", "url = \"https://example.com/digits.tar.gz\"", |item| item.string());
    let sha256 = table.required("sha256", "sha256 = \"...\", as `sha256sum FILE` prints it", |item| item.string());
    table.report_unknown_keys();
    // What is missing was reported.
    Some(StepSource::Fetch(StepFetch { url: url.unwrap_or_default(), sha256: sha256.unwrap_or_default() }))
}

/// Reads mounts: `[{ from = "mnist/1", to = "/data" }]`, or in short `["mnist/1:/data"]`.
fn read_mounts(item: &ManifestValue<'_>) -> Option<Vec<StepMount>> {
    item.list(|item| {
        if !item.is_table() {
            let text = item.text()?;
            let (from, to) = text.rsplit_once(":/").map_or((text, "data"), |(from, to)| (from, to));
            return Some(StepMount { from: from.to_owned(), to: format!("/{to}") });
        }
        let table = item.table()?;
        let from = table.required("from", "from = \"${steps.prepare.outputs.output}\"", |item| item.string());
        let to = table.optional("to", |item| item.string()).unwrap_or_else(|| "/data".to_owned());
        table.report_unknown_keys();
        Some(StepMount { from: from?, to })
    })
}

/// Checks all pipelines, and expands the nested ones.
pub(super) fn check_pipelines(
    report: &ParseReport<'_>,
    mut read: BTreeMap<String, PositionedPipeline>,
    tasks: &BTreeMap<String, TaskSection>,
    defaults: &RunOptions,
) -> BTreeMap<String, PipelineSection> {
    for step in read.values_mut().flat_map(|pipeline| &mut pipeline.section.steps) {
        let task = step.task.as_ref().and_then(|task| tasks.get(task));
        let declares = |run: &RunOptions| run.checkpoint.is_some();
        step.step.checkpointed =
            declares(&step.run) || task.is_some_and(|task| declares(&task.run)) || declares(defaults);
    }
    let names: Vec<String> = read.keys().cloned().collect();
    let index = |name: &String| names.binary_search(name).ok();
    let nested = |name: &String| -> Vec<usize> {
        read[name].section.steps.iter().filter_map(|step| index(step.pipeline.as_ref()?)).collect()
    };
    let edges: Vec<Vec<usize>> = names.iter().map(nested).collect();
    let order = match dependency_order(&edges) {
        Ok(order) => order,
        Err(cycle) => {
            report_nested_cycle(report, &read, &cycle.iter().map(|at| names[*at].as_str()).collect::<Vec<_>>());
            return read.into_iter().map(|(name, pipeline)| (name, pipeline.section)).collect();
        }
    };
    let preemptible = |section: &PipelineStepSection| {
        let task = section.task.as_ref().and_then(|task| tasks.get(task)).map(|task| &task.run);
        let given = section.run.preemptible.or(task.and_then(|run| run.preemptible)).or(defaults.preemptible);
        // A default of the project says nothing about steps that are no jobs.
        given.unwrap_or_default() && (section.step.kind.is_job() || section.run.preemptible.is_some())
    };
    let mut interfaces: HashMap<&str, NestedInterface> = HashMap::new();
    let mut sizes: Vec<(usize, usize)> = vec![(0, 0); names.len()];
    // Only these are expanded, so that no expansion is deep or large.
    let mut small = BTreeSet::new();
    for at in order {
        let pipeline = &read[&names[at]];
        let inner = || edges[at].iter().map(|inner| sizes[*inner]);
        let count = inner().fold(pipeline.section.steps.len(), |sum, (count, _)| sum.saturating_add(count));
        let depth = inner().map(|(_, depth)| depth).max().unwrap_or(0) + 1;
        sizes[at] = (count, depth);
        if count > PIPELINE_STEPS_MAX || depth > PIPELINE_DEPTH_MAX {
            let message = format!(
                "pipeline {}: {count} steps and {depth} levels with nested pipelines; at most {PIPELINE_STEPS_MAX} and \
                 {PIPELINE_DEPTH_MAX}",
                names[at]
            );
            report.add_error(&pipeline.span, message, "use for_each for equal steps, or several pipelines");
            continue;
        }
        small.insert(names[at].clone());
        let outlines = pipeline.section.steps.iter().map(|section| {
            let nested = section.pipeline.as_ref().and_then(|name| interfaces.get(name.as_str()));
            StepOutline { step: &section.step, preemptible: preemptible(section), nested }
        });
        let outlines: Vec<StepOutline<'_>> = outlines.collect();
        report_mistakes(report, pipeline, &outlines);
        interfaces.insert(&names[at], interface_of(&pipeline.section, &outlines));
    }
    expand_all(read, &small)
}

/// Returns the outputs and parameters that a pipeline has for others.
fn interface_of(section: &PipelineSection, outlines: &[StepOutline<'_>]) -> NestedInterface {
    let mut interface = NestedInterface { params: section.params.clone(), ..NestedInterface::default() };
    for outline in outlines {
        let name = &outline.step.name;
        let has_many = outline.step.for_each.is_some();
        if outline.step.kind == StepKind::Plugin {
            interface.undeclared.insert(name.clone(), has_many);
        }
        for (output, kind) in outline.step.kind.outputs() {
            interface.outputs.insert(format!("{name}.{output}"), (*kind, has_many));
        }
        for (output, value) in outline.nested.iter().flat_map(|nested| &nested.outputs) {
            interface.outputs.insert(format!("{name}.{output}"), *value);
        }
        for (step, has_many) in outline.nested.iter().flat_map(|nested| &nested.undeclared) {
            interface.undeclared.insert(format!("{name}.{step}"), *has_many);
        }
    }
    interface
}

fn report_mistakes(report: &ParseReport<'_>, pipeline: &PositionedPipeline, outlines: &[StepOutline<'_>]) {
    // A step that could not be read was reported; without it, references to it would be mistakes.
    if outlines.is_empty() && pipeline.keys.contains_key("step") {
        return;
    }
    for mistake in check_outlines(&pipeline.section.params, outlines).err().unwrap_or_default() {
        let (span, keys) = match mistake.step {
            Some(at) => (&pipeline.steps[at].0, &pipeline.steps[at].1),
            None => (&pipeline.span, &pipeline.keys),
        };
        let step = mistake.step.map_or_else(String::new, |at| format!("step {}: ", outlines[at].step.name));
        let span = keys.get(mistake.key).unwrap_or(span);
        report.add_error(span, format!("{step}{}", mistake.message), mistake.hint);
    }
}

fn report_nested_cycle(report: &ParseReport<'_>, read: &BTreeMap<String, PositionedPipeline>, cycle: &[&str]) {
    let (outer, inner) = (cycle[0], cycle.get(1).unwrap_or(&cycle[0]));
    let pipeline = &read[outer];
    let at = pipeline.section.steps.iter().position(|step| step.pipeline.as_deref() == Some(inner));
    let span = at.and_then(|at| pipeline.steps[at].1.get("pipeline")).unwrap_or(&pipeline.span);
    let names: Vec<&str> = cycle.iter().copied().chain([outer]).collect();
    let message = format!("pipeline {outer} contains itself: {}", names.join(" -> "));
    report.add_error(span, message, "remove one of these steps");
}

/// Fills in the expanded steps of the pipelines that are within the limits. The others are reported already.
fn expand_all(
    read: BTreeMap<String, PositionedPipeline>,
    small: &BTreeSet<String>,
) -> BTreeMap<String, PipelineSection> {
    let mut sections: BTreeMap<String, PipelineSection> =
        read.into_iter().map(|(name, pipeline)| (name, pipeline.section)).collect();
    for name in small {
        let expanded: Vec<ExpandedStep> = expand_steps(&sections, &sections[name]).unwrap_or_default();
        if let Some(section) = sections.get_mut(name) {
            section.expanded = expanded;
        }
    }
    sections
}
