//! `[pipeline.NAME]`: steps in dependency order. This release reads and checks them: names, cycles, placeholders, and
//! whether preemptible steps can be resumed or repeated. It does not run them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::limits::{RETRY_MAX, STEPS_MAX};
use crate::manifest_table::ManifestTable;
use crate::manifest_value::ManifestValue;
use crate::name::nearest_name;
use crate::parse_report::{SourceSpan, TableKind};

use super::task::{TaskArguments, TaskSection};

/// A pipeline of steps.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineSection {
    /// Parameters of a run, with their defaults.
    pub params: BTreeMap<String, Value>,
    /// Steps in topological order.
    pub steps: Vec<PipelineStep>,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineStep {
    /// Its name, unique in the pipeline.
    pub name: String,
    /// The step's action.
    pub action: StepAction,
    /// The steps that must succeed before it.
    pub after: Vec<String>,
    /// Arguments in addition to the task's; can contain placeholders.
    pub args: TaskArguments,
    /// A placeholder whose value decides whether the step is skipped.
    pub when: Option<String>,
    /// Whether running it twice has the same result as once.
    pub idempotent: bool,
    /// Whether it resumes after an interruption.
    pub checkpoint: bool,
    /// Whether it can be interrupted for another job.
    pub preemptible: bool,
    /// Number of extra attempts.
    pub retry: Option<u32>,
}

/// The action of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepAction {
    /// Runs a task of the file.
    Task(String),
    /// Publishes weights as a version of a model.
    Deploy {
        /// Name of the model.
        model: String,
        /// Reference to the weights; can be a placeholder.
        from: String,
    },
}

/// A step, with the texts in it that can contain placeholders or names of other steps.
struct SpannedStep {
    step: PipelineStep,
    span: SourceSpan,
    after: Vec<(String, SourceSpan)>,
    texts: Vec<(String, SourceSpan)>,
}

pub(super) fn read_pipeline(
    table: &ManifestTable<'_>,
    tasks: &BTreeMap<String, TaskSection>,
) -> Option<PipelineSection> {
    let message = format!("[{}] is checked only: this release does not run pipelines", table.path());
    table.report().add_remark(table.span(), message);
    let params: BTreeMap<String, Value> =
        table.optional("params", |item| Some(item.table()?.to_json_map())).unwrap_or_default();
    let items = table.required("step", "[[pipeline.NAME.step]] with name and task", |item| item.items());
    table.report_unknown_keys();
    let items = items?;
    if items.is_empty() || items.len() > STEPS_MAX {
        table.report().add_error(
            table.span(),
            format!("[{}] has {} steps", table.path(), items.len()),
            format!("a pipeline has 1 to {STEPS_MAX}, each a [[{}.step]]", table.path()),
        );
        return None;
    }
    let steps: Vec<SpannedStep> = items.iter().filter_map(|item| read_step(item, tasks)).collect();
    // If a step was left out because of a mistake, messages about the other steps would be misleading.
    if steps.len() < items.len() {
        return None;
    }
    check_names(table, &steps);
    check_placeholders(table, &steps, &params);
    let order = topological_order(table, &steps)?;
    let mut steps: Vec<Option<PipelineStep>> = steps.into_iter().map(|placed| Some(placed.step)).collect();
    Some(PipelineSection { params, steps: order.into_iter().filter_map(|at| steps[at].take()).collect() })
}

fn read_step(item: &ManifestValue<'_>, tasks: &BTreeMap<String, TaskSection>) -> Option<SpannedStep> {
    let table = item.table()?;
    let mut texts = Vec::new();
    let name = table.required("name", "name = \"train\"", |item| item.name());
    let action = read_action(&table, &mut texts);
    let mut after = Vec::new();
    if let Some(items) = table.optional("after", |item| item.items()) {
        after.extend(items.iter().filter_map(|item| Some((item.name()?, item.span.clone()))));
    }
    let args: TaskArguments = table
        .optional("args", |item| {
            let table = item.table()?;
            texts.extend(
                table.entries().into_iter().filter_map(|(_, item)| Some((item.text_with_placeholders()?, item.span))),
            );
            Some(table.to_json_map().into_iter().collect())
        })
        .unwrap_or_default();
    let when = table.optional("when", |item| {
        let text = item.string()?;
        texts.push((text.clone(), item.span.clone()));
        Some(text)
    });
    let flag = |key| table.optional(key, |item| item.boolean());
    let (idempotent, checkpoint) = (flag("idempotent").unwrap_or(false), flag("checkpoint").unwrap_or(false));
    let preemptible = table.get("preemptible");
    let wanted = preemptible.as_ref().and_then(ManifestValue::boolean);
    let retry = table.optional("retry", |item| item.bounded_count(0, RETRY_MAX));
    table.report_unknown_keys();
    let action = action?;
    let task = match &action {
        StepAction::Task(task) => tasks.get(task),
        StepAction::Deploy { .. } => None,
    };
    let inherited = || task.and_then(|task| task.run.preemptible).unwrap_or(false);
    let saves = checkpoint || task.is_some_and(|task| task.run.checkpoint.is_some());
    let interrupted = wanted.unwrap_or_else(inherited);
    if interrupted && !idempotent && !saves {
        let place = preemptible.map_or_else(|| item.span.clone(), |item| item.span);
        let message = format!("{}: preemptible, but it can be neither resumed nor repeated", table.path());
        let hint = "set idempotent = true or checkpoint = true, or give its task a checkpoint";
        table.report().add_error(&place, message, hint);
    }
    let names = after.iter().map(|(name, _)| name.clone()).collect();
    let step = PipelineStep {
        name: name?,
        action,
        after: names,
        args,
        when,
        idempotent,
        checkpoint: saves,
        preemptible: interrupted,
        retry,
    };
    Some(SpannedStep { step, span: item.span.clone(), after, texts })
}

fn read_action(table: &ManifestTable<'_>, texts: &mut Vec<(String, SourceSpan)>) -> Option<StepAction> {
    let deploy = table.optional("kind", |item| item.choice(&[("task", false), ("deploy", true)])).unwrap_or(false);
    if !deploy {
        let task = table
            .required("task", "task = \"train\", or kind = \"deploy\"", |item| item.table_reference(TableKind::Task));
        for key in ["model", "from"] {
            if let Some(item) = table.get(key) {
                item.report_error::<()>(
                    "only a step of kind = \"deploy\" has it",
                    "say kind = \"deploy\", or leave it out",
                );
            }
        }
        return task.map(StepAction::Task);
    }
    if let Some(item) = table.get("task") {
        item.report_error::<()>("a step of kind = \"deploy\" runs no task", "leave task out, or kind");
    }
    let model = table.required("model", "model = \"NAME\"", |item| item.name());
    let from = table.required("from", "from = \"${steps.train.outputs.model}\"", |item| {
        let text = item.string()?;
        texts.push((text.clone(), item.span.clone()));
        Some(text)
    });
    Some(StepAction::Deploy { model: model?, from: from? })
}

/// Checks that every name is unique and that every `after` names a step of this pipeline.
fn check_names(table: &ManifestTable<'_>, steps: &[SpannedStep]) {
    let mut seen = BTreeSet::new();
    for placed in steps {
        if !seen.insert(placed.step.name.as_str()) {
            let message = format!("two steps of [{}] are called {:?}", table.path(), placed.step.name);
            table.report().add_error(&placed.span, message, "give each its own name");
        }
    }
    for (name, span) in steps.iter().flat_map(|placed| &placed.after) {
        report_unknown_step(table, &seen, name, span);
    }
}

fn report_unknown_step(table: &ManifestTable<'_>, known: &BTreeSet<&str>, name: &str, span: &SourceSpan) {
    if known.contains(name) {
        return;
    }
    let list = || format!("its steps are: {}", known.iter().copied().collect::<Vec<_>>().join(", "));
    let hint = nearest_name(name, known.iter().copied()).map_or_else(list, |near| format!("did you mean {near:?}?"));
    table.report().add_error(span, format!("[{}] has no step {name:?}", table.path()), hint);
}

/// Checks placeholders: `${params.NAME}` must be a parameter, `${steps.NAME.outputs.WORD}` a step; no others exist.
fn check_placeholders(table: &ManifestTable<'_>, steps: &[SpannedStep], params: &BTreeMap<String, Value>) {
    let names: BTreeSet<&str> = steps.iter().map(|placed| placed.step.name.as_str()).collect();
    for (text, span) in steps.iter().flat_map(|placed| &placed.texts) {
        for piece in text.split("${").skip(1) {
            let words: Vec<&str> = piece.split('}').next().unwrap_or_default().split('.').collect();
            let report = table.report();
            match words.as_slice() {
                _ if !piece.contains('}') => {
                    report.add_error(span, format!("${{{piece} is not closed"), "write ${params.NAME}");
                }
                ["params", name] if params.contains_key(*name) => {}
                ["params", name] => {
                    let near = nearest_name(name, params.keys().map(String::as_str));
                    let add = || format!("add {name} to params");
                    let hint = near.map_or_else(add, |near| format!("did you mean {near:?}?"));
                    report.add_error(span, format!("[{}] has no parameter {name:?}", table.path()), hint);
                }
                ["steps", name, "outputs", _] => report_unknown_step(table, &names, name, span),
                other => {
                    let message = format!("unknown placeholder ${{{}}}", other.join("."));
                    report.add_error(span, message, "write ${params.NAME} or ${steps.NAME.outputs.WORD}");
                }
            }
        }
    }
}

/// Returns the steps in topological order; independent steps keep the order of the file.
fn topological_order(table: &ManifestTable<'_>, steps: &[SpannedStep]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = Vec::new();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    loop {
        let ready = |placed: &SpannedStep| placed.after.iter().all(|(name, _)| done.contains(name.as_str()));
        let next = steps.iter().enumerate().find(|(at, placed)| !order.contains(at) && ready(placed));
        let Some((at, placed)) = next else { break };
        order.push(at);
        done.insert(&placed.step.name);
    }
    if order.len() == steps.len() {
        return Some(order);
    }
    let names: BTreeSet<&str> = steps.iter().map(|placed| placed.step.name.as_str()).collect();
    let left: Vec<&SpannedStep> =
        steps.iter().enumerate().filter(|(at, _)| !order.contains(at)).map(|(_, p)| p).collect();
    if let Some(circle) = find_cycle(&left, &names) {
        let (span, words) = circle;
        let message = format!("[{}] has a cycle: {words}", table.path());
        table.report().add_error(&span, message, "remove one of these `after`");
    }
    None
}

/// Returns one cycle among the steps that never become ready, with the position of an `after` in it. Returns `None` if
/// they only wait for a missing step.
fn find_cycle(left: &[&SpannedStep], names: &BTreeSet<&str>) -> Option<(SourceSpan, String)> {
    let find = |name: &str| left.iter().find(|placed| placed.step.name == name);
    let mut way: Vec<&str> = vec![&left.first()?.step.name];
    loop {
        let here = find(way.last()?)?;
        let needs = |(name, _): &&(String, SourceSpan)| names.contains(name.as_str()) && find(name).is_some();
        let (next, span) = here.after.iter().find(needs)?;
        if let Some(begin) = way.iter().position(|name| name == next) {
            let mut words = way.split_off(begin);
            words.push(next);
            return Some((span.clone(), words.join(" after ")));
        }
        way.push(next);
    }
}
