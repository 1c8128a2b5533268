//! The fields of a JSON schema by path, and their form in a file.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{DocumentShape, FieldShape, SCHEMAS, members};

/// Adds the fields of a schema below `path`. Elements of a list have the path `PATH[]`, further members of an object
/// `PATH.*`. A schema with a name is one field, because it is described apart.
pub(super) fn collect_fields(schema: &Value, path: &str, required: bool, fields: &mut DocumentShape) {
    let variants: Vec<&Value> = ["anyOf", "oneOf"].iter().filter_map(|key| schema[*key].as_array()).flatten().collect();
    if !variants.is_empty() {
        // A member is always there only if it is in every variant, so members of variants count as optional.
        for variant in variants {
            let mut of_variant = DocumentShape::new();
            collect_fields(variant, path, required, &mut of_variant);
            for (at, mut field) in of_variant {
                field.required &= at == path;
                insert_field(fields, at, field);
            }
        }
        return;
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        collect_fields(part, path, required, fields);
    }
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.strip_prefix(SCHEMAS).unwrap_or(name);
        insert_field(
            fields,
            path.to_owned(),
            FieldShape { types: [format!("#{name}")].into(), required, values: None },
        );
        return;
    }
    insert_field(fields, path.to_owned(), FieldShape { types: types(schema), required, values: values(schema) });
    let always = schema["required"].as_array();
    for (name, member) in members(&schema["properties"]) {
        let is_required = always.is_some_and(|names| names.iter().any(|it| it == name));
        collect_fields(member, &format!("{path}.{name}"), is_required, fields);
    }
    if schema["additionalProperties"].is_object() {
        collect_fields(&schema["additionalProperties"], &format!("{path}.*"), false, fields);
    }
    if schema["items"].is_object() {
        collect_fields(&schema["items"], &format!("{path}[]"), true, fields);
    }
}

fn insert_field(fields: &mut DocumentShape, path: String, field: FieldShape) {
    match fields.get_mut(&path) {
        None => drop(fields.insert(path, field)),
        Some(known) => {
            known.types.extend(field.types);
            known.required &= field.required;
            known.values = match (known.values.take(), field.values) {
                (Some(mut values), Some(others)) => {
                    values.extend(others);
                    Some(values)
                }
                _ => None,
            };
        }
    }
}

fn types(schema: &Value) -> BTreeSet<String> {
    match &schema["type"] {
        Value::String(name) => [name.clone()].into(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => ["any".to_owned()].into(),
    }
}

fn values(schema: &Value) -> Option<BTreeSet<String>> {
    let listed = schema["enum"].as_array().map(|values| values.iter().map(Value::to_string).collect());
    listed.or_else(|| schema.get("const").map(|value| [value.to_string()].into()))
}

/// Returns each field as one text: its types, `?` if it can be missing, and its values.
pub(super) fn document_to_json(document: &DocumentShape) -> Value {
    let text = |field: &FieldShape| {
        let join = |all: &BTreeSet<String>| all.iter().cloned().collect::<Vec<_>>().join("|");
        let values = field.values.as_ref().map(|values| format!(" = {}", join(values))).unwrap_or_default();
        format!("{}{}{values}", join(&field.types), if field.required { "" } else { "?" })
    };
    let fields: Map<String, Value> = document.iter().map(|(path, field)| (path.clone(), text(field).into())).collect();
    Value::Object(fields)
}

/// Reads what [`document_to_json`] wrote.
pub(super) fn document_from_json(document: &Value) -> DocumentShape {
    let split = |text: &str| text.split('|').map(str::to_owned).collect::<BTreeSet<String>>();
    let field = |text: &str| {
        let (types, values) = text.split_once(" = ").map_or((text, None), |(types, values)| (types, Some(values)));
        let (types, required) = types.strip_suffix('?').map_or((types, true), |types| (types, false));
        FieldShape { types: split(types), required, values: values.map(split) }
    };
    members(document).map(|(path, text)| (path.to_owned(), field(text.as_str().unwrap_or_default()))).collect()
}
