//! The values of placeholders in a step.

use std::collections::BTreeMap;

use saggar_project::{OutputType, PipelinePlan, PipelineStep, PlaceholderReference, TemplateValues};
use saggar_store::records::{PipelineRunRecord, PipelineStepRecord};
use serde_json::Value;

use crate::port::OutputReference;
use crate::run_view::{RunGraph, current_attempts};

/// The values of placeholders in an item of a step.
pub(crate) struct StepValues<'a> {
    pub(crate) run: &'a PipelineRunRecord,
    pub(crate) graph: &'a RunGraph,
    pub(crate) attempts: &'a [PipelineStepRecord],
    /// The step's position and the number of the item.
    pub(crate) position: usize,
    pub(crate) item: usize,
}

impl TemplateValues for StepValues<'_> {
    fn value_of(&self, reference: &PlaceholderReference) -> Option<Value> {
        match reference {
            PlaceholderReference::Parameter(name) => self.graph.params.get(name).cloned(),
            PlaceholderReference::RunId => Some(self.run.id.clone().into()),
            PlaceholderReference::RunName => Some(self.run.name.clone().into()),
            PlaceholderReference::Item => {
                PipelinePlan::items(self.graph.plan.steps.get(self.position)?, &self.graph.params)?
                    .get(self.item)
                    .cloned()
            }
            PlaceholderReference::Output { step, output } => self.output(step, output),
        }
    }
}

impl StepValues<'_> {
    /// Returns an output of a step: a list for a step with items.
    fn output(&self, step: &str, output: &str) -> Option<Value> {
        let has_items = self.graph.plan.steps.iter().find(|it| it.name == step)?.for_each.is_some();
        let of_step = current_attempts(self.attempts).filter(|attempt| attempt.step == step);
        let value = |attempt: &PipelineStepRecord| {
            let outputs: BTreeMap<String, OutputReference> = serde_json::from_str(&attempt.outputs).ok()?;
            outputs.get(output).map(|output| output.value.clone()).filter(|value| !value.is_null())
        };
        let values: Option<Vec<Value>> = of_step.map(value).collect();
        let values = values?;
        if has_items { Some(Value::Array(values)) } else { values.into_iter().next() }
    }
}

/// Values of the right types, to check that a step's job can be described before anything runs. The plan has the values
/// of the run's parameters.
pub(crate) struct SampleValues<'a> {
    pub(crate) plan: &'a PipelinePlan,
    pub(crate) step: &'a PipelineStep,
}

impl TemplateValues for SampleValues<'_> {
    fn value_of(&self, reference: &PlaceholderReference) -> Option<Value> {
        match reference {
            PlaceholderReference::Parameter(name) => self.plan.params.get(name).cloned(),
            PlaceholderReference::RunId => Some("0".repeat(26).into()),
            PlaceholderReference::RunName => Some(format!("{}-1", self.plan.name).into()),
            PlaceholderReference::Item => {
                let items = PipelinePlan::items(self.step, &self.plan.params)?;
                Some(items.first().cloned().unwrap_or_else(|| "x".into()))
            }
            PlaceholderReference::Output { step, output } => {
                let source = self.plan.steps.iter().find(|it| it.name == *step)?;
                let value = match source.output_type(output)? {
                    OutputType::Model => "model:x@1".into(),
                    OutputType::Checkpoint => "job:x-1/checkpoint@1".into(),
                    OutputType::Files => "job:x-1/output".into(),
                    OutputType::File | OutputType::DatasetFiles => "job:x-1/output/x".into(),
                    OutputType::Dataset => "x/1".into(),
                    OutputType::Integer => 1.into(),
                    OutputType::Number => 0.5.into(),
                    OutputType::Boolean => true.into(),
                    OutputType::Text | OutputType::Undeclared => "x-1".into(),
                };
                Some(if source.for_each.is_some() { Value::Array(vec![value]) } else { value })
            }
        }
    }
}
