//! The check of the inputs that the plugin of a step declares: every required input has a value, and each value has the
//! type of its input.

use super::inputs::{InputType, check_reference, parse_text};
use super::*;
use crate::parameter::{ParameterDeclaration, ParameterType};
use crate::reference::MountSource;

/// Checks the inputs of a step of kind `plugin`. The steps whose outputs are used are added to `used`.
pub(super) fn check_declared_inputs(
    checker: &mut PlanChecker<'_>,
    at: usize,
    declares: &StepDeclarations,
    used: &mut Vec<usize>,
) {
    let step = checker.outlines[at].step;
    for (name, value) in &step.args {
        if checker.is_full() {
            return;
        }
        match declares.inputs.get(name) {
            Some(declared) => check_input(checker, at, (name, declared), value, used),
            None => add_unknown_input(checker, at, declares, name),
        }
    }
    let empty = Map::new();
    let fixed = step.spec.get("parameters").and_then(Value::as_object).unwrap_or(&empty);
    for (name, value) in fixed.iter().filter(|(name, _)| !step.args.contains_key(*name)) {
        if checker.is_full() {
            return;
        }
        match declares.inputs.get(name) {
            Some(declared) => check_value_of_input(checker, at, (name, declared), value),
            None => add_unknown_input(checker, at, declares, name),
        }
    }
    let mounts = step.spec.get("data").and_then(Value::as_array).into_iter().flatten();
    let mounted: Vec<&str> = mounts.filter_map(|mount| mount.get("mount")?.as_str()?.strip_prefix('/')).collect();
    for (name, declared) in &declares.inputs {
        let is_given = step.args.contains_key(name) || fixed.contains_key(name) || mounted.contains(&name.as_str());
        if !is_given && declared.default.is_none() {
            let message = format!("input `{name}` is missing: expected {declared}");
            checker.add(at, "args", message, format!("add {name} = ... to args"));
        }
    }
}

fn add_unknown_input(checker: &mut PlanChecker<'_>, at: usize, declares: &StepDeclarations, name: &str) {
    let known: Vec<&str> = declares.inputs.keys().map(String::as_str).collect();
    let hint = match nearest_name(name, known.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None if known.is_empty() => "it has no inputs".to_owned(),
        None => format!("its inputs are {}", known.join(", ")),
    };
    checker.add(at, "args", format!("the plugin has no input {:?}", shorten(name)), hint);
}

/// Checks a value that can have placeholders.
fn check_input(
    checker: &mut PlanChecker<'_>,
    at: usize,
    (name, declared): (&str, &ParameterDeclaration),
    value: &Value,
    used: &mut Vec<usize>,
) {
    let Some(text) = value.as_str() else {
        return check_value_of_input(checker, at, (name, declared), value);
    };
    let Some(template) = parse_text(checker, at, "args", text) else { return };
    let port = InputType::Declared(name, declared);
    match template.only_reference() {
        Some(PlaceholderReference::Parameter(parameter)) if checker.params.contains_key(parameter) => {
            check_value_of_input(checker, at, (name, declared), &checker.params[parameter]);
        }
        Some(PlaceholderReference::Item) if checker.outlines[at].step.for_each.is_some() => {
            let items = PipelinePlan::items(checker.outlines[at].step, checker.params).unwrap_or_default();
            let mistakes = checker.mistakes.len();
            for item in items {
                check_value_of_input(checker, at, (name, declared), item);
                if checker.mistakes.len() > mistakes {
                    break;
                }
            }
        }
        Some(reference @ (PlaceholderReference::RunId | PlaceholderReference::RunName)) => {
            if declared.kind != ParameterType::Text {
                let message = format!(
                    "input `{name}`: expected {declared}, got {}, which is a text",
                    display_reference(reference)
                );
                checker.add(at, "args", message, "use a value of that type");
            }
        }
        Some(reference) => check_reference(checker, at, "args", (reference, true), port, used),
        None => check_mixed_text(checker, at, (name, declared), &template, used),
    }
}

/// Checks a text that is not one placeholder alone.
fn check_mixed_text(
    checker: &mut PlanChecker<'_>,
    at: usize,
    (name, declared): (&str, &ParameterDeclaration),
    template: &TextTemplate,
    used: &mut Vec<usize>,
) {
    let mut references = template.references().peekable();
    if references.peek().is_none() {
        let text = template.render(&NoValues).unwrap_or_default();
        return check_value_of_input(checker, at, (name, declared), &text);
    }
    let takes = match declared.kind {
        ParameterType::Text => InputType::Text,
        // A part of a reference, such as the version, can be a parameter; an output is a whole one.
        kind if kind.is_reference() => InputType::Declared(name, declared),
        _ => {
            let message = format!("input `{name}`: expected {declared}, got a text with placeholders");
            return checker.add(at, "args", message, "use one placeholder alone, whose value keeps its type");
        }
    };
    for reference in references {
        check_reference(checker, at, "args", (reference, false), takes, used);
    }
}

/// The values of a text without placeholders.
struct NoValues;

impl TemplateValues for NoValues {
    fn value_of(&self, _: &PlaceholderReference) -> Option<Value> {
        None
    }
}

/// Checks a value without placeholders.
fn check_value_of_input(
    checker: &mut PlanChecker<'_>,
    at: usize,
    (name, declared): (&str, &ParameterDeclaration),
    value: &Value,
) {
    if declared.accepts(value) && is_reference_of(declared.kind, value) {
        return;
    }
    let message = format!("input `{name}`: expected {declared}, got {}", shorten(&value.to_string()));
    let hint = match declared.kind.is_reference() {
        true => "or use an output: ${steps.STEP.outputs.OUTPUT}",
        false => "`saggar plugins show PLUGIN` lists the inputs with their types",
    };
    checker.add(at, "args", message, hint);
}

/// Returns whether a value is written as a reference of the type, or the type is not that of a reference.
fn is_reference_of(kind: ParameterType, value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    let mounted = || parse_mount_at(text, "/data").map(|mount| mount.source);
    match kind {
        ParameterType::Integer | ParameterType::Number | ParameterType::Text | ParameterType::Boolean => true,
        ParameterType::File => matches!(mounted(), Ok(MountSource::Job { path: Some(_), .. })),
        ParameterType::Dataset => mounted().is_ok(),
        ParameterType::Model => {
            let model = format!("model:{}", text.strip_prefix("model:").unwrap_or(text));
            WeightsReference::parse(&model).is_ok()
        }
        ParameterType::Checkpoint => matches!(WeightsReference::parse(text), Ok(WeightsReference::Job { .. })),
    }
}
