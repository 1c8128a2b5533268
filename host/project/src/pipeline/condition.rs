//! Conditions of steps: `true`, `${params.deploy}`, `!${params.deploy}`, `${steps.eval.outputs.accuracy} > 0.9`.
//!
//! A comparison has a placeholder, a number, `true`, `false` or a text in single quotes on each side. Numbers are compared
//! by all operators, texts and booleans by `==` and `!=`. A placeholder alone must be a boolean, and `!` negates it.

use std::fmt;

use serde_json::Value;
use thiserror::Error;

use super::template::{PlaceholderReference, TemplateValues, TextTemplate, display_reference};

/// An operator of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComparisonOperator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl ComparisonOperator {
    /// Every operator. One that begins with another one comes before it.
    const ALL: [(&'static str, ComparisonOperator); 6] = [
        ("==", ComparisonOperator::Equal),
        ("!=", ComparisonOperator::NotEqual),
        ("<=", ComparisonOperator::LessOrEqual),
        (">=", ComparisonOperator::GreaterOrEqual),
        ("<", ComparisonOperator::Less),
        (">", ComparisonOperator::Greater),
    ];

    pub(crate) fn symbol(self) -> &'static str {
        ComparisonOperator::ALL.iter().find(|(_, operator)| *operator == self).map_or("", |(symbol, _)| symbol)
    }

    /// Returns whether it orders numbers, and does not only distinguish values.
    pub(crate) fn is_order(self) -> bool {
        match self {
            ComparisonOperator::Equal | ComparisonOperator::NotEqual => false,
            ComparisonOperator::Less
            | ComparisonOperator::LessOrEqual
            | ComparisonOperator::Greater
            | ComparisonOperator::GreaterOrEqual => true,
        }
    }
}

/// A side of a comparison, or a whole condition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ConditionOperand {
    /// A parameter, an output, or another placeholder.
    Reference(PlaceholderReference),
    /// A number, a boolean or a text.
    Literal(Value),
}

/// A parsed condition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StepCondition {
    /// A boolean, negated if `is_negated`.
    Boolean { operand: ConditionOperand, is_negated: bool },
    /// A comparison of two values.
    Comparison { left: ConditionOperand, operator: ComparisonOperator, right: ConditionOperand },
}

/// Why a text is not a condition.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("expected a boolean parameter or output, or a comparison, got {text:?}")]
pub(crate) struct ConditionParseError {
    text: String,
}

/// Why a condition has no value.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConditionError {
    /// A placeholder has no value.
    #[error("{reference} has no value")]
    NoValue {
        /// The placeholder.
        reference: String,
    },
    /// A value that the condition cannot be computed with.
    #[error("{condition}: {value} is not {expected}")]
    Kind {
        /// The condition.
        condition: String,
        /// The value.
        value: String,
        /// What was expected.
        expected: &'static str,
    },
}

impl StepCondition {
    /// Parses a condition of a plan: a boolean, or a text.
    pub(crate) fn parse(condition: &Value) -> Result<StepCondition, ConditionParseError> {
        let wrong = || ConditionParseError { text: condition.as_str().map_or_else(|| condition.to_string(), shorten) };
        match condition {
            Value::Bool(_) => Ok(StepCondition::boolean(ConditionOperand::Literal(condition.clone()), false)),
            Value::String(text) => parse_text(text.trim()).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }

    fn boolean(operand: ConditionOperand, is_negated: bool) -> StepCondition {
        match operand {
            ConditionOperand::Literal(Value::Bool(value)) => StepCondition::Boolean {
                operand: ConditionOperand::Literal((value != is_negated).into()),
                is_negated: false,
            },
            operand => StepCondition::Boolean { operand, is_negated },
        }
    }

    /// Returns the operands.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &ConditionOperand> {
        let (first, second) = match self {
            StepCondition::Boolean { operand, .. } => (operand, None),
            StepCondition::Comparison { left, right, .. } => (left, Some(right)),
        };
        std::iter::once(first).chain(second)
    }

    /// Returns the condition with other operands. A boolean literal that was negated is computed.
    pub(crate) fn map_operands(self, mut map: impl FnMut(ConditionOperand) -> ConditionOperand) -> StepCondition {
        match self {
            StepCondition::Boolean { operand, is_negated } => StepCondition::boolean(map(operand), is_negated),
            StepCondition::Comparison { left, operator, right } => {
                StepCondition::Comparison { left: map(left), operator, right: map(right) }
            }
        }
    }

    /// Returns the condition as a value of a plan.
    pub(crate) fn to_value(&self) -> Value {
        match self {
            StepCondition::Boolean { operand: ConditionOperand::Literal(Value::Bool(value)), .. } => (*value).into(),
            condition => condition.to_string().into(),
        }
    }

    /// Computes the condition.
    ///
    /// # Errors
    /// `NoValue`; `Kind`.
    pub(crate) fn is_true(&self, values: &dyn TemplateValues) -> Result<bool, ConditionError> {
        let value = |operand: &ConditionOperand| match operand {
            ConditionOperand::Literal(value) => Ok(value.clone()),
            ConditionOperand::Reference(reference) => values
                .value_of(reference)
                .ok_or_else(|| ConditionError::NoValue { reference: display_reference(reference) }),
        };
        let wrong = |value: &Value, expected: &'static str| ConditionError::Kind {
            condition: self.to_string(),
            value: shorten(&value.to_string()),
            expected,
        };
        match self {
            StepCondition::Boolean { operand, is_negated } => {
                let value = value(operand)?;
                value.as_bool().map(|value| value != *is_negated).ok_or_else(|| wrong(&value, "true or false"))
            }
            StepCondition::Comparison { left, operator, right } => {
                let (left, right) = (value(left)?, value(right)?);
                compare(&left, *operator, &right).ok_or_else(|| match operator.is_order() {
                    true => wrong(if left.is_number() { &right } else { &left }, "a number"),
                    false => wrong(&right, kind_name(&left)),
                })
            }
        }
    }
}

impl fmt::Display for StepCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepCondition::Boolean { operand, is_negated } => {
                write!(f, "{}{operand}", if *is_negated { "!" } else { "" })
            }
            StepCondition::Comparison { left, operator, right } => write!(f, "{left} {} {right}", operator.symbol()),
        }
    }
}

impl fmt::Display for ConditionOperand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConditionOperand::Reference(reference) => f.write_str(&display_reference(reference)),
            ConditionOperand::Literal(Value::String(text)) => write!(f, "'{text}'"),
            ConditionOperand::Literal(value) => write!(f, "{value}"),
        }
    }
}

/// Returns the result of a comparison, or `None` if the values cannot be compared in this way. Numbers are compared as
/// float64.
fn compare(left: &Value, operator: ComparisonOperator, right: &Value) -> Option<bool> {
    let is_equal = match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            let (left, right) = (left.as_f64()?, right.as_f64()?);
            return Some(match operator {
                ComparisonOperator::Equal => left == right,
                ComparisonOperator::NotEqual => left != right,
                ComparisonOperator::Less => left < right,
                ComparisonOperator::LessOrEqual => left <= right,
                ComparisonOperator::Greater => left > right,
                ComparisonOperator::GreaterOrEqual => left >= right,
            });
        }
        (Value::String(left), Value::String(right)) => left == right,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        _ => return None,
    };
    match operator {
        ComparisonOperator::Equal => Some(is_equal),
        ComparisonOperator::NotEqual => Some(!is_equal),
        _ => None,
    }
}

fn kind_name(value: &Value) -> &'static str {
    match value {
        Value::Number(_) => "a number",
        Value::Bool(_) => "true or false",
        Value::String(_) | Value::Null | Value::Array(_) | Value::Object(_) => "a text",
    }
}

fn parse_text(text: &str) -> Option<StepCondition> {
    let (left, rest) = read_operand(text.strip_prefix('!').unwrap_or(text).trim_start())?;
    let is_negated = text.starts_with('!');
    let rest = rest.trim_start();
    if rest.is_empty() {
        // A text or a number alone is neither true nor false.
        let is_boolean = matches!(left, ConditionOperand::Reference(_) | ConditionOperand::Literal(Value::Bool(_)));
        return is_boolean.then(|| StepCondition::boolean(left, is_negated));
    }
    let (symbol, operator) = ComparisonOperator::ALL.into_iter().find(|(symbol, _)| rest.starts_with(symbol))?;
    let (right, end) = read_operand(rest[symbol.len()..].trim_start())?;
    (end.trim().is_empty() && !is_negated).then_some(StepCondition::Comparison { left, operator, right })
}

/// Reads an operand, and returns it with the text after it.
fn read_operand(text: &str) -> Option<(ConditionOperand, &str)> {
    if text.starts_with("${") {
        let end = text.find('}')? + 1;
        let template = TextTemplate::parse(&text[..end]).ok()?;
        return Some((ConditionOperand::Reference(template.only_reference()?.clone()), &text[end..]));
    }
    if let Some(rest) = text.strip_prefix('\'') {
        let end = rest.find('\'')?;
        return Some((ConditionOperand::Literal(rest[..end].into()), &rest[end + 1..]));
    }
    let end = text.find(|c: char| c.is_whitespace() || "=!<>".contains(c)).unwrap_or(text.len());
    let literal: Value = serde_json::from_str(&text[..end]).ok()?;
    (literal.is_number() || literal.is_boolean()).then_some((ConditionOperand::Literal(literal), &text[end..]))
}

fn shorten(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Values;

    impl TemplateValues for Values {
        fn value_of(&self, reference: &PlaceholderReference) -> Option<Value> {
            match reference {
                PlaceholderReference::Parameter(name) => match name.as_str() {
                    "yes" => Some(true.into()),
                    "limit" => Some(0.9.into()),
                    "name" => Some("lenet".into()),
                    _ => None,
                },
                PlaceholderReference::Output { output, .. } if output == "accuracy" => Some(0.95.into()),
                PlaceholderReference::Output { output, .. } if output == "count" => Some(3.into()),
                _ => None,
            }
        }
    }

    fn value(text: &str) -> Result<bool, ConditionError> {
        StepCondition::parse(&text.into()).unwrap_or_else(|error| panic!("{error}")).is_true(&Values)
    }

    #[test]
    fn conditions_have_the_values_of_their_operands() {
        for (text, expected) in [
            ("${params.yes}", true),
            ("!${params.yes}", false),
            ("${steps.eval.outputs.accuracy} > 0.9", true),
            ("${steps.eval.outputs.accuracy}>${params.limit}", true),
            ("${steps.eval.outputs.accuracy} <= 9e-1", false),
            ("${steps.eval.outputs.count} == 3.0", true),
            ("3 != ${steps.eval.outputs.count}", false),
            ("-1 < ${steps.eval.outputs.count}", true),
            ("${params.name} == 'lenet'", true),
            ("${params.name} != 'a > b'", true),
            ("${params.yes} == false", false),
            ("!true", false),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
            let parsed = StepCondition::parse(&text.into()).unwrap();
            assert_eq!(StepCondition::parse(&parsed.to_value()), Ok(parsed), "{text}");
        }
        assert_eq!(StepCondition::parse(&json!(false)).unwrap().is_true(&Values), Ok(false));
    }

    #[test]
    fn values_that_cannot_be_compared_are_errors() {
        for (text, expected) in [
            ("${params.none}", "${params.none} has no value"),
            ("${params.limit}", "${params.limit}: 0.9 is not true or false"),
            ("${params.name} > 1", "\"lenet\" is not a number"),
            ("1 <= ${params.name}", "\"lenet\" is not a number"),
            ("${params.limit} == 'x'", "\"x\" is not a number"),
            ("${params.yes} != 1", "1 is not true or false"),
        ] {
            let error = value(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn other_texts_are_no_conditions() {
        for text in [
            "",
            "yes",
            "1",
            "'x'",
            "${params.a",
            "${other}",
            "${params.a} >",
            "> 1",
            "${params.a} > 1 > 0",
            "!1 == 2",
            "${params.a} = 1",
            "${params.a} && true",
            "${params.a} == 'x",
            "${params.a} == [1]",
            "x-${params.a}",
            "${params.a} == null",
            "!${params.a} == true",
        ] {
            assert!(StepCondition::parse(&text.into()).is_err(), "{text}");
        }
        assert!(StepCondition::parse(&json!(1)).is_err());
    }
}
