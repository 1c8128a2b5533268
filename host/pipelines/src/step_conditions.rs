//! Whether the conditions of steps are true.

use saggar_project::{ConditionState, PipelinePlan, PipelineStep, PlaceholderReference, TemplateValues};
use saggar_store::records::{PipelineRunRecord, PipelineStepRecord};
use serde_json::{Map, Value};

use crate::run_view::RunGraph;
use crate::step_values::StepValues;

/// Returns whether the conditions of each step are true, by position, with the outputs of these attempts.
pub(crate) fn step_conditions(
    graph: &RunGraph,
    run: &PipelineRunRecord,
    attempts: &[PipelineStepRecord],
) -> Vec<ConditionState> {
    let state = |(position, step): (usize, &PipelineStep)| {
        PipelinePlan::condition_state(step, &StepValues { run, graph, attempts, position, item: 0 })
    };
    graph.plan.steps.iter().enumerate().map(state).collect()
}

/// Returns whether a step is skipped whatever the outputs of other steps are.
pub(crate) fn is_never_wanted(step: &PipelineStep, params: &Map<String, Value>) -> bool {
    PipelinePlan::condition_state(step, &ParameterValues(params)) == ConditionState::False
}

/// The values of parameters. Outputs have none.
struct ParameterValues<'a>(&'a Map<String, Value>);

impl TemplateValues for ParameterValues<'_> {
    fn value_of(&self, reference: &PlaceholderReference) -> Option<Value> {
        match reference {
            PlaceholderReference::Parameter(name) => self.0.get(name).cloned(),
            PlaceholderReference::RunId
            | PlaceholderReference::RunName
            | PlaceholderReference::Item
            | PlaceholderReference::Output { .. } => None,
        }
    }
}
