//! The JSON Schema of the values, by which Helm refuses wrong ones.

use serde_json::{Map, Value, json};

use super::lifted_values::{LIFTED_VALUES, LiftedForm};

/// Returns the schema of the values of a chart, draft 7, which is what Helm reads.
pub(super) fn schema(values: &Value) -> Value {
    let mut schema = value_schema(values, "");
    if let Value::Object(members) = &mut schema {
        // Helm adds this one to the values of a chart that is part of another one.
        if let Some(Value::Object(properties)) = members.get_mut("properties") {
            properties.insert("global".to_owned(), json!({ "type": "object" }));
        }
        members.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
    }
    schema
}

/// Returns the schema of the value at a path.
fn value_schema(value: &Value, path: &str) -> Value {
    let lifted = LIFTED_VALUES.iter().find(|lifted| lifted.path == path).map(|lifted| lifted.form);
    match (lifted, value) {
        (Some(LiftedForm::List), _) => json!({ "type": "array" }),
        (Some(LiftedForm::Mapping), _) => json!({ "type": "object" }),
        (Some(LiftedForm::Text), _) => json!({ "type": "string" }),
        (Some(LiftedForm::OptionalScalar), _) if path.ends_with("replicas") => {
            json!({ "type": ["integer", "null"], "minimum": 1 })
        }
        (Some(LiftedForm::OptionalScalar), _) => json!({ "type": ["string", "null"] }),
        (Some(LiftedForm::Scalar) | None, Value::Bool(_)) => json!({ "type": "boolean" }),
        (Some(LiftedForm::Scalar) | None, Value::Number(_)) => {
            let least = if path == "keda.workersMin" { 0 } else { 1 };
            json!({ "type": "integer", "minimum": least })
        }
        (None, Value::Object(members)) => {
            let child = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            let properties: Map<String, Value> =
                members.iter().map(|(name, value)| (name.clone(), value_schema(value, &child(name)))).collect();
            json!({ "type": "object", "additionalProperties": false, "properties": properties })
        }
        (Some(LiftedForm::Scalar) | None, _) => json!({ "type": "string", "minLength": 1 }),
    }
}
