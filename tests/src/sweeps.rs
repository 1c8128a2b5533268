//! Sweeps of a server under test.

use serde_json::Value;

use crate::{HttpPayload, ServerProcess};

/// Creates a sweep and returns its name.
pub fn create_sweep(server: &ServerProcess, spec: &Value) -> String {
    let answer = server.request("POST", "/api/v1/sweeps", HttpPayload::Json(spec));
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.json()["name"].as_str().expect("a sweep has a name").to_owned()
}

/// Waits until a sweep has succeeded or failed, and returns it.
pub fn wait_for_sweep(server: &ServerProcess, sweep: &str) -> Value {
    server.wait_for("the end of the sweep", |server| {
        let found = server.get(&format!("/api/v1/sweeps/{sweep}"));
        matches!(found["state"].as_str(), Some("SUCCEEDED" | "FAILED")).then_some(found)
    })
}
