//! Texts with placeholders: `${params.steps}`, `base-${run.id}`. `$${` is the text `${`.

use serde_json::{Map, Value};
use thiserror::Error;

/// The reason why a text is not a valid template.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TemplateError {
    /// A placeholder has no end.
    #[error("`${{` has no closing `}}`")]
    Open,
    /// Not one of the placeholders.
    #[error(
        "`${{{text}}}` is no placeholder: expected params.NAME, run.id, run.name, item or steps.STEP.outputs.OUTPUT"
    )]
    Unknown {
        /// The text between the braces.
        text: String,
    },
}

/// What a placeholder refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceholderReference {
    /// A parameter.
    Parameter(String),
    /// The identifier of the run.
    RunId,
    /// The name of the run.
    RunName,
    /// The item of a step with `for_each`.
    Item,
    /// An output of a step.
    Output {
        /// The step's name.
        step: String,
        /// The output's name.
        output: String,
    },
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TemplatePart {
    Text(String),
    Placeholder(PlaceholderReference),
}

/// A parsed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextTemplate {
    pub(crate) parts: Vec<TemplatePart>,
}

/// The values of placeholders. A value that does not exist is `None`.
pub trait TemplateValues {
    /// Returns the value of a placeholder.
    fn value_of(&self, reference: &PlaceholderReference) -> Option<Value>;
}

impl TextTemplate {
    /// Parses a text.
    ///
    /// # Errors
    /// `TemplateError`.
    pub fn parse(text: &str) -> Result<TextTemplate, TemplateError> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            if rest[..at].ends_with('$') {
                plain.push_str(&rest[..at - 1]);
                plain.push_str("${");
                rest = &rest[at + 2..];
                continue;
            }
            plain.push_str(&rest[..at]);
            let inside = &rest[at + 2..];
            let end = inside.find('}').ok_or(TemplateError::Open)?;
            if !plain.is_empty() {
                parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
            }
            parts.push(TemplatePart::Placeholder(parse_reference(&inside[..end])?));
            rest = &inside[end + 1..];
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(TemplatePart::Text(plain));
        }
        Ok(TextTemplate { parts })
    }

    /// Returns the references, in their order.
    pub fn references(&self) -> impl Iterator<Item = &PlaceholderReference> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Placeholder(reference) => Some(reference),
            TemplatePart::Text(_) => None,
        })
    }

    /// Returns the reference if the text is one placeholder and nothing else.
    pub fn only_reference(&self) -> Option<&PlaceholderReference> {
        match &self.parts[..] {
            [TemplatePart::Placeholder(reference)] => Some(reference),
            _ => None,
        }
    }

    /// Returns the value: that of the placeholder, with its type, if the text is only one, else a text.
    ///
    /// # Errors
    /// The reference that has no value, or whose value is not a text, number or boolean although the text has other
    /// parts.
    pub fn render(&self, values: &dyn TemplateValues) -> Result<Value, PlaceholderReference> {
        if let Some(reference) = self.only_reference() {
            return values.value_of(reference).ok_or_else(|| reference.clone());
        }
        let mut text = String::new();
        for part in &self.parts {
            match part {
                TemplatePart::Text(plain) => text.push_str(plain),
                TemplatePart::Placeholder(reference) => match values.value_of(reference) {
                    Some(Value::String(value)) => text.push_str(&value),
                    Some(value @ (Value::Number(_) | Value::Bool(_))) => text.push_str(&value.to_string()),
                    _ => return Err(reference.clone()),
                },
            }
        }
        Ok(Value::String(text))
    }
}

/// Returns a value in which the placeholders of all texts, at any depth, are replaced.
///
/// # Errors
/// A message that names the placeholder without a value.
pub fn render_template(value: &Value, values: &dyn TemplateValues) -> Result<Value, String> {
    match value {
        Value::String(text) => {
            let template = TextTemplate::parse(text).map_err(|error| error.to_string())?;
            template.render(values).map_err(|reference| format!("{} has no value", display_reference(&reference)))
        }
        Value::Array(items) => {
            let rendered: Result<Vec<Value>, String> = items.iter().map(|item| render_template(item, values)).collect();
            Ok(Value::Array(rendered?))
        }
        Value::Object(entries) => {
            let mut rendered = Map::new();
            for (key, value) in entries {
                rendered.insert(key.clone(), render_template(value, values)?);
            }
            Ok(Value::Object(rendered))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
    }
}

/// Returns a reference as it is written.
pub(crate) fn display_reference(reference: &PlaceholderReference) -> String {
    match reference {
        PlaceholderReference::Parameter(name) => format!("${{params.{name}}}"),
        PlaceholderReference::RunId => "${run.id}".to_owned(),
        PlaceholderReference::RunName => "${run.name}".to_owned(),
        PlaceholderReference::Item => "${item}".to_owned(),
        PlaceholderReference::Output { step, output } => format!("${{steps.{step}.outputs.{output}}}"),
    }
}

fn parse_reference(text: &str) -> Result<PlaceholderReference, TemplateError> {
    let read = || match text {
        "run.id" => Some(PlaceholderReference::RunId),
        "run.name" => Some(PlaceholderReference::RunName),
        "item" => Some(PlaceholderReference::Item),
        _ => match text.split_once('.')? {
            ("params", name) if !name.is_empty() => Some(PlaceholderReference::Parameter(name.to_owned())),
            ("steps", rest) => {
                let (step, output) = rest.split_once(".outputs.")?;
                let whole = !step.is_empty() && !output.is_empty();
                whole.then(|| PlaceholderReference::Output { step: step.to_owned(), output: output.to_owned() })
            }
            _ => None,
        },
    };
    read().ok_or_else(|| TemplateError::Unknown { text: text.chars().take(80).collect() })
}
