//! Compatibility of the REST interface: existing clients of `/api/v1` go on working. `tests/api/v1.json` records what
//! clients can send and what they read, and the present interface must be compatible with it.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::PathBuf;

use saggar_tests::api_description::{InterfaceShape, compare};
use saggar_tests::{ServerProcess, root};
use serde_json::{Value, json};

fn recorded_file() -> PathBuf {
    root().join("tests/api/v1.json")
}

fn recorded() -> InterfaceShape {
    InterfaceShape::from_json(&serde_json::from_slice(&std::fs::read(recorded_file()).unwrap()).unwrap())
}

/// Fails for a change that existing clients notice. A compatible change is recorded with `UPDATE_EXPECT=1`, and a
/// breaking one, on purpose, with `UPDATE_EXPECT=breaking`.
#[test]
fn the_rest_interface_is_compatible_with_the_recorded_one() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let present = InterfaceShape::from_openapi(&server.get("/openapi.json"), "/api/v1/");
    assert!(present.operations.len() > 80, "{} operations", present.operations.len());
    let update = std::env::var("UPDATE_EXPECT").unwrap_or_default();
    let changes = compare(&recorded(), &present);
    let breaking = changes.breaking.join("\n  ");
    assert!(
        changes.breaking.is_empty() || update == "breaking",
        "existing clients of /api/v1 would fail:\n  {breaking}\n\
         Keep the old form working beside the new one and list it in host/rest/src/deprecations.rs. If the break is \
         intended, record it: UPDATE_EXPECT=breaking cargo test --test api_compatibility"
    );
    if !update.is_empty() {
        let text = format!("{:#}\n", present.to_json());
        std::fs::write(recorded_file(), text).unwrap();
        return;
    }
    let additions = changes.additions.join("\n  ");
    assert!(
        changes.additions.is_empty(),
        "the interface has compatible changes that are not recorded, so that their removal would go unnoticed:\n  \
         {additions}\nRecord them: UPDATE_EXPECT=1 cargo test --test api_compatibility"
    );
}

/// An interface with one operation of each kind.
fn example() -> Value {
    json!({
        "paths": {
            "/api/v1/jobs": {
                "get": {
                    "parameters": [{ "name": "limit", "in": "query", "schema": { "type": "integer" } }],
                    "responses": { "200": { "content": { "application/json": { "schema": {
                        "type": "array", "items": { "$ref": "#/components/schemas/Job" }
                    } } } } }
                },
                "post": {
                    "requestBody": { "required": true, "content": { "application/json": { "schema": {
                        "$ref": "#/components/schemas/Spec"
                    } } } },
                    "responses": { "201": { "content": { "application/json": { "schema": {
                        "$ref": "#/components/schemas/Job"
                    } } } } }
                }
            },
            "/other": { "get": { "responses": { "200": {} } } }
        },
        "components": { "schemas": {
            "Job": {
                "type": "object", "required": ["name", "steps"],
                "properties": { "name": { "type": "string" }, "steps": { "type": "integer" }, "state": {
                    "type": "string", "enum": ["QUEUED", "RUNNING"]
                } }
            },
            "Spec": {
                "type": "object", "required": ["project"],
                "properties": { "project": { "type": "string" }, "seed": { "type": ["integer", "string"] }, "policy": {
                    "oneOf": [{ "type": "string", "const": "stop" }, { "type": "string", "const": "skip" }]
                } }
            }
        } }
    })
}

/// Returns the breaking changes of the example after `change`, and the additions.
fn changes_of(change: impl FnOnce(&mut Value)) -> (Vec<String>, Vec<String>) {
    let mut document = example();
    change(&mut document);
    let shape = |document: &Value| InterfaceShape::from_openapi(document, "/api/v1/");
    // As it is read from the file.
    let recorded = InterfaceShape::from_json(&shape(&example()).to_json());
    assert_eq!(recorded, shape(&example()));
    let changes = compare(&recorded, &shape(&document));
    (changes.breaking, changes.additions)
}

/// A change of the example, as a function.
type DocumentChange = Box<dyn FnOnce(&mut Value)>;

/// Changes of operations that break clients, with the messages expected.
fn breaking_operations() -> Vec<(&'static str, DocumentChange)> {
    vec![
        (
            "GET /api/v1/jobs: the operation was removed",
            Box::new(|document| {
                document["paths"]["/api/v1/jobs"].as_object_mut().unwrap().remove("get");
            }),
        ),
        (
            "GET /api/v1/jobs, parameter query limit: removed",
            Box::new(|document| {
                document["paths"]["/api/v1/jobs"]["get"]["parameters"] = json!([]);
            }),
        ),
        (
            "GET /api/v1/jobs, parameter query limit: required now",
            Box::new(|document| {
                document["paths"]["/api/v1/jobs"]["get"]["parameters"][0]["required"] = true.into();
            }),
        ),
        (
            "POST /api/v1/jobs: no longer answers 201 application/json",
            Box::new(|document| {
                let responses = &mut document["paths"]["/api/v1/jobs"]["post"]["responses"];
                *responses = json!({ "200": responses["201"] });
            }),
        ),
    ]
}

/// Changes of schemas that break clients, with the messages expected.
fn breaking_schemas() -> Vec<(&'static str, DocumentChange)> {
    let schemas = |document: &mut Value, path: &str, value: Value| {
        *document.pointer_mut(&format!("/components/schemas/{path}")).unwrap() = value;
    };
    vec![
        (
            "Job in a response .name: removed",
            Box::new(move |document| {
                schemas(
                    document,
                    "Job/properties",
                    json!({ "steps": { "type": "integer" }, "state": { "type": "string" } }),
                );
            }),
        ),
        (
            "Job in a response .steps: can be missing now",
            Box::new(move |document| {
                schemas(document, "Job/required", json!(["name"]));
            }),
        ),
        (
            "Job in a response .steps: can be null now",
            Box::new(move |document| {
                schemas(document, "Job/properties/steps/type", json!(["integer", "null"]));
            }),
        ),
        (
            "Spec in a request .seed: no longer accepts string",
            Box::new(move |document| {
                schemas(document, "Spec/properties/seed/type", json!("integer"));
            }),
        ),
        (
            "Spec in a request .policy: no longer accepts the value \"skip\"",
            Box::new(move |document| {
                schemas(document, "Spec/properties/policy", json!({ "type": "string", "enum": ["stop"] }));
            }),
        ),
        (
            "Spec in a request .seed: required now",
            Box::new(move |document| {
                schemas(document, "Spec/required", json!(["project", "seed"]));
            }),
        ),
        (
            "Spec in a request .plugin: new and required",
            Box::new(move |document| {
                schemas(document, "Spec/required", json!(["project", "plugin"]));
                document["components"]["schemas"]["Spec"]["properties"]["plugin"] = json!({ "type": "string" });
            }),
        ),
    ]
}

#[test]
fn changes_that_break_clients_are_found() {
    let cases = breaking_operations().into_iter().chain(breaking_schemas());
    for (expected, change) in cases {
        let (breaking, _) = changes_of(change);
        assert!(breaking.len() == 1 && breaking[0].starts_with(expected), "{expected}: {breaking:?}");
    }
}

#[test]
fn additions_break_no_client() {
    let (breaking, additions) = changes_of(|document| {
        document["paths"]["/api/v1/queues"] = json!({ "get": { "responses": { "200": {} } } });
        let schemas = &mut document["components"]["schemas"];
        schemas["Job"]["properties"]["queue"] = json!({ "type": "string" });
        schemas["Job"]["properties"]["state"]["enum"] = json!(["QUEUED", "RUNNING", "DONE"]);
        schemas["Spec"]["properties"]["message"] = json!({ "type": "string" });
        schemas["Spec"]["properties"]["seed"]["type"] = json!(["integer", "string", "null"]);
        schemas["Spec"]["properties"]["policy"] = json!({ "type": "string" });
    });
    assert!(breaking.is_empty(), "{breaking:?}");
    assert_eq!(additions.len(), 6, "{additions:?}");
    // Other protocols are not part of the interface.
    assert_eq!(
        changes_of(|document| drop(document["paths"].as_object_mut().unwrap().remove("/other"))),
        (vec![], vec![])
    );
}
