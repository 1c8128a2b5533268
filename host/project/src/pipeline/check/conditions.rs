//! The check of the conditions of a step: each names parameters and outputs that exist, and compares values of one type.

use super::*;
use crate::pipeline::condition::{ComparisonOperator, ConditionOperand, StepCondition};

/// The type of an operand of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperandType {
    Number,
    Text,
    Boolean,
    /// An output of a plugin whose declarations are not known yet.
    Unknown,
}

impl OperandType {
    fn name(self) -> &'static str {
        match self {
            OperandType::Number => "a number",
            OperandType::Text => "a text",
            OperandType::Boolean => "true or false",
            OperandType::Unknown => "an output of a plugin that was not read",
        }
    }

    fn is_one_of(self, expected: OperandType) -> bool {
        self == expected || self == OperandType::Unknown || expected == OperandType::Unknown
    }

    fn of_value(value: &Value) -> Option<OperandType> {
        match value {
            Value::Number(_) => Some(OperandType::Number),
            Value::String(_) => Some(OperandType::Text),
            Value::Bool(_) => Some(OperandType::Boolean),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// Checks the conditions of a step. Returns the steps whose outputs they use.
pub(super) fn check_conditions(checker: &mut PlanChecker<'_>, at: usize) -> Vec<usize> {
    let mut used = Vec::new();
    for condition in &checker.outlines[at].step.when {
        if checker.is_full() {
            break;
        }
        match StepCondition::parse(condition) {
            Ok(condition) => check_condition(checker, at, &condition, &mut used),
            Err(error) => {
                let hint = "such as when = \"${params.deploy}\", \"!${params.deploy}\" or \"${steps.STEP.outputs.OUTPUT} > 0.9\"";
                checker.add(at, "when", error.to_string(), hint);
            }
        }
    }
    used
}

fn check_condition(checker: &mut PlanChecker<'_>, at: usize, condition: &StepCondition, used: &mut Vec<usize>) {
    let mistakes = checker.mistakes.len();
    let types: Vec<Option<OperandType>> =
        condition.operands().map(|operand| operand_type(checker, at, operand, used)).collect();
    if checker.mistakes.len() > mistakes {
        return;
    }
    match (condition, &types[..]) {
        (StepCondition::Boolean { operand, .. }, [Some(found)]) if !found.is_one_of(OperandType::Boolean) => {
            let message = format!("{operand} is not true or false, but {}", found.name());
            checker.add(at, "when", message, format!("compare it, such as when = \"{operand} {}\"", example(*found)));
        }
        (StepCondition::Comparison { left, operator, right }, [Some(one), Some(other)]) => {
            check_comparison(checker, at, *operator, [(left, *one), (right, *other)]);
        }
        _ => {}
    }
}

fn check_comparison(
    checker: &mut PlanChecker<'_>,
    at: usize,
    operator: ComparisonOperator,
    sides: [(&ConditionOperand, OperandType); 2],
) {
    let symbol = operator.symbol();
    if operator.is_order()
        && let Some((operand, found)) = sides.iter().find(|(_, found)| !found.is_one_of(OperandType::Number))
    {
        let message = format!("{symbol} compares numbers, and {operand} is {}", found.name());
        return checker.add(at, "when", message, "use == or !=, or an output that is a number");
    }
    let [(left, one), (right, other)] = sides;
    if !one.is_one_of(other) {
        let message = format!("{left} is {}, and {right} is {}", one.name(), other.name());
        checker.add(at, "when", message, format!("compare it with {}", example(one).trim_start_matches("== ")));
    }
}

fn example(of: OperandType) -> &'static str {
    match of {
        OperandType::Number => "> 0.9",
        OperandType::Text => "== 'text'",
        OperandType::Boolean => "== true",
        OperandType::Unknown => "== 1",
    }
}

/// Returns the type of an operand, or reports why it cannot be one.
fn operand_type(
    checker: &mut PlanChecker<'_>,
    at: usize,
    operand: &ConditionOperand,
    used: &mut Vec<usize>,
) -> Option<OperandType> {
    let reference = match operand {
        ConditionOperand::Literal(value) => return OperandType::of_value(value),
        ConditionOperand::Reference(reference) => reference,
    };
    match reference {
        PlaceholderReference::RunId | PlaceholderReference::RunName => Some(OperandType::Text),
        PlaceholderReference::Item => {
            checker.add(at, "when", "a condition is of the step and not of its items", "use a parameter or an output");
            None
        }
        PlaceholderReference::Parameter(name) => match checker.params.get(name) {
            None => {
                checker.add_unknown_parameter(at, "when", name);
                None
            }
            Some(value) => {
                let found = OperandType::of_value(value);
                if found.is_none() {
                    checker.add(at, "when", format!("parameter {name} is a list"), "use a parameter with one value");
                }
                found
            }
        },
        PlaceholderReference::Output { step, output } => output_type(checker, at, (step, output), used),
    }
}

fn output_type(
    checker: &mut PlanChecker<'_>,
    at: usize,
    (step, output): (&str, &str),
    used: &mut Vec<usize>,
) -> Option<OperandType> {
    let (source, kind, has_many) = checker.find_output(at, "when", step, output)?;
    used.push(source);
    if has_many {
        let message = format!("step {step} has an output for each item, and a condition takes one value");
        checker.add(at, "when", message, "use a step of kind plugin that returns one value from the list");
        return None;
    }
    match kind {
        OutputType::Integer | OutputType::Number => Some(OperandType::Number),
        OutputType::Text => Some(OperandType::Text),
        OutputType::Boolean => Some(OperandType::Boolean),
        OutputType::Undeclared => Some(OperandType::Unknown),
        OutputType::Model
        | OutputType::Checkpoint
        | OutputType::Files
        | OutputType::File
        | OutputType::DatasetFiles
        | OutputType::Dataset => {
            let message = format!("output {output} of step {step} is {}, which has no value to compare", kind.name());
            checker.add(at, "when", message, "use an output that is a number, a text or a boolean");
            None
        }
    }
}
