//! Nested pipelines replaced by their steps, so that a plan is one graph.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{PipelineSection, PipelineStepSection};
use crate::limits::PIPELINE_STEPS_MAX;
use crate::pipeline::{
    ConditionOperand, PipelineStep, PlaceholderReference, StepCondition, StepFetch, StepKind, StepSource, TemplatePart,
    TextTemplate, display_reference,
};

/// A step of a pipeline without nested ones, and the section that it was made from.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpandedStep {
    /// The step, with its name and references in the whole pipeline.
    pub step: PipelineStep,
    /// The section, whose task and run options are unchanged.
    pub section: PipelineStepSection,
}

/// What surrounds the steps of a nested pipeline.
#[derive(Clone, Default)]
struct NestingScope {
    /// `STEP/` of the step that is the pipeline, or nothing.
    prefix: String,
    /// The arguments that replace the pipeline's parameters; `None` for the outermost pipeline.
    params: Option<Map<String, Value>>,
    /// What every step must wait for.
    after: Vec<String>,
    /// The conditions of every step.
    when: Vec<Value>,
}

/// Returns the steps of a pipeline, with those of nested pipelines. The pipelines must not contain themselves. `None`
/// if there are more than [`PIPELINE_STEPS_MAX`].
pub(crate) fn expand_steps(
    pipelines: &BTreeMap<String, PipelineSection>,
    pipeline: &PipelineSection,
) -> Option<Vec<ExpandedStep>> {
    let mut expanded = Vec::new();
    expand_into(pipelines, pipeline, &NestingScope::default(), &mut expanded).then_some(expanded)
}

/// Appends the steps. Returns `false` if there are too many.
fn expand_into(
    pipelines: &BTreeMap<String, PipelineSection>,
    pipeline: &PipelineSection,
    around: &NestingScope,
    expanded: &mut Vec<ExpandedStep>,
) -> bool {
    let nested_of = |name: &str| -> Option<&PipelineSection> {
        let section = pipeline.steps.iter().find(|section| section.step.name == name)?;
        pipelines.get(section.pipeline.as_deref()?)
    };
    for section in &pipeline.steps {
        let step = resolve_step(&section.step, around, &|name| all_steps(pipelines, name, &nested_of));
        match section.pipeline.as_deref().and_then(|name| pipelines.get(name)) {
            Some(inner) if step.kind == StepKind::Pipeline => {
                let mut params = inner.params.clone();
                params.extend(step.args);
                let inside = NestingScope {
                    prefix: format!("{}/", step.name),
                    params: Some(params),
                    after: step.after,
                    when: step.when,
                };
                if !expand_into(pipelines, inner, &inside, expanded) {
                    return false;
                }
            }
            _ => {
                if expanded.len() >= PIPELINE_STEPS_MAX {
                    return false;
                }
                expanded.push(ExpandedStep { step, section: section.clone() });
            }
        }
    }
    true
}

/// Returns the names of a step's own steps, if it is a pipeline, at any depth, else its name.
fn all_steps<'a>(
    pipelines: &'a BTreeMap<String, PipelineSection>,
    name: &str,
    nested_of: &dyn Fn(&str) -> Option<&'a PipelineSection>,
) -> Vec<String> {
    let Some(nested) = nested_of(name) else { return vec![name.to_owned()] };
    let inner_nested = |inner: &str| -> Option<&'a PipelineSection> {
        let section = nested.steps.iter().find(|section| section.step.name == inner)?;
        pipelines.get(section.pipeline.as_deref()?)
    };
    let inner = nested.steps.iter().flat_map(|section| all_steps(pipelines, &section.step.name, &inner_nested));
    inner.map(|inner| format!("{name}/{inner}")).collect()
}

/// Returns a step as it is in the whole pipeline.
fn resolve_step(step: &PipelineStep, around: &NestingScope, all_steps: &dyn Fn(&str) -> Vec<String>) -> PipelineStep {
    let text = |text: &String| match resolve_value(&Value::String(text.clone()), around) {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let option = |value: &Option<String>| value.as_ref().map(text);
    let mut resolved = step.clone();
    resolved.name = format!("{}{}", around.prefix, step.name);
    let own = step.after.iter().flat_map(|name| all_steps(name)).map(|name| format!("{}{name}", around.prefix));
    resolved.after = around.after.iter().cloned().chain(own).collect();
    resolved.when =
        around.when.iter().cloned().chain(step.when.iter().map(|it| resolve_condition(it, around))).collect();
    resolved.for_each = step.for_each.as_ref().map(|items| resolve_value(items, around));
    resolved.args = step.args.iter().map(|(name, value)| (name.clone(), resolve_value(value, around))).collect();
    resolved.data.iter_mut().for_each(|mount| mount.from = text(&mount.from));
    resolved.init_from = option(&step.init_from);
    resolved.model = option(&step.model);
    resolved.from = step.from.as_ref().map(|from| match from {
        StepSource::Reference(reference) => StepSource::Reference(text(reference)),
        StepSource::Fetch(StepFetch { url, sha256 }) => {
            StepSource::Fetch(StepFetch { url: text(url), sha256: text(sha256) })
        }
        StepSource::Folder(folder) => StepSource::Folder(folder.clone()),
    });
    resolved.dataset = option(&step.dataset);
    resolved.alias = option(&step.alias);
    resolved.split = option(&step.split);
    resolved.out = option(&step.out);
    resolved.message = option(&step.message);
    resolved
}

/// Replaces the parameters of a condition by arguments. A negated constant is computed.
fn resolve_condition(condition: &Value, around: &NestingScope) -> Value {
    // The check has reported conditions that are not valid.
    let Ok(parsed) = StepCondition::parse(condition) else { return condition.clone() };
    let resolved = parsed.map_operands(|operand| match operand {
        ConditionOperand::Literal(value) => ConditionOperand::Literal(value),
        ConditionOperand::Reference(reference) => {
            match resolve_value(&display_reference(&reference).into(), around) {
                // An argument can be a placeholder of the outer pipeline, or a text.
                Value::String(text) => {
                    match TextTemplate::parse(&text).ok().as_ref().and_then(TextTemplate::only_reference) {
                        Some(outer) => ConditionOperand::Reference(outer.clone()),
                        None => ConditionOperand::Literal(text.into()),
                    }
                }
                value => ConditionOperand::Literal(value),
            }
        }
    });
    resolved.to_value()
}

/// Replaces parameters by arguments, and names of steps by those in the whole pipeline.
fn resolve_value(value: &Value, around: &NestingScope) -> Value {
    match value {
        Value::String(text) => resolve_text(text, around),
        Value::Array(items) => Value::Array(items.iter().map(|item| resolve_value(item, around)).collect()),
        Value::Object(entries) => {
            Value::Object(entries.iter().map(|(key, value)| (key.clone(), resolve_value(value, around))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn resolve_text(text: &str, around: &NestingScope) -> Value {
    // The check has reported texts that are not valid.
    let Ok(template) = TextTemplate::parse(text) else { return Value::String(text.to_owned()) };
    let argument = |reference: &PlaceholderReference| match (reference, &around.params) {
        (PlaceholderReference::Parameter(name), Some(params)) => params.get(name).cloned(),
        _ => None,
    };
    if let Some(argument) = template.only_reference().and_then(argument) {
        return argument;
    }
    let mut resolved = String::new();
    for part in &template.parts {
        match part {
            TemplatePart::Text(plain) => resolved.push_str(&plain.replace("${", "$${")),
            TemplatePart::Placeholder(reference) => match (argument(reference), reference) {
                (Some(Value::String(text)), _) => resolved.push_str(&text),
                (Some(other), _) => resolved.push_str(&other.to_string()),
                (None, PlaceholderReference::Output { step, output }) => {
                    resolved.push_str(&display_reference(&outer_output(around, step, output)));
                }
                (None, other) => resolved.push_str(&display_reference(other)),
            },
        }
    }
    Value::String(resolved)
}

/// Returns an output's reference in the whole pipeline: `train.model` of the pipeline `sub` is `model` of `sub/train`.
fn outer_output(around: &NestingScope, step: &str, output: &str) -> PlaceholderReference {
    let mut step = format!("{}{step}", around.prefix);
    let mut output = output;
    while let Some((inner, rest)) = output.split_once('.') {
        step = format!("{step}/{inner}");
        output = rest;
    }
    PlaceholderReference::Output { step, output: output.to_owned() }
}
