//! The check of a pipeline before anything runs. It is the same for a project file, whose steps can be other pipelines,
//! and for a plan that a server gets.

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path};

use serde_json::{Map, Value};

use super::parameters::{is_within_limits, parameter_type};
use super::template::{PlaceholderReference, TemplateValues, TextTemplate, display_reference};
use super::{
    OutputType, PipelinePlan, PipelineStep, StepDeclarations, StepKind, StepSource, dependency_order, parameter_name,
};
use crate::limits::{
    DIAGNOSTICS_MAX, PIPELINE_INSTANCES_MAX, PIPELINE_ITEMS_MAX, PIPELINE_PARAMS_MAX, PIPELINE_STEPS_MAX,
    PIPELINE_TEXT_BYTES_MAX,
};
use crate::name::{is_valid_name, nearest_name};
use crate::reference::{MountSource, WeightsReference, parse_mount_at};

mod conditions;
mod inputs;
mod ports;

use conditions::check_conditions;
use inputs::check_inputs;
use ports::check_declared_inputs;

/// A mistake in a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanMistake {
    /// The position of the step in the list, or `None` for the pipeline itself.
    pub step: Option<usize>,
    /// The key of the step or the pipeline.
    pub key: &'static str,
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    pub hint: String,
}

/// A step that another one depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepDependency {
    /// The position of the step in the list.
    pub step: usize,
    /// Whether an output of it is used.
    pub uses_output: bool,
}

/// The steps that each step depends on, in the order of the steps.
pub type StepDependencies = Vec<Vec<StepDependency>>;

/// A step as the check sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepOutline<'a> {
    pub(crate) step: &'a PipelineStep,
    /// Whether its job can be preempted.
    pub(crate) preemptible: bool,
    /// The pipeline that the step is, if it is one.
    pub(crate) nested: Option<&'a NestedInterface>,
}

/// What a step that is a pipeline takes and gives.
#[derive(Clone, Debug, Default)]
pub(crate) struct NestedInterface {
    pub(crate) params: Map<String, Value>,
    /// The outputs as `STEP.OUTPUT`, each with its type and whether the step has one for each item.
    pub(crate) outputs: BTreeMap<String, (OutputType, bool)>,
    /// The steps whose plugins can have further outputs, each with whether it has one for each item.
    pub(crate) undeclared: BTreeMap<String, bool>,
}

impl StepOutline<'_> {
    /// Returns the type of an output and whether the step has one for each item, or `None` if there is no such output.
    fn output(&self, name: &str) -> Option<(OutputType, bool)> {
        if let Some(nested) = self.nested {
            let undeclared = || {
                let (step, _) = name.rsplit_once('.')?;
                nested.undeclared.get(step).map(|has_many| (OutputType::Undeclared, *has_many))
            };
            return nested.outputs.get(name).copied().or_else(undeclared);
        }
        self.step.output_type(name).map(|kind| (kind, self.step.for_each.is_some()))
    }

    fn output_names(&self) -> Vec<&str> {
        match self.nested {
            Some(nested) => nested.outputs.keys().map(String::as_str).collect(),
            None => self.step.output_names(),
        }
    }
}

/// The steps and parameters of a pipeline that is checked, with the mistakes found so far.
struct PlanChecker<'a> {
    params: &'a Map<String, Value>,
    outlines: &'a [StepOutline<'a>],
    by_name: HashMap<&'a str, usize>,
    mistakes: Vec<PlanMistake>,
}

/// Checks a plan, whose steps are no pipelines.
pub(super) fn check_plan(plan: &PipelinePlan) -> Result<StepDependencies, Vec<PlanMistake>> {
    let mut mistakes = Vec::new();
    for (key, name) in [("name", &plan.name), ("project", &plan.project)] {
        if !is_valid_name(name) {
            let message = format!("{key}: expected a name, got {:?}", shorten(name));
            let hint = "a name is 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit".to_owned();
            mistakes.push(PlanMistake { step: None, key, message, hint });
        }
    }
    let nested = |step: &PipelineStep| step.kind == StepKind::Pipeline;
    if let Some(at) = plan.steps.iter().position(nested) {
        let message = "a plan has no nested pipelines".to_owned();
        let hint = "send the steps of the nested pipeline instead".to_owned();
        mistakes.push(PlanMistake { step: Some(at), key: "kind", message, hint });
    }
    let is_folder = |step: &PipelineStep| matches!(step.from, Some(StepSource::Folder(_)));
    if let Some(at) = plan.steps.iter().position(is_folder) {
        let message = "a plan names no folder of a client".to_owned();
        let hint = "push the folder, and name the version: from = \"digits/3\"".to_owned();
        mistakes.push(PlanMistake { step: Some(at), key: "from", message, hint });
    }
    let outline = |step| {
        let preemptible = |step: &PipelineStep| step.spec.get("preemptible") == Some(&Value::Bool(true));
        StepOutline { step, preemptible: preemptible(step), nested: None }
    };
    let outlines: Vec<StepOutline<'_>> = plan.steps.iter().map(outline).collect();
    match check_outlines(&plan.params, &outlines) {
        Ok(dependencies) if mistakes.is_empty() => Ok(dependencies),
        Ok(_) => Err(mistakes),
        Err(found) => Err(mistakes.into_iter().chain(found).collect()),
    }
}

/// Checks parameters and steps.
pub(crate) fn check_outlines(
    params: &Map<String, Value>,
    outlines: &[StepOutline<'_>],
) -> Result<StepDependencies, Vec<PlanMistake>> {
    let of_pipeline =
        |key, message: String, hint: &str| PlanMistake { step: None, key, message, hint: hint.to_owned() };
    if outlines.len() > PIPELINE_STEPS_MAX {
        let message = format!("{} steps: a pipeline has at most {PIPELINE_STEPS_MAX}", outlines.len());
        return Err(vec![of_pipeline("step", message, "use for_each for equal steps, or several pipelines")]);
    }
    if outlines.is_empty() {
        let hint = "add a step: [[pipeline.NAME.step]] with a name and a task";
        return Err(vec![of_pipeline("step", "the pipeline has no steps".to_owned(), hint)]);
    }
    let mut checker = PlanChecker { params, outlines, by_name: HashMap::new(), mistakes: Vec::new() };
    checker.check_params();
    for (at, outline) in outlines.iter().enumerate() {
        if checker.by_name.insert(&outline.step.name, at).is_some() {
            let message = format!("two steps are called {:?}", shorten(&outline.step.name));
            checker.add(at, "name", message, "give each step another name");
        }
    }
    let dependencies: StepDependencies = (0..outlines.len()).map(|at| checker.check_step(at)).collect();
    checker.check_instances();
    checker.check_order(&dependencies);
    if checker.mistakes.is_empty() { Ok(dependencies) } else { Err(checker.mistakes) }
}

impl<'a> PlanChecker<'a> {
    /// Returns whether enough mistakes were found. Hints of further ones would only take time.
    fn is_full(&self) -> bool {
        self.mistakes.len() >= DIAGNOSTICS_MAX
    }

    fn add(&mut self, step: usize, key: &'static str, message: impl Into<String>, hint: impl Into<String>) {
        self.mistakes.push(PlanMistake { step: Some(step), key, message: message.into(), hint: hint.into() });
    }

    fn check_params(&mut self) {
        let mut add = |message: String, hint: &str| {
            let hint = hint.to_owned();
            self.mistakes.push(PlanMistake { step: None, key: "params", message, hint });
        };
        if self.params.len() > PIPELINE_PARAMS_MAX {
            let message = format!("{} parameters: a pipeline has at most {PIPELINE_PARAMS_MAX}", self.params.len());
            add(message, "pass fewer values, or a list");
        }
        for (name, value) in self.params {
            if name.is_empty() || name.len() > 63 || name.contains(['}', '.', '=', '$']) {
                let message = format!("invalid parameter name {:?}", shorten(name));
                add(message, "a name has 1 to 63 characters, without '.', '=', '$' and '}'");
            }
            if value.as_str().is_some_and(|text| text.contains("${")) {
                let message = format!("parameter {}: a default has no placeholders", shorten(name));
                add(message, "use the placeholder in the step");
            }
            if parameter_type(value).is_none() {
                let message = format!("parameter {}: expected a number, text, boolean or list", shorten(name));
                add(message, "a default gives the type of the parameter, such as steps = 300");
            } else if !is_within_limits(value) {
                let message = format!(
                    "parameter {}: at most {PIPELINE_TEXT_BYTES_MAX} bytes of text and {PIPELINE_ITEMS_MAX} items",
                    shorten(name)
                );
                add(message, "pass the name of a dataset instead of data");
            }
        }
    }

    /// Checks a step, and returns the steps that it depends on.
    fn check_step(&mut self, at: usize) -> Vec<StepDependency> {
        let step = self.outlines[at].step;
        let is_valid = |name: &str| is_valid_name(name) && !name.contains('.');
        if !step.name.split('/').all(is_valid) || step.name.len() > 255 {
            let hint = "a name is 1 to 63 of a-z, 0-9, '_' and '-', beginning with a letter or digit";
            self.add(at, "name", format!("invalid step name {:?}", shorten(&step.name)), hint);
        }
        let compared = check_conditions(self, at);
        self.check_for_each(at);
        self.check_kind(at);
        let mut dependencies: Vec<StepDependency> = Vec::new();
        for name in &step.after {
            if self.is_full() {
                break;
            }
            match self.by_name.get(name.as_str()) {
                Some(&step) => dependencies.push(StepDependency { step, uses_output: false }),
                None => {
                    let hint = self.step_hint(name);
                    self.add(at, "after", format!("no step is called {:?}", shorten(name)), hint);
                }
            }
        }
        for used in compared.into_iter().chain(check_inputs(self, at)) {
            dependencies.retain(|other| other.step != used);
            dependencies.push(StepDependency { step: used, uses_output: true });
        }
        dependencies
    }

    fn check_for_each(&mut self, at: usize) {
        let step = self.outlines[at].step;
        let Some(items) = &step.for_each else {
            if step.max_parallel.is_some() {
                self.add(
                    at,
                    "max_parallel",
                    "max_parallel has no effect without for_each",
                    "remove it, or add for_each",
                );
            }
            return;
        };
        if step.max_parallel == Some(0) {
            self.add(at, "max_parallel", "expected at least 1, got 0", "leave it out for no limit");
        }
        if matches!(step.kind, StepKind::Approve | StepKind::Pipeline) {
            let message = format!("a step of kind {} has no items", step.kind.name());
            self.add(at, "for_each", message, "put for_each on the steps that compute");
        }
        match items {
            Value::Array(list) if parameter_type(items).is_none() || list.iter().any(Value::is_array) => {
                self.add(
                    at,
                    "for_each",
                    "expected a list of numbers, texts or booleans",
                    "such as for_each = [1, 2, 3]",
                );
            }
            Value::Array(list) if list.len() > PIPELINE_ITEMS_MAX => {
                let message = format!("{} items: at most {PIPELINE_ITEMS_MAX}", list.len());
                self.add(at, "for_each", message, "use several steps, or fewer items");
            }
            Value::Array(_) => {}
            Value::String(text) => match parameter_name(text) {
                Some(name) => match self.params.get(name) {
                    Some(Value::Array(_)) => {}
                    Some(_) => {
                        let message = format!("parameter {name} is no list");
                        self.add(at, "for_each", message, "give it a default such as [1, 2, 3]");
                    }
                    None => self.add_unknown_parameter(at, "for_each", name),
                },
                None => {
                    let message = format!("expected a list or a parameter, got {:?}", shorten(text));
                    self.add(at, "for_each", message, "such as for_each = \"${params.rates}\"");
                }
            },
            _ => self.add(at, "for_each", "expected a list or a parameter", "such as for_each = [1, 2, 3]"),
        }
    }

    /// Checks that the step has the keys of its kind, and no others.
    fn check_kind(&mut self, at: usize) {
        let StepOutline { step, preemptible, .. } = self.outlines[at];
        let kind = step.kind;
        let is_job = kind.is_job();
        let has_source = matches!(kind, StepKind::Deploy | StepKind::Predict | StepKind::Data);
        let given: [(&'static str, bool, bool); 10] = [
            ("args", !step.args.is_empty(), matches!(kind, StepKind::Train | StepKind::Plugin | StepKind::Pipeline)),
            ("init_from", step.init_from.is_some(), kind == StepKind::Train),
            ("data", !step.data.is_empty(), matches!(kind, StepKind::Train | StepKind::Predict)),
            ("model", step.model.is_some(), kind == StepKind::Deploy),
            ("from", step.from.is_some(), has_source),
            ("dataset", step.dataset.is_some(), kind == StepKind::Data),
            ("alias", step.alias.is_some(), kind == StepKind::Deploy),
            ("split", step.split.is_some(), kind == StepKind::Predict),
            ("out", step.out.is_some(), kind == StepKind::Predict),
            ("cache", step.cache, is_job),
        ];
        for (key, _, _) in given.into_iter().filter(|(_, is_given, is_used)| *is_given && !is_used) {
            let message = format!("a step of kind {} has no {key}", kind.name());
            self.add(at, key, message, format!("remove {key}, or give the step another kind"));
        }
        self.check_source(at);
        if preemptible && !is_job {
            let message = format!("a step of kind {} cannot be preempted", kind.name());
            self.add(at, "preemptible", message, "remove preemptible");
        } else if preemptible && !step.idempotent && !step.checkpointed && !kind.is_repeatable() {
            let message =
                "a preemptible step must be idempotent or checkpointed, so that an interruption loses nothing";
            self.add(at, "preemptible", message, "add checkpoint = { every = \"30s\" }, or idempotent = true");
        }
    }

    /// Checks that a step has the source that its kind needs.
    fn check_source(&mut self, at: usize) {
        let step = self.outlines[at].step;
        let kind = step.kind.name();
        match (step.kind, &step.from) {
            (StepKind::Deploy | StepKind::Predict, None) => {
                let message = format!("a step of kind {kind} needs from, the model version");
                self.add(at, "from", message, "such as from = \"${steps.train.outputs.model}\"");
            }
            (StepKind::Deploy | StepKind::Predict, Some(StepSource::Fetch(_) | StepSource::Folder(_))) => {
                let message = format!("a step of kind {kind} takes a model version, not files");
                self.add(at, "from", message, "such as from = \"${steps.train.outputs.model}\"");
            }
            (StepKind::Data, None) => {
                let hint = "such as from = \"${steps.STEP.outputs.output}\", from = { folder = \"data\" } or \
                            from = { url = \"https://...\", sha256 = \"...\" }";
                self.add(at, "from", "a step of kind data needs from, what the dataset is made of", hint);
            }
            (StepKind::Data, Some(StepSource::Folder(folder))) => self.check_folder(at, &folder.folder),
            _ => {}
        }
        match (step.kind, &step.dataset) {
            (StepKind::Data, None) => {
                self.add(at, "dataset", "a step of kind data needs dataset, the name", "such as dataset = \"digits\"");
            }
            (StepKind::Data, Some(dataset)) => self.check_version_source(at, dataset),
            _ => {}
        }
    }

    /// Checks the path of a folder that a client pushes, and that the dataset's name is known before the run.
    fn check_folder(&mut self, at: usize, folder: &str) {
        let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if folder.is_empty() || !Path::new(folder).components().all(is_inside) {
            let message = format!("folder {:?} is not in the project's directory", shorten(folder));
            self.add(at, "from", message, "name a folder relative to the project file, such as { folder = \"data\" }");
        }
        let dataset = self.outlines[at].step.dataset.as_deref();
        if let Some(dataset) = dataset.filter(|dataset| !is_valid_name(dataset)) {
            let message = format!("expected the name of a dataset, got {:?}", shorten(dataset));
            let hint = "a folder is pushed before the run, so its name has no placeholders; it is 1 to 63 of a-z, 0-9, \
                        '.', '_' and '-', beginning with a letter or digit";
            self.add(at, "dataset", message, hint);
        }
    }

    /// Checks that a version that a data step names is one of its dataset.
    fn check_version_source(&mut self, at: usize, dataset: &str) {
        let Some(from) = self.outlines[at].step.from_reference().filter(|from| !from.contains("${")) else { return };
        let Ok(MountSource::Dataset { dataset: named, version }) = parse_mount_at(from, "/data").map(|it| it.source)
        else {
            return;
        };
        if version.is_none() || (named != dataset && !dataset.contains("${")) {
            let message = format!("expected a version of dataset {dataset}, got {:?}", shorten(from));
            let hint = format!("such as from = \"{dataset}/1\"; `saggar data push FOLDER --name {dataset}` prints it");
            self.add(at, "from", message, hint);
        }
    }

    /// Checks the number of steps with every item counted, for the default values of the parameters.
    fn check_instances(&mut self) {
        let count =
            |outline: &StepOutline<'_>| PipelinePlan::items(outline.step, self.params).map_or(1, <[Value]>::len);
        let instances: usize = self.outlines.iter().map(count).sum();
        if instances > PIPELINE_INSTANCES_MAX {
            let message = format!("{instances} steps with all items: a run has at most {PIPELINE_INSTANCES_MAX}");
            let hint = "use fewer items".to_owned();
            self.mistakes.push(PlanMistake { step: None, key: "step", message, hint });
        }
    }

    /// Checks that the order has no cycle.
    fn check_order(&mut self, dependencies: &StepDependencies) {
        let edges: Vec<Vec<usize>> =
            dependencies.iter().map(|below| below.iter().map(|dependency| dependency.step).collect()).collect();
        let Err(cycle) = dependency_order(&edges) else { return };
        // Edges lead from a step to those before it; the message follows the order of the steps.
        let mut names: Vec<&str> = cycle.iter().rev().map(|at| self.outlines[*at].step.name.as_str()).collect();
        names.extend(names.first().copied());
        let message = format!("the steps wait for each other: {}", names.join(" -> "));
        let key = if self.outlines[cycle[0]].step.after.is_empty() { "name" } else { "after" };
        self.add(cycle[0], key, message, "remove one of these dependencies");
    }

    fn add_unknown_parameter(&mut self, at: usize, key: &'static str, name: &str) {
        let known: Vec<&str> = self.params.keys().map(String::as_str).collect();
        let hint = match nearest_name(name, known.iter().copied()) {
            Some(near) => format!("did you mean ${{params.{near}}}?"),
            None if known.is_empty() => format!("add params = {{ {name} = VALUE }} to the pipeline"),
            None => format!("the parameters are {}", known.join(", ")),
        };
        self.add(at, key, format!("there is no parameter {:?}", shorten(name)), hint);
    }

    /// Returns the step of an output, the output's type, and whether the step has one for each item. An output that does not
    /// exist is reported.
    fn find_output(
        &mut self,
        at: usize,
        key: &'static str,
        step: &str,
        output: &str,
    ) -> Option<(usize, OutputType, bool)> {
        let Some(&source) = self.by_name.get(step) else {
            let hint = self.step_hint(step);
            self.add(at, key, format!("no step is called {:?}", shorten(step)), hint);
            return None;
        };
        let Some((kind, has_many)) = self.outlines[source].output(output) else {
            let names = self.outlines[source].output_names().join(", ");
            let hint = if names.is_empty() { "it has none".to_owned() } else { format!("its outputs are {names}") };
            self.add(at, key, format!("step {step} has no output {:?}", shorten(output)), hint);
            return None;
        };
        Some((source, kind, has_many))
    }

    fn step_hint(&self, name: &str) -> String {
        const NAMES_SHOWN: usize = 12;
        let known = || self.outlines.iter().map(|outline| outline.step.name.as_str());
        match nearest_name(name, known()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("the steps are {}", known().take(NAMES_SHOWN).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// Returns the beginning of a text, for a message.
fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}
