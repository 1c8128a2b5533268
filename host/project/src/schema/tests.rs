use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use toml::de::DeTable;

use super::SCHEMA;
use crate::manifest;
use crate::manifest_table::ManifestTable;
use crate::parse_report::ParseReport;

const FULL_EXAMPLE: &str = include_str!("../../examples/full.toml");
const MINIMAL_EXAMPLE: &str = include_str!("../../examples/minimal.toml");

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

/// Returns a schema with its reference resolved.
fn resolve_reference<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    match schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/")) {
        Some(name) => &root["$defs"][name],
        None => schema,
    }
}

/// Collects every table of the schema with its keys, by the path of its keys, with `*` for user-chosen names. A table with
/// several forms has the keys of all of them.
fn collect_tables(root: &Value, schema: &Value, path: &str, found: &mut BTreeMap<String, BTreeSet<String>>) {
    let schema = resolve_reference(root, schema);
    for alternative in schema["anyOf"].as_array().into_iter().flatten() {
        // An alternative without a type only restricts the keys of the table that it belongs to.
        if alternative["type"].is_null() && alternative["$ref"].is_null() && alternative["anyOf"].is_null() {
            continue;
        }
        collect_tables(root, alternative, path, found);
    }
    if schema["items"].is_object() {
        collect_tables(root, &schema["items"], &format!("{path}[]"), found);
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    if schema["additionalProperties"].is_object() {
        collect_tables(root, &schema["additionalProperties"], &below("*"), found);
    }
    if let Some(properties) = schema["properties"].as_object() {
        assert_eq!(schema["additionalProperties"], false, "[{path}] takes any key");
        found.entry(path.to_owned()).or_default().extend(properties.keys().cloned());
        for (key, value) in properties {
            collect_tables(root, value, &below(key), found);
        }
    }
}

#[test]
fn parser_and_schema_accept_the_same_keys() {
    let report = ParseReport::new(FULL_EXAMPLE);
    let document = DeTable::parse(FULL_EXAMPLE).unwrap();
    manifest::read_manifest(&ManifestTable::root(document.get_ref(), &report)).unwrap();
    let parsed = report.keys();
    let root = schema();
    let mut described = BTreeMap::new();
    collect_tables(&root, &root, "", &mut described);
    for (path, keys) in &described {
        let known = parsed.get(path).unwrap_or_else(|| panic!("the parser reads no table [{path}]"));
        let known: BTreeSet<String> = known.iter().map(|key| (*key).to_owned()).collect();
        assert_eq!(keys, &known, "[{path}]");
    }
    let described: BTreeSet<&str> = described.keys().map(String::as_str).collect();
    for path in parsed.keys() {
        assert!(described.contains(path.as_str()), "the schema has no table [{path}]");
    }
}

/// Returns what in `value` violates the schema. Supports the part of JSON Schema that ours uses, except patterns.
fn schema_violations(root: &Value, schema: &Value, value: &Value, path: &str) -> Vec<String> {
    let schema = resolve_reference(root, schema);
    let mut found = Vec::new();
    let mut say = |what: &str| found.push(format!("{path}: {what}"));
    let is = |kind: &str| match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => panic!("the schema has a type {other}"),
    };
    if schema["type"].as_str().is_some_and(|kind| !is(kind)) {
        say("another type");
    }
    if schema["enum"].as_array().is_some_and(|words| !words.contains(value))
        || schema["const"].is_number() && schema["const"] != *value
    {
        say("another value");
    }
    let number = value.as_f64();
    let bound = |key: &str| schema[key].as_f64().zip(number);
    if bound("minimum").is_some_and(|(least, value)| value < least)
        || bound("maximum").is_some_and(|(most, value)| value > most)
        || bound("exclusiveMinimum").is_some_and(|(least, value)| value <= least)
    {
        say("out of bounds");
    }
    for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.get(key).is_none() {
            say(&format!("{key} is missing"));
        }
    }
    if let Some(ways) = schema["anyOf"].as_array() {
        let fits = |way: &Value| schema_violations(root, way, value, path).is_empty();
        if !ways.iter().any(fits) {
            say("matches no alternative");
        }
    }
    for (key, below) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        match (&schema["properties"][key], &schema["additionalProperties"]) {
            (Value::Null, Value::Bool(false)) => found.push(format!("{path}: unknown")),
            (Value::Null, Value::Object(_)) => {
                found.extend(schema_violations(root, &schema["additionalProperties"], below, &path));
            }
            (Value::Null, _) => {}
            (known, _) => found.extend(schema_violations(root, known, below, &path)),
        }
    }
    if schema["items"].is_object() {
        for below in value.as_array().into_iter().flatten() {
            found.extend(schema_violations(root, &schema["items"], below, &format!("{path}[]")));
        }
    }
    found
}

#[test]
fn schema_and_parser_agree_on_examples_and_errors() {
    let root = schema();
    let validate = |text: &str| {
        let value: Value = toml::from_str(text).unwrap();
        schema_violations(&root, &root, &value, "")
    };
    assert_eq!(validate(FULL_EXAMPLE), Vec::<String>::new());
    assert_eq!(validate(MINIMAL_EXAMPLE), Vec::<String>::new());
    for (from, to) in [
        ("manifest = 1", "manifest = 2"),
        ("mode = \"notebook\"", "mode = \"job\""),
        ("priority = 50", "priorty = 50"),
        ("priority = 50", "priority = 101"),
        ("gpu = \"preferred\"", "gpu = \"yes\""),
        ("min_gpu = 0.10, ", ""),
        ("slots = 2", "slots = 0"),
        ("spill = true", "spill = \"yes\""),
        ("mode = \"max\"", "mode = \"best\""),
        ("{ from = \"mnist/1\", to", "{ form = \"mnist/1\", to"),
    ] {
        let text = FULL_EXAMPLE.replacen(from, to, 1);
        assert_ne!(text, FULL_EXAMPLE, "{from}");
        assert!(!validate(&text).is_empty(), "the schema takes {to:?}");
        assert!(manifest::ProjectManifest::parse(&text).is_err(), "the parser takes {to:?}");
    }
}
