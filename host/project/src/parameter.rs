//! Declarations of typed values: the parameters of a training, and the inputs and outputs of a step.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A parameter of a training, or an input or output of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParameterDeclaration {
    /// Type of its values.
    #[serde(rename = "type")]
    pub kind: ParameterType,
    /// Smallest number that it accepts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Largest number that it accepts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// The only texts that it accepts; any text if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// The value that a training uses if it gets none, for documentation only; the value that the host gives a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// Purpose of the parameter, in one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub help: String,
}

/// The type of a parameter's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParameterType {
    /// A whole number.
    Integer,
    /// Any finite number.
    Number,
    /// A text.
    Text,
    /// `true` or `false`.
    Boolean,
    /// The content of a file; only for a step.
    File,
    /// A dataset; only for a step.
    Dataset,
    /// A version of a model; only for a step.
    Model,
    /// A checkpoint of a job; only for a step.
    Checkpoint,
}

impl ParameterType {
    /// Returns the type's name in declarations.
    pub const fn name(self) -> &'static str {
        match self {
            ParameterType::Integer => "integer",
            ParameterType::Number => "number",
            ParameterType::Text => "text",
            ParameterType::Boolean => "boolean",
            ParameterType::File => "file",
            ParameterType::Dataset => "dataset",
            ParameterType::Model => "model",
            ParameterType::Checkpoint => "checkpoint",
        }
    }

    /// Returns the type of this name, or `None`.
    pub fn from_name(name: &str) -> Option<ParameterType> {
        [
            ParameterType::Integer,
            ParameterType::Number,
            ParameterType::Text,
            ParameterType::Boolean,
            ParameterType::File,
            ParameterType::Dataset,
            ParameterType::Model,
            ParameterType::Checkpoint,
        ]
        .into_iter()
        .find(|kind| kind.name() == name)
    }

    /// Returns whether values are references to things that the host stores, as opposed to JSON values.
    pub const fn is_reference(self) -> bool {
        match self {
            ParameterType::File | ParameterType::Dataset | ParameterType::Model | ParameterType::Checkpoint => true,
            ParameterType::Integer | ParameterType::Number | ParameterType::Text | ParameterType::Boolean => false,
        }
    }

    /// Returns whether an output of this type can be the value of an input of type `input`: the types are equal, or an
    /// integer becomes a number.
    pub fn connects_to(self, input: ParameterType) -> bool {
        self == input || (self, input) == (ParameterType::Integer, ParameterType::Number)
    }
}

impl ParameterDeclaration {
    /// Checks that the parts of the declaration fit together.
    ///
    /// # Errors
    /// A message about what is wrong.
    pub fn validate(&self) -> Result<(), String> {
        let is_numeric = matches!(self.kind, ParameterType::Integer | ParameterType::Number);
        if !is_numeric && (self.min.is_some() || self.max.is_some()) {
            return Err("min and max are for types integer and number".to_owned());
        }
        if self.kind != ParameterType::Text && !self.choices.is_empty() {
            return Err("choices are for type text".to_owned());
        }
        if self.min.zip(self.max).is_some_and(|(min, max)| min > max) {
            return Err("min is above max".to_owned());
        }
        if self.kind.is_reference() && self.default.is_some() {
            return Err(format!("type {} has no default", self.kind.name()));
        }
        match self.default.as_ref().filter(|default| !self.accepts(default)) {
            Some(default) => Err(format!("the default {default} is not {self}")),
            None => Ok(()),
        }
    }

    /// Returns whether the parameter accepts this value. A reference is a text; what it refers to is not checked.
    pub fn accepts(&self, value: &Value) -> bool {
        let is_within =
            |number: f64| self.min.is_none_or(|min| number >= min) && self.max.is_none_or(|max| number <= max);
        match self.kind {
            ParameterType::Integer => value.as_f64().is_some_and(|number| number.fract() == 0.0 && is_within(number)),
            ParameterType::Number => value.as_f64().is_some_and(is_within),
            ParameterType::Text => {
                let is_choice = |text| self.choices.is_empty() || self.choices.iter().any(|choice| choice == text);
                value.as_str().is_some_and(is_choice)
            }
            ParameterType::Boolean => value.is_boolean(),
            ParameterType::File | ParameterType::Dataset | ParameterType::Model | ParameterType::Checkpoint => {
                value.as_str().is_some_and(|text| !text.is_empty())
            }
        }
    }
}

/// Writes what the parameter accepts, such as `an integer of at least 1`.
impl fmt::Display for ParameterDeclaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ParameterType::Integer => "an integer",
            ParameterType::Number => "a number",
            ParameterType::Text if self.choices.is_empty() => "a text",
            ParameterType::Text => return write!(f, "one of {}", self.choices.join(", ")),
            ParameterType::Boolean => "true or false",
            ParameterType::File => "a file that a job wrote, such as job:digits-7/output/report.json",
            ParameterType::Dataset => "a dataset, such as digits/1 or job:digits-7/output/table",
            ParameterType::Model => "a version of a model, such as digits@3",
            ParameterType::Checkpoint => "a checkpoint, such as job:digits-7/checkpoint@1200",
        })?;
        match (self.min, self.max) {
            (Some(min), Some(max)) => write!(f, " from {min} to {max}"),
            (Some(min), None) => write!(f, " of at least {min}"),
            (None, Some(max)) => write!(f, " of at most {max}"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_outside_a_declaration_are_refused() {
        let check = |declaration: Value, accepted: &[Value], refused: &[Value], says: &str| {
            let declaration: ParameterDeclaration = serde_json::from_value(declaration).unwrap();
            assert_eq!(declaration.to_string(), says);
            for value in accepted {
                assert!(declaration.accepts(value), "{says}: {value}");
            }
            for value in refused {
                assert!(!declaration.accepts(value), "{says}: {value}");
            }
        };
        let batch = json!({ "type": "integer", "min": 1 });
        let refuses = [json!(0), json!(-1), json!(1.5), json!("8"), json!(true), Value::Null];
        check(batch, &[json!(1), json!(8.0)], &refuses, "an integer of at least 1");
        let share = json!({ "type": "number", "min": 0, "max": 0.5 });
        check(share, &[json!(0), json!(0.5)], &[json!(0.6), json!("0")], "a number from 0 to 0.5");
        let kind = json!({ "type": "text", "choices": ["sgd", "adam"] });
        check(kind, &[json!("sgd")], &[json!("SGD"), json!(1)], "one of sgd, adam");
        check(json!({ "type": "boolean" }), &[json!(true)], &[json!(1)], "true or false");
        check(json!({ "type": "text" }), &[json!("")], &[json!(1)], "a text");
    }

    #[test]
    fn outputs_connect_to_inputs_of_their_type() {
        use ParameterType::{Boolean, Checkpoint, Dataset, File, Integer, Model, Number, Text};
        let all = [Integer, Number, Text, Boolean, File, Dataset, Model, Checkpoint];
        for output in all {
            assert_eq!(ParameterType::from_name(output.name()), Some(output));
            for input in all {
                let connects = output == input || (output, input) == (Integer, Number);
                assert_eq!(output.connects_to(input), connects, "{output:?} to {input:?}");
            }
        }
        assert_eq!(ParameterType::from_name("tensor"), None);
    }
}
