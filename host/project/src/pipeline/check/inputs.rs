//! The check of placeholders, and of the types of inputs.

use super::*;

use crate::parameter::ParameterDeclaration;
use crate::reference::MountSource;

/// What an input takes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum InputType<'a> {
    /// A parameter of a training: any value, also a list.
    Argument,
    /// An input that the plugin of a step declares, by its name.
    Declared(&'a str, &'a ParameterDeclaration),
    /// A text, number or boolean.
    Text,
    /// Weights to start from.
    Weights,
    /// Data to mount.
    Data,
    /// A version of a model.
    Version,
    /// A version of a model, or a checkpoint to publish.
    Deployable,
    /// Files of a job, of which a dataset is made.
    JobFiles,
}

impl InputType<'_> {
    fn accepts(self, output: OutputType) -> bool {
        use OutputType::{Checkpoint, Dataset, DatasetFiles, File, Files, Model};
        match self {
            _ if output == OutputType::Undeclared => true,
            InputType::Argument | InputType::Text => true,
            InputType::Declared(_, declared) => output.connects_to(declared.kind),
            InputType::Weights | InputType::Deployable => matches!(output, Model | Checkpoint),
            InputType::Data => matches!(output, Files | DatasetFiles | Dataset),
            InputType::Version => output == Model,
            InputType::JobFiles => matches!(output, Files | DatasetFiles | File),
        }
    }

    fn name(self) -> &'static str {
        match self {
            InputType::Argument | InputType::Text => "a text",
            InputType::Weights | InputType::Deployable => "a model or a checkpoint",
            InputType::Data => "a dataset or an output",
            InputType::Version => "a model",
            InputType::JobFiles => "an output or a file",
            InputType::Declared(..) => "a value of its type",
        }
    }

    /// Returns the message about a value of the wrong type.
    fn refusal(self, key: &str, value: &str, kind: OutputType) -> String {
        match self {
            InputType::Declared(name, declared) => {
                format!("input `{name}`: expected {declared}, got {value}, which is {}", kind.name())
            }
            _ => format!("{value} is {}, and {key} takes {}", kind.name(), self.name()),
        }
    }
}

/// Checks every text of a step that can have placeholders. Returns the steps whose outputs are used.
pub(super) fn check_inputs(checker: &mut PlanChecker<'_>, at: usize) -> Vec<usize> {
    let StepOutline { step, nested, .. } = checker.outlines[at];
    let mut used = Vec::new();
    if let (StepKind::Plugin, Some(declares)) = (step.kind, &step.declares) {
        check_declared_inputs(checker, at, declares, &mut used);
    }
    for (name, value) in step.args.iter().filter(|_| step.kind != StepKind::Plugin || step.declares.is_none()) {
        if checker.is_full() {
            break;
        }
        if let Some(nested) = nested {
            check_nested_argument(checker, at, nested, name, value);
        }
        check_value(checker, at, value, &mut used);
    }
    check_reserved_arguments(checker, at);
    let source = match step.kind {
        StepKind::Predict => InputType::Version,
        StepKind::Data => InputType::JobFiles,
        _ => InputType::Deployable,
    };
    let texts = [
        ("init_from", step.init_from.as_deref(), InputType::Weights),
        ("from", step.from_reference(), source),
        ("dataset", step.dataset.as_deref(), InputType::Text),
        ("model", step.model.as_deref(), InputType::Text),
        ("alias", step.alias.as_deref(), InputType::Text),
        ("split", step.split.as_deref(), InputType::Text),
        ("out", step.out.as_deref(), InputType::Text),
        ("message", step.message.as_deref(), InputType::Text),
    ];
    for (key, text, takes) in texts {
        if let Some(text) = text {
            check_text(checker, at, key, text, takes, &mut used);
        }
    }
    for mount in &step.data {
        check_text(checker, at, "data", &mount.from, InputType::Data, &mut used);
        if parse_mount_at("x", &mount.to).is_err() {
            let message = format!("invalid mount point {:?}", shorten(&mount.to));
            checker.add(at, "data", message, "write such as { from = \"mnist/1\", to = \"/data\" }");
        }
    }
    if let Some(StepSource::Fetch(fetch)) = &step.from {
        check_text(checker, at, "from", &fetch.url, InputType::Argument, &mut used);
        check_text(checker, at, "from", &fetch.sha256, InputType::Argument, &mut used);
    }
    check_checkpoint_deployment(checker, at);
    used
}

/// Checks the texts in a plugin's parameter, at any depth.
fn check_value(checker: &mut PlanChecker<'_>, at: usize, value: &Value, used: &mut Vec<usize>) {
    // Depth is bounded by the parsers of TOML and JSON.
    match value {
        Value::String(text) => check_text(checker, at, "args", text, InputType::Argument, used),
        Value::Array(items) => items.iter().for_each(|item| check_value(checker, at, item, used)),
        Value::Object(entries) => entries.values().for_each(|item| check_value(checker, at, item, used)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the parts of a text, or `None` if it is not valid, which is reported.
pub(super) fn parse_text(
    checker: &mut PlanChecker<'_>,
    at: usize,
    key: &'static str,
    text: &str,
) -> Option<TextTemplate> {
    if text.len() > PIPELINE_TEXT_BYTES_MAX {
        let message = format!("{} bytes of text: at most {PIPELINE_TEXT_BYTES_MAX}", text.len());
        checker.add(at, key, message, "pass the name of a dataset instead of data");
        return None;
    }
    TextTemplate::parse(text)
        .map_err(|error| {
            let hint = "write $${ for the characters ${";
            checker.add(at, key, format!("{:?}: {error}", shorten(text)), hint);
        })
        .ok()
}

fn check_text(
    checker: &mut PlanChecker<'_>,
    at: usize,
    key: &'static str,
    text: &str,
    takes: InputType<'_>,
    used: &mut Vec<usize>,
) {
    if checker.is_full() {
        return;
    }
    let Some(template) = parse_text(checker, at, key, text) else { return };
    if template.parts.is_empty() && takes != InputType::Argument {
        return checker.add(at, key, "expected a text that is not empty", format!("remove {key}, or give it a value"));
    }
    let is_alone = template.only_reference().is_some();
    for reference in template.references() {
        if checker.is_full() {
            return;
        }
        check_reference(checker, at, key, (reference, is_alone), takes, used);
    }
    if template.references().next().is_none() {
        check_literal(checker, at, key, text, takes);
    }
}

/// Checks a text without placeholders.
fn check_literal(checker: &mut PlanChecker<'_>, at: usize, key: &'static str, text: &str, takes: InputType<'_>) {
    let weights = || WeightsReference::parse(text);
    let (is_valid, example) = match takes {
        InputType::Argument | InputType::Text | InputType::Declared(..) => return,
        InputType::Weights => (weights().is_ok(), "job:NAME-N, job:NAME-N/checkpoint@STEP or model:NAME@VERSION"),
        InputType::Data => (parse_mount_at(text, "/data").is_ok(), "a dataset such as mnist/1, or job:NAME-N/output"),
        InputType::Version => {
            (matches!(weights(), Ok(WeightsReference::Model { .. })), "a version such as model:NAME@VERSION")
        }
        InputType::Deployable => (weights().is_ok(), "model:NAME@VERSION or job:NAME-N/checkpoint@STEP"),
        InputType::JobFiles => {
            let source = parse_mount_at(text, "/data").map(|mount| mount.source);
            let is_valid = match source {
                Ok(MountSource::Job { .. }) => true,
                // Without a version, it is reported with the name of the step's dataset.
                Ok(MountSource::Dataset { .. }) => true,
                Err(_) => false,
            };
            (is_valid, "the output of a job, such as job:NAME-N/output/PATH, or a version such as digits/3")
        }
    };
    if !is_valid {
        let message = format!("expected {example}, got {:?}", shorten(text));
        checker.add(at, key, message, "or use an output: ${steps.STEP.outputs.OUTPUT}");
    }
}

pub(super) fn check_reference(
    checker: &mut PlanChecker<'_>,
    at: usize,
    key: &'static str,
    (reference, is_alone): (&PlaceholderReference, bool),
    takes: InputType<'_>,
    used: &mut Vec<usize>,
) {
    match reference {
        PlaceholderReference::RunId | PlaceholderReference::RunName => {}
        PlaceholderReference::Item => {
            if checker.outlines[at].step.for_each.is_none() {
                let message = "${item} has a value only in a step with for_each";
                checker.add(at, key, message, "add for_each = [...] to the step, or use a parameter");
            }
        }
        PlaceholderReference::Parameter(name) => match checker.params.get(name) {
            None => checker.add_unknown_parameter(at, key, name),
            Some(Value::Array(_)) if !(is_alone && takes == InputType::Argument) => {
                let message = format!("parameter {name} is a list, and {key} takes one value");
                checker.add(at, key, message, "use for_each and ${item}, or pass the list as a whole argument");
            }
            Some(_) => {}
        },
        PlaceholderReference::Output { step, output } => {
            // An unknown output of a known step is an edge too, so that a cycle is found.
            used.extend(checker.by_name.get(step.as_str()));
            let Some((_, kind, has_many)) = checker.find_output(at, key, step, output) else { return };
            if !takes.accepts(kind) {
                let message = takes.refusal(key, &display_reference(reference), kind);
                checker.add(at, key, message, "connect an output of that type");
            } else if has_many && !(is_alone && takes == InputType::Argument) {
                let message = format!("step {step} has an output for each item, and {key} takes one value");
                checker.add(at, key, message, "pass the list as a whole argument of a plugin");
            } else if !is_alone && takes != InputType::Argument && takes != InputType::Text {
                let message = format!("{} must be the whole value of {key}", display_reference(reference));
                checker.add(at, key, message, "remove the other characters");
            }
        }
    }
}

/// Checks that inputs with types are not passed as parameters of the plugin, where nothing would read them.
fn check_reserved_arguments(checker: &mut PlanChecker<'_>, at: usize) {
    let StepOutline { step, nested, .. } = checker.outlines[at];
    for (name, value) in step.args.iter().filter(|_| nested.is_none()) {
        let is_output = |text: &str| {
            TextTemplate::parse(text)
                .is_ok_and(|template| template.references().any(|it| matches!(it, PlaceholderReference::Output { .. })))
        };
        if matches!(name.as_str(), "init_from" | "data") && value.as_str().is_some_and(is_output) {
            let message = format!("{name} is a key of the step, not a parameter of the plugin");
            checker.add(at, "args", message, format!("move it out of args: {name} = ..."));
        }
    }
}

/// Checks a parameter that is passed to a nested pipeline.
fn check_nested_argument(
    checker: &mut PlanChecker<'_>,
    at: usize,
    nested: &NestedInterface,
    name: &str,
    value: &Value,
) {
    let Some(default) = nested.params.get(name) else {
        let known: Vec<&str> = nested.params.keys().map(String::as_str).collect();
        let hint = match known.is_empty() {
            true => "the nested pipeline has no parameters".to_owned(),
            false => format!("its parameters are {}", known.join(", ")),
        };
        return checker.add(at, "args", format!("the nested pipeline has no parameter {:?}", shorten(name)), hint);
    };
    let given = match value.as_str().map(TextTemplate::parse) {
        Some(Ok(template)) => match template.only_reference() {
            Some(PlaceholderReference::Parameter(name)) => checker.params.get(name).and_then(parameter_type),
            Some(PlaceholderReference::Output { .. }) => Some("a text"),
            _ => parameter_type(value),
        },
        _ => parameter_type(value),
    };
    let expected = parameter_type(default);
    if given != expected && given.is_some() {
        let (given, expected) = (given.unwrap_or_default(), expected.unwrap_or_default());
        let message = format!("parameter {name} of the nested pipeline is {expected}, not {given}");
        checker.add(at, "args", message, format!("its default is {default}"));
    }
    let uses_output = |text: &str| {
        TextTemplate::parse(text)
            .is_ok_and(|template| template.references().any(|it| matches!(it, PlaceholderReference::Output { .. })))
    };
    if value.as_str().is_some_and(uses_output) && nested.params[name].is_boolean() {
        checker.add(at, "args", "conditions cannot depend on outputs", "use a parameter");
    }
}

/// A checkpoint does not name a model.
fn check_checkpoint_deployment(checker: &mut PlanChecker<'_>, at: usize) {
    let step = checker.outlines[at].step;
    if step.kind != StepKind::Deploy || step.model.is_some() {
        return;
    }
    let Some(Ok(template)) = step.from_reference().map(TextTemplate::parse) else { return };
    let is_checkpoint = match template.only_reference() {
        Some(PlaceholderReference::Output { step, output }) => {
            let source = checker.by_name.get(step.as_str()).map(|at| checker.outlines[*at]);
            source.and_then(|outline| outline.output(output)).is_some_and(|(kind, _)| kind == OutputType::Checkpoint)
        }
        Some(_) => false,
        None => step.from_reference().is_some_and(|from| from.starts_with("job:")),
    };
    if is_checkpoint {
        checker.add(at, "from", "a checkpoint names no model", "add model = \"NAME\"");
    }
}
