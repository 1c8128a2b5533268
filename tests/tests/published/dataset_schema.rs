//! The JSON Schema of `dataset.json`, which `saggar data schema` prints, accepts what the import accepts.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::process::Command;

use saggar_store::DatasetStore;
use saggar_tests::{binary, root};
use serde_json::{Value, json};

/// Returns the first error of each document under the schema, or `null`.
fn validate(documents: &[Value]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let printed = Command::new(binary()).args(["data", "schema"]).output().unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    std::fs::write(folder.path().join("schema.json"), &printed.stdout).unwrap();
    std::fs::write(folder.path().join("documents.json"), serde_json::to_vec(documents).unwrap()).unwrap();
    let requirements = root().join("tests/dataset-schema/requirements.txt");
    let installed = Command::new(root().join(".ci/clients")).arg(requirements).output().expect("bash is installed");
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    let python = String::from_utf8_lossy(&installed.stdout).trim().to_owned();
    let script = root().join("tests/dataset-schema/validate.py");
    let mut validation = Command::new(python);
    validation.arg("-B").arg(script).args(["schema.json", "documents.json"]).current_dir(folder.path());
    let validated = validation.output().expect("the environment has Python");
    assert!(validated.status.success(), "{}", String::from_utf8_lossy(&validated.stderr));
    serde_json::from_slice(&validated.stdout).unwrap()
}

/// Returns the examples of the reference page, and the one in the tree.
fn documented_examples() -> Vec<Value> {
    let page = std::fs::read_to_string(root().join("host/docs/reference/dataset-json.md")).unwrap();
    let blocks = page.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut examples: Vec<Value> = blocks.map(|block| serde_json::from_str(block).unwrap()).collect();
    assert!(examples.len() >= 6, "{examples:?}");
    let digits = std::fs::read(root().join("examples/digits/dataset.json")).unwrap();
    examples.push(serde_json::from_slice(&digits).unwrap());
    examples
}

#[test]
fn documented_descriptions_are_valid() {
    let examples = documented_examples();
    for (example, error) in examples.iter().zip(validate(&examples)) {
        assert_eq!(error, Value::Null, "{example}");
    }
}

/// Returns whether the import refuses a description because of its form, whatever the files are.
fn is_refused_by_import(description: &Value) -> bool {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("dataset.json"), description.to_string()).unwrap();
    let error = DatasetStore::new(home.path()).ingest("d", folder.path(), 0).unwrap_err().to_string();
    error.starts_with("dataset.json: ")
}

#[test]
fn descriptions_that_the_import_refuses_are_invalid() {
    let documents = [
        json!({}),
        json!({ "format": "orc" }),
        json!({ "format": "csv", "fiel": "a.csv" }),
        json!({ "format": "csv", "missing": "zero" }),
        json!({ "format": "csv", "header": "yes" }),
        json!({ "format": "csv", "fields": [{ "name": "x", "columns": "a", "dtype": "float32" }] }),
        json!({ "format": "csv", "fields": [{ "name": "x", "columns": [0, 1] }] }),
        json!({ "format": "images", "resize": { "width": 3 } }),
        json!({ "format": "images", "resize": { "width": -3, "height": 3 } }),
        json!({ "format": "npz", "fields": [] }),
        json!({ "format": "text" }),
        json!({ "format": "parquet", "fields": [{ "column": "x" }] }),
        json!({ "format": "jsonlines", "missing": 1 }),
    ];
    for (document, error) in documents.iter().zip(validate(&documents)) {
        assert!(error.is_string(), "{document} is valid under the schema");
        assert!(is_refused_by_import(document), "{document} is read");
    }
    // Keys that only the files can contradict are valid.
    let valid = [
        json!({ "format": "csv", "target": "b", "ignore": ["a"], "delimiter": ";", "missing": "mean" }),
        json!({ "format": "csv", "fields": [{ "name": "x", "columns": ["a", "b"], "dtype": "float32" }] }),
        json!({ "format": "images", "resize": { "width": 3, "height": 4 }, "description": "d" }),
        json!({ "format": "parquet", "missing": "drop", "splits": { "train": 0.8, "test": 0.2 } }),
        json!({ "format": "arrow", "fields": [{ "name": "x", "column": "a" }], "resize": { "width": 8, "height": 8 } }),
        json!({ "format": "npz" }),
    ];
    for (document, error) in valid.iter().zip(validate(&valid)) {
        assert_eq!(error, Value::Null, "{document}");
        assert!(!is_refused_by_import(document), "{document} is refused");
    }
}
