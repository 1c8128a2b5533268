//! Checks what a step returned against the outputs that its plugin declares.

use std::collections::BTreeMap;

use saggar_project::{ParameterDeclaration, ParameterType};
use saggar_store::is_output_path;

use super::StepValue;
use crate::error::PluginError;
use crate::limits::{PORT_NAME_BYTES_MAX, STEP_TEXT_BYTES_MAX};

/// The characters of a value that an error quotes.
const QUOTED_CHARS_MAX: usize = 80;

/// Returns the outputs by name.
///
/// # Errors
/// `StepOutput` for the first output that is not declared, is returned twice, has another type or a value that its
/// declaration does not accept, or is missing.
pub(super) fn check_outputs(
    declared: &BTreeMap<String, ParameterDeclaration>,
    returned: Vec<(String, StepValue)>,
) -> Result<BTreeMap<String, StepValue>, PluginError> {
    let mut outputs = BTreeMap::new();
    for (name, value) in returned {
        let Some(declaration) = declared.get(&name) else {
            let known: Vec<&str> = declared.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "no outputs".to_owned() } else { known.join(", ") };
            let name = name.chars().take(PORT_NAME_BYTES_MAX).collect();
            return Err(PluginError::StepOutput { name, expected: known, given: "an undeclared output".to_owned() });
        };
        check_value(&name, declaration, &value)?;
        if outputs.contains_key(&name) {
            return Err(refused(&name, declaration, "two values".to_owned()));
        }
        outputs.insert(name, value);
    }
    match declared.iter().find(|(name, _)| !outputs.contains_key(*name)) {
        Some((name, declaration)) => Err(refused(name, declaration, "no value".to_owned())),
        None => Ok(outputs),
    }
}

fn refused(name: &str, declaration: &ParameterDeclaration, given: String) -> PluginError {
    PluginError::StepOutput { name: name.to_owned(), expected: declaration.to_string(), given }
}

fn check_value(name: &str, declaration: &ParameterDeclaration, value: &StepValue) -> Result<(), PluginError> {
    if !value.kind().connects_to(declaration.kind) {
        return Err(refused(name, declaration, format!("a value of type {}", value.kind().name())));
    }
    match value {
        StepValue::File(_) => Ok(()),
        StepValue::Integer(_) | StepValue::Number(_) | StepValue::Boolean(_) => {
            let json = value.to_json();
            if declaration.accepts(&json) { Ok(()) } else { Err(refused(name, declaration, describe(value))) }
        }
        StepValue::Text(text) | StepValue::Dataset(text) | StepValue::Model(text) | StepValue::Checkpoint(text) => {
            if text.len() > STEP_TEXT_BYTES_MAX {
                let given =
                    format!("{} bytes; at most {STEP_TEXT_BYTES_MAX} are accepted, a file can have more", text.len());
                return Err(refused(name, declaration, given));
            }
            let is_path = declaration.kind != ParameterType::Dataset || is_output_path(text);
            if is_path && declaration.accepts(&value.to_json()) {
                Ok(())
            } else {
                Err(refused(name, declaration, describe(value)))
            }
        }
    }
}

/// Describes a value for an error.
fn describe(value: &StepValue) -> String {
    let text = match value {
        StepValue::Number(number) => number.to_string(),
        other => other.to_json().to_string(),
    };
    text.chars().take(QUOTED_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(declared: Value, returned: &[(&str, StepValue)]) -> Result<BTreeMap<String, StepValue>, String> {
        let declared = serde_json::from_value(declared).unwrap();
        let returned = returned.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        check_outputs(&declared, returned).map_err(|error| error.to_string())
    }

    fn text(text: &str) -> StepValue {
        StepValue::Text(text.to_owned())
    }

    #[test]
    fn outputs_that_match_their_declarations_are_accepted() {
        let declared = json!({ "mean": { "type": "number" }, "count": { "type": "integer", "min": 0 }, "table": { "type": "dataset" } });
        let returned = [
            ("table", StepValue::Dataset("table/part.csv".to_owned())),
            ("mean", StepValue::Integer(2)),
            ("count", StepValue::Integer(0)),
        ];
        let outputs = check(declared, &returned).unwrap();
        assert_eq!(outputs.len(), 3);
        assert_eq!(outputs["mean"], StepValue::Integer(2));
    }

    #[test]
    fn every_other_output_is_refused_by_name() {
        let number = json!({ "mean": { "type": "number", "max": 1 } });
        let refusal = |declared: &Value, returned: &[(&str, StepValue)], says: &str| {
            let error = check(declared.clone(), returned).unwrap_err();
            assert!(error.contains(says), "{error}");
        };
        refusal(
            &number,
            &[],
            "output `mean`: the plugin declares a number of at most 1, and the step returned no value",
        );
        refusal(&number, &[("mean", text("1"))], "and the step returned a value of type text");
        refusal(&number, &[("mean", StepValue::Number(f64::NAN))], "returned NaN");
        refusal(&number, &[("mean", StepValue::Number(2.0))], "returned 2");
        let twice = [("mean", StepValue::Number(0.0)), ("mean", StepValue::Number(0.0))];
        refusal(&number, &twice, "returned two values");
        let undeclared = [("mean", StepValue::Number(0.0)), ("median", StepValue::Number(0.0))];
        refusal(&number, &undeclared, "output `median`: the plugin declares mean, and the step returned an undeclared");
        refusal(&json!({}), &[(&"x".repeat(1000), text("a"))], "declares no outputs");
        let long = json!({ "t": { "type": "text" } });
        refusal(&long, &[("t", text(&"x".repeat(STEP_TEXT_BYTES_MAX + 1)))], "2049 bytes; at most 2048");
        let choice = json!({ "t": { "type": "text", "choices": ["a", "b"] } });
        refusal(&choice, &[("t", text("c"))], "declares one of a, b, and the step returned \"c\"");
        let table = json!({ "d": { "type": "dataset" } });
        refusal(&table, &[("d", StepValue::Dataset("../other".to_owned()))], "returned \"../other\"");
        refusal(&table, &[("d", StepValue::Model("m@1".to_owned()))], "a value of type model");
    }
}
