//! The outputs of other steps that a step uses.

use serde_json::Value;

use super::{ConditionOperand, PipelineStep, PlaceholderReference, StepCondition, StepSource, TextTemplate};

impl PipelineStep {
    /// Returns the outputs that the texts of the step refer to, each as a step and an output. An output that is used
    /// twice is returned twice.
    pub fn used_outputs(&self) -> Vec<(String, String)> {
        let mut used = Vec::new();
        self.args.values().for_each(|value| collect_from_value(value, &mut used));
        for condition in self.when.iter().filter_map(|condition| StepCondition::parse(condition).ok()) {
            used.extend(condition.operands().filter_map(|operand| match operand {
                ConditionOperand::Reference(PlaceholderReference::Output { step, output }) => {
                    Some((step.clone(), output.clone()))
                }
                ConditionOperand::Reference(_) | ConditionOperand::Literal(_) => None,
            }));
        }
        let source = match &self.from {
            None => vec![],
            Some(StepSource::Reference(text)) => vec![text],
            Some(StepSource::Fetch(fetch)) => vec![&fetch.url, &fetch.sha256],
            Some(StepSource::Folder(_)) => vec![],
        };
        let texts = [&self.init_from, &self.dataset, &self.model, &self.alias, &self.split, &self.out, &self.message];
        let mounts = self.data.iter().map(|mount| &mount.from);
        for text in texts.into_iter().flatten().chain(source).chain(mounts) {
            collect_from_text(text, &mut used);
        }
        used
    }
}

fn collect_from_value(value: &Value, used: &mut Vec<(String, String)>) {
    match value {
        Value::String(text) => collect_from_text(text, used),
        Value::Array(items) => items.iter().for_each(|item| collect_from_value(item, used)),
        Value::Object(entries) => entries.values().for_each(|item| collect_from_value(item, used)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A text that is not valid was reported by the check, and refers to nothing.
fn collect_from_text(text: &str, used: &mut Vec<(String, String)>) {
    let Ok(template) = TextTemplate::parse(text) else { return };
    for reference in template.references() {
        if let PlaceholderReference::Output { step, output } = reference {
            used.push((step.clone(), output.clone()));
        }
    }
}
