//! The outputs that a step must have had when its job succeeded: those that its plugin declares, and those that other
//! steps use.

use std::collections::BTreeMap;

use saggar_project::{PipelineStep, StepKind};
use saggar_store::records::StateReason;

use crate::port::OutputReference;
use crate::run_view::RunGraph;
use crate::step_conditions::is_never_wanted;

/// The reason of a step whose job succeeded without an output.
pub(crate) const MISSING_OUTPUT: &str = "MISSING_OUTPUT";

/// Returns the reason why the step at `position` failed although its job succeeded, or `None` if it has all its outputs.
pub(crate) fn missing_output(
    graph: &RunGraph,
    position: usize,
    job: &str,
    outputs: &BTreeMap<String, OutputReference>,
) -> Option<StateReason> {
    let step = &graph.plan.steps[position];
    let is_missing = |name: &str| outputs.get(name).is_none_or(|output| output.value.is_null());
    let declared = step.declares.iter().flat_map(|declares| declares.outputs.keys());
    if let Some(name) = declared.map(String::as_str).find(|name| is_missing(name)) {
        let why = "which its plugin declares; an output that contains a secret is not recorded";
        return Some(reason(job, name, why));
    }
    if step.kind == StepKind::Data && is_missing("dataset") {
        return Some(reason(job, "dataset", "the version that a data step makes"));
    }
    for user in users(graph, position) {
        let used = user.used_outputs().into_iter().filter(|(name, _)| *name == step.name);
        if let Some((_, name)) = used.into_iter().find(|(_, name)| is_missing(name)) {
            let hint = match (step.kind, name.as_str()) {
                (StepKind::Train, "model") => "; its plugin published no model",
                (StepKind::Train, "checkpoint") => "; it saved no checkpoint",
                _ => "",
            };
            return Some(reason(job, &name, &format!("which step {} uses{hint}", user.name)));
        }
    }
    None
}

/// Returns the steps that use an output of the step at `position` and are not skipped by their condition.
fn users(graph: &RunGraph, position: usize) -> impl Iterator<Item = &PipelineStep> {
    let depends =
        move |at: &usize| graph.dependencies[*at].iter().any(|used| used.step == position && used.uses_output);
    let steps = (0..graph.plan.steps.len()).filter(depends).map(|at| &graph.plan.steps[at]);
    steps.filter(|step| !is_never_wanted(step, &graph.params))
}

fn reason(job: &str, output: &str, why: &str) -> StateReason {
    StateReason::new(MISSING_OUTPUT, format!("job {job} succeeded without the output `{output}`, {why}"))
}
